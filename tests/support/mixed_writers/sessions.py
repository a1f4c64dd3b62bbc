"""Sessions that change rows of a table for a while, beside compactions of it; and what the compactions cost them.

A session runs one statement after the other, each as long as one on a large table, and pauses so that it is busy for a given share
of the time. A statement that fails is not repeated: another one follows. Every commit says in ``userMetadata`` what it does to the
rows, so that the log is the serial history.
"""

from __future__ import annotations

import json
import random
import threading
import time
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from delta_log import Table
from delta_log.errors import CommitFailed
from delta_log.log.file_names import commit_key
from delta_log.log.log_segment import list_log
from delta_maintenance.engine.local import LocalEngine
from tests.support.mixed_writers.writer import SPARK_CONFLICT
from tests.support.runs.maintenance_runs import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: In seconds; the mean is 2.2.
LENGTHS = (0.5, 0.5, 0.5, 1.0, 1.0, 2.0, 2.0, 10.0)
IDS_PER_SESSION = 1_000_000
#: Rows of each session when a table begins.
FIRST_ROWS = 200
COMPACTIONS = ("now", "gap", "delta-spark")
SCHEMA = pa.schema([("id", pa.int64()), ("n", pa.int64())])


@dataclass(slots=True)
class Tally:
    """What came of the statements and compactions of one table.

    :ivar statements: by outcome: ``committed``, ``lost to a compaction``, ``lost to another session``.
    :ivar busy_seconds: of all sessions, in statements; ``seconds`` are those of all sessions.
    :ivar compactions: by outcome.
    :ivar waits: of our compactions with a gap: the reports' ``commit_wait``.
    """

    statements: Counter[str] = field(default_factory=Counter)
    compactions: Counter[str] = field(default_factory=Counter)
    waits: list[Mapping[str, Any]] = field(default_factory=list)
    busy_seconds: float = 0.0
    seconds: float = 0.0

    @property
    def num_statements(self) -> int:
        return sum(self.statements.values())

    def include(self, other: Tally) -> None:
        self.statements += other.statements
        self.compactions += other.compactions
        self.waits += other.waits
        self.busy_seconds += other.busy_seconds
        self.seconds += other.seconds


@dataclass(frozen=True, slots=True)
class Statement:
    """
    :param kind: ``append``, ``delete``, ``update`` or ``merge``.
    :param chosen: the id of the row to change; for an append that of the new row.
    :param new: the id of a merge's new row.
    """

    kind: str
    chosen: int
    new: int
    seconds: float

    def told(self) -> str:
        """What it does to the rows, for :func:`serial_rows`."""
        effects: dict[str, dict[str, Any]] = {
            "append": {"add": [self.chosen]},
            "delete": {"delete": [self.chosen]},
            "update": {"update": [self.chosen]},
            "merge": {"update": [self.chosen], "add": [self.new]},
        }
        return json.dumps(effects[self.kind])


def spark_conflict(error: Exception) -> str:
    """Return what delta-spark says of a conflict; another error is raised again."""
    text = str(error)
    if SPARK_CONFLICT.search(text) is None:
        raise error
    return text


class Session(ABC):
    """Runs statements of one kind of writer.

    :param number: of the session on its table; it changes rows of its own.
    """

    def __init__(self, uri: str, number: int, seed: int) -> None:
        self.uri, self.random = uri, random.Random(seed)
        first = number * IDS_PER_SESSION
        self._rows = set(range(first, first + FIRST_ROWS))
        self._next = first + FIRST_ROWS

    @abstractmethod
    def execute(self, statement: Statement) -> str | None:
        """Run a statement; return the text of the conflict that it failed by."""

    @abstractmethod
    def blames_compaction(self, conflict: str) -> bool:
        """Tell whether a conflict was with a compaction."""

    def live(self, tally: Tally, busy: float, ends: threading.Event) -> None:
        while not ends.is_set():
            statement = self._planned()
            began = time.monotonic()
            conflict = self.execute(statement)
            took = time.monotonic() - began
            if conflict is None:
                tally.statements["committed"] += 1
                self._note(statement)
            else:
                by = "a compaction" if self.blames_compaction(conflict) else "another session"
                tally.statements[f"lost to {by}"] += 1
            idle = took * (1 - busy) / busy * self.random.uniform(0.5, 1.5)
            ends.wait(idle)
            tally.busy_seconds += took
            tally.seconds += time.monotonic() - began

    def _planned(self) -> Statement:
        kind = self.random.choice(("append", "delete", "update", "merge", "update", "merge"))
        first, self._next = self._next, self._next + 1
        chosen = first if kind == "append" else self.random.choice(sorted(self._rows))
        return Statement(kind, chosen, first, self.random.choice(LENGTHS))

    def _note(self, statement: Statement) -> None:
        if statement.kind == "delete":
            self._rows.remove(statement.chosen)
        elif statement.kind in ("append", "merge"):
            self._rows.add(statement.new)


class SparkSessionOfTable(Session):
    """A session of delta-spark; a condition makes its statements long."""

    def __init__(self, spark: SparkSession, uri: str, number: int, seed: int) -> None:
        super().__init__(uri, number, seed)
        self._spark = spark.newSession()
        self._spark.udf.registerJavaFunction("nap", "tests.Nap")

    def execute(self, statement: Statement) -> str | None:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        table, chosen = f"delta.`{self.uri}`", statement.chosen
        # Where a statement looks at the rows twice, it naps twice.
        millis = round(1000 * statement.seconds / (1 if statement.kind == "delete" else 2))
        nap = f"nap(t.id, {chosen}L, {millis})"
        self._spark.conf.set("spark.databricks.delta.commitInfo.userMetadata", statement.told())
        source = f"(SELECT explode(array({chosen}L, {statement.new}L)) AS id) AS s"
        text = {
            "append": f"INSERT INTO {table} VALUES ({chosen}L, 0L)",
            "delete": f"DELETE FROM {table} AS t WHERE t.id = {chosen} AND {nap}",
            "update": f"UPDATE {table} AS t SET n = n + 1 WHERE t.id = {chosen} AND {nap}",
            "merge": f"MERGE INTO {table} AS t USING {source} ON t.id = s.id AND {nap} "
            "WHEN MATCHED THEN UPDATE SET n = t.n + 1 WHEN NOT MATCHED THEN INSERT (id, n) VALUES (s.id, 0L)",
        }[statement.kind]
        try:
            self._spark.sql(text)
        except Py4JJavaError as error:
            return spark_conflict(error)
        return None

    def blames_compaction(self, conflict: str) -> bool:
        return "concurrent OPTIMIZE" in conflict


class DeltaRsSession(Session):
    """A session of delta-rs; the source of a merge makes it long, and so do statements that begin late after the table was read."""

    def __init__(self, uri: str, options: Mapping[str, str], number: int, seed: int) -> None:
        super().__init__(uri, number, seed)
        self._options = dict(options)

    def execute(self, statement: Statement) -> str | None:
        from deltalake import CommitProperties, DeltaTable, write_deltalake
        from deltalake.exceptions import CommitFailedError

        properties = CommitProperties(custom_metadata={"userMetadata": statement.told()})
        table = DeltaTable(self.uri, storage_options=self._options)
        try:
            if statement.kind == "append":
                rows = pa.table({"id": [statement.chosen], "n": [0]}, SCHEMA)
                write_deltalake(table, rows, mode="append", commit_properties=properties)
                return None
            new = [statement.new] if statement.kind == "merge" else []
            merge = table.merge(
                self._slow([statement.chosen, *new], statement.seconds),
                "t.id = s.id",
                source_alias="s",
                target_alias="t",
                commit_properties=properties,
            )
            if statement.kind == "delete":
                merge = merge.when_matched_delete()
            else:
                merge = merge.when_matched_update({"n": "t.n + 1"})
                if new:
                    merge = merge.when_not_matched_insert({"id": "s.id", "n": "0"})
            merge.execute()
        except CommitFailedError as error:
            return str(error)
        return None

    @staticmethod
    def _slow(ids: list[int], seconds: float) -> pa.RecordBatchReader:
        def batches() -> Iterator[pa.RecordBatch]:
            time.sleep(seconds)
            yield pa.record_batch({"id": pa.array(ids, pa.int64())})

        return pa.RecordBatchReader.from_batches(pa.schema([("id", pa.int64())]), batches())

    def blames_compaction(self, conflict: str) -> bool:
        # delta-rs does not say with which commit; the caller gives it a table with one session.
        return True


def compact(
    uri: str,
    options: Mapping[str, Any],
    how: str,
    every_seconds: float,
    spark: SparkSession | None,
    tally: Tally,
    ends: threading.Event,
) -> None:
    """Compact a table again and again, in one of the ways of :data:`COMPACTIONS`."""
    number = 0
    while not ends.wait(every_seconds):
        number += 1
        if how == "delta-spark":
            assert spark is not None
            tally.compactions[_spark_compaction(spark, uri)] += 1
            continue
        gap: dict[str, Any] = {"commit_when": "gap", "max_wait_seconds": 300} if how == "gap" else {}
        try:
            report = run(
                Table(uri, options),
                run_id=f"{how}-{number}",
                engine=LocalEngine(options),
                remap=True,
                max_deleted_rows_ratio=0.0,
                **gap,
            )
        except CommitFailed:
            tally.compactions["lost"] += 1
            continue
        tally.compactions[report.status] += 1
        if report.commit_wait is not None and report.status == "committed":
            tally.waits.append(report.commit_wait)


def _spark_compaction(spark: SparkSession, uri: str) -> str:
    from py4j.protocol import Py4JJavaError

    try:
        row = spark.sql(f"OPTIMIZE delta.`{uri}`").collect()[0]
    except Py4JJavaError as error:
        spark_conflict(error)
        return "lost"
    return "committed" if row["metrics"]["numFilesAdded"] else "nothing_to_do"


def live(
    sessions: list[Session],
    busy: float,
    compacts: Callable[[Tally, threading.Event], None],
    statements: int,
    seconds: float,
) -> Tally:
    """Let sessions and compactions live on one table until there are so many statements, or the time is over."""
    tally, ends = Tally(), threading.Event()
    failures: list[BaseException] = []

    def guarded(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)
            ends.set()

    works: list[Callable[[], None]] = [partial(session.live, tally, busy, ends) for session in sessions]
    works.append(partial(compacts, tally, ends))
    threads = [threading.Thread(target=guarded, args=(work,)) for work in works]
    for thread in threads:
        thread.start()
    deadline = time.monotonic() + seconds
    while tally.num_statements < statements and time.monotonic() < deadline and not ends.wait(0.5):
        pass
    ends.set()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]
    return tally


def serial_rows(table: Table, first: Mapping[int, int]) -> dict[int, int]:
    """Return the rows, ``id`` to ``n``, that the log's commits give one after the other, by what their writers told."""
    rows = dict(first)
    for version in range(list_log(table.storage).latest + 1):
        lines = table.storage.read(commit_key(version)).splitlines()
        info: dict[str, Any] = next(
            (json.loads(line)["commitInfo"] for line in lines if b'"commitInfo"' in line), {}
        )
        told = json.loads(info.get("userMetadata") or "{}")
        for row in told.get("update", ()):
            rows[row] += 1
        for row in told.get("delete", ()):
            del rows[row]
        for row in told.get("add", ()):
            assert row not in rows
            rows[row] = 0
    return rows
