"""One writer of a fleet: ``python -m tests.support.mixed_writers.writer ORDER``.

Each commit describes in its ``commitInfo`` what it does to the rows, so that the log is the serial history.
"""

from __future__ import annotations

import json
import os
import random
import re
import shlex
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Generator, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from delta_log import Table
from delta_log.errors import CommitFailed
from delta_log.log.file_names import commit_key
from delta_log.log.log_segment import list_log
from delta_maintenance.engine.engine import BinResult
from delta_maintenance.engine.local import LocalEngine
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.manifest.manifest_file import RunKey
from delta_maintenance.rewrite.task import RewriteTask
from tests.support.mixed_writers.fleet import ROWS_PER_APPEND, Journal, Order, Writer
from tests.support.runs.maintenance_runs import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IDS_PER_DELETE = 3
_COMPANY_SECONDS = 3.0
SPARK_CONFLICT = re.compile(r"io\.delta\.exceptions\.(Concurrent\w+|MetadataChanged\w+|ProtocolChanged\w+)")


class WriterKind(ABC):
    """Makes commits as one kind of writer. The writer's number seeds ``random``."""

    def __init__(self, order: Order) -> None:
        self.order, self.writer = order, order.writer
        self.journal = Journal(Path(order.directory) / f"{order.writer.name}.jsonl")
        self.random = random.Random(order.number)

    @property
    def has_met_all(self) -> bool:
        """Tells whether this writer has met everything that the fleet is to test."""
        return True

    @abstractmethod
    def act(self, op: int) -> bool:
        """Tries one commit and writes the outcome to the journal; returns whether it was committed."""

    def range_of(self, op: int) -> tuple[int, int]:
        first = self.order.first_id + op * ROWS_PER_APPEND
        return first, first + ROWS_PER_APPEND

    def description(self, op: int, **what: Any) -> str:
        return json.dumps({"writer": self.writer.name, "op": op, **what})


class DeltaRs(WriterKind):
    """Appends."""

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        from deltalake import DeltaTable

        self._table = DeltaTable(self.writer.table, storage_options=dict(self.writer.options))

    def act(self, op: int) -> bool:
        from deltalake import CommitProperties, write_deltalake

        first, end = self.range_of(op)
        rows = rows_of(self.writer.name, range(first, end))
        properties = CommitProperties(custom_metadata={"told": self.description(op, add=[first, end])})
        try:
            write_deltalake(self._table, rows, mode="append", commit_properties=properties)
        except Exception as error:
            self.journal.write(op=op, add=[first, end], failed=f"{type(error).__name__}: {error}"[:300])
            # delta-rs plans on the version that it read last, and would lose to the same commit each time.
            self._table.update_incremental()
            return False
        self.journal.write(op=op, add=[first, end])
        return True


class Ours(WriterKind):
    """Compacts, and reports whose rows were in the bins that it lost."""

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        self._rebased = self._remapped = 0

    @property
    def has_met_all(self) -> bool:
        return self._rebased > 0 and (self._remapped > 0 or not self.writer.compaction.get("remap"))

    def act(self, op: int) -> bool:
        table = Table(self.writer.table, dict(self.writer.options))
        engine = WaitingEngine(self.writer, table)
        options = {"max_deleted_rows_ratio": 0.0, **self.writer.compaction}
        try:
            report = run(table, run_id=f"{self.writer.name}-{op}", engine=engine, **options)
        except CommitFailed as error:
            self.journal.write(op=op, failed=f"{type(error).__name__}: {error}", lost=engine.given)
            return False
        if report.status != "committed":
            assert report.status == "nothing_to_do", report
            return False
        assert report.version is not None
        assert report.read_version is not None
        lost = [whose(bin_["partition_values"]) for bin_ in report.dropped or ()]
        assert len(lost) == report.dropped_bins
        rebased, remapped = report.version - report.read_version - 1, report.remapped_bins
        self._rebased += rebased
        self._remapped += remapped
        self.journal.write(op=op, version=report.version, rebased=rebased, lost=lost, remapped=remapped)
        return True


def whose(partition_values: Mapping[str, str | None]) -> str:
    """Returns the writer of a bin's rows; in a table without partitions a bin has rows of all writers."""
    return partition_values.get("writer") or "all"


class WaitingEngine:
    """The local engine, followed by a pause in which other writers commit.

    :ivar given: by bin, the writer of its rows.
    """

    name = "local"

    def __init__(self, writer: Writer, table: Table) -> None:
        self._writer, self._table = writer, table
        self.given: list[str] = []

    def run(
        self, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> Generator[BinResult, None, None]:
        self.given = [whose(task.partition_values) for task in tasks]
        deadline = time.monotonic() + self._writer.waits_seconds
        version = list_log(self._table.storage).latest
        yield from LocalEngine(self._writer.options).run(tasks, progress, run_key)
        while time.monotonic() < deadline and not self._others_have_committed_since(version):
            time.sleep(0.05)

    def _others_have_committed_since(self, version: int) -> bool:
        storage = self._table.storage
        new = range(version + 1, list_log(storage, version).latest + 1)
        if self._writer.waits_for == "commits":
            return len(new) > 1
        return any(b'"remove"' in storage.read(commit_key(v)) for v in new)


class Changing(WriterKind):
    """Appends and, every other time, deletes, updates or merges some of its own rows.

    Its rows are in a partition of their own: an append of another writer to rows that it reads makes it fail.
    """

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        self._rows: set[int] = set()

    @abstractmethod
    def change(self, what: str, delete: Sequence[int], add: range, told: str) -> str | None:
        """Commits; returns the conflict that prevented it, if one did.

        :param what: ``append``, ``delete``, ``update`` or ``merge``; the last two change one row into another.
        """

    def act(self, op: int) -> bool:
        what, delete, add = self._next(op)
        facts: dict[str, Any] = {"add": [add.start, add.stop]} if add else {}
        if delete:
            facts["delete"] = delete
        failed = self.change(what, delete, add, self.description(op, **facts))
        if failed is not None:
            self.journal.write(op=op, **facts, failed=failed)
            return False
        self._rows.update(add)
        self._rows.difference_update(delete)
        self.journal.write(op=op, **facts)
        return True

    def _next(self, op: int) -> tuple[str, list[int], range]:
        new = range(*self.range_of(op))
        if not (op % 2 and self._rows):
            return "append", [], new
        chosen = sorted(self.random.sample(sorted(self._rows), _IDS_PER_DELETE))
        what = ("delete", "update", "merge")[op // 2 % 3]
        return (what, chosen, range(0)) if what == "delete" else (what, chosen[:1], new[:1])


class DeltaRsChanging(Changing):
    """Changes rows by rewriting files."""

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        from deltalake import DeltaTable

        self._table = DeltaTable(self.writer.table, storage_options=dict(self.writer.options))

    def change(self, what: str, delete: Sequence[int], add: range, told: str) -> str | None:
        from deltalake import CommitProperties, write_deltalake
        from deltalake.exceptions import CommitFailedError

        name = self.writer.name
        properties = CommitProperties(custom_metadata={"told": told})
        mine = f"writer = '{name}' AND id IN ({', '.join(map(str, delete))})"
        try:
            self._table.update_incremental()
            if what == "append":
                write_deltalake(self._table, rows_of(name, add), mode="append", commit_properties=properties)
            elif what == "delete":
                self._table.delete(mine, commit_properties=properties)
            elif what == "update":
                self._table.update({"id": str(add.start)}, predicate=mine, commit_properties=properties)
            else:
                merger = self._table.merge(
                    rows_of(name, (*delete, *add)),
                    f"t.writer = '{name}' AND t.writer = s.writer AND t.id = s.id",
                    source_alias="s",
                    target_alias="t",
                    commit_properties=properties,
                )
                merger.when_matched_delete().when_not_matched_insert_all().execute()
        except CommitFailedError as error:
            return f"{type(error).__name__}: {error}"[:300]
        return None


class DeltaSpark(Changing):
    """Changes rows by deletion vectors."""

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        self._session = spark_session(order)

    def change(self, what: str, delete: Sequence[int], add: range, told: str) -> str | None:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        name, table = self.writer.name, f"delta.`{self.writer.table}`"
        mine = f"writer = '{name}' AND id IN ({', '.join(map(str, delete))})"
        self._session.conf.set("spark.databricks.delta.commitInfo.userMetadata", told)
        try:
            if what == "append":
                data = (
                    self._session.range(add.start, add.stop)
                    .coalesce(1)
                    .selectExpr(f"'{name}' AS writer", "id")
                )
                data.write.format("delta").mode("append").save(self.writer.table)
            elif what == "delete":
                self._session.sql(f"DELETE FROM {table} WHERE {mine}")
            elif what == "update":
                self._session.sql(f"UPDATE {table} SET id = {add.start} WHERE {mine}")
            else:
                ids = ", ".join(f"({id_}L)" for id_ in (*delete, *add))
                self._session.sql(
                    f"MERGE INTO {table} AS t USING (SELECT '{name}' AS writer, id FROM VALUES {ids} AS t (id)) AS s "
                    f"ON t.writer = '{name}' AND t.writer = s.writer AND t.id = s.id "
                    "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
                )
        except Py4JJavaError as error:
            conflict = SPARK_CONFLICT.search(str(error))
            if conflict is None:
                raise
            return conflict[1]
        return None


def rows_of(name: str, ids: Iterable[int]) -> pa.Table:
    numbers = pa.array(ids, pa.int64())
    return pa.table({"writer": [name] * len(numbers), "id": numbers})


KINDS: dict[str, type[WriterKind]] = {
    "delta-rs": DeltaRs,
    "delta-rs-changes": DeltaRsChanging,
    "ours": Ours,
    "delta-spark": DeltaSpark,
}


def spark_session(order: Order) -> SparkSession:
    from tests.support.environment.delta_spark import start_delta_spark

    confs = [part for name, value in order.writer.options.items() for part in ("--conf", f"{name}={value}")]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*confs, "pyspark-shell"])
    scratch = Path(order.directory) / f"{order.writer.name}-spark"
    return start_delta_spark(tuple(Path(jar) for jar in order.writer.jars), scratch, short_lived=True)


def main(order: Order) -> None:
    kind = KINDS[order.writer.kind](order)
    directory, committed, op = Path(order.directory), 0, 0
    (directory / f"{order.writer.name}.ready").touch()
    # All start together, and each goes on until the last one is done.
    while len(list(directory.glob("*.ready"))) < order.writers:
        time.sleep(0.05)
    is_done = False
    while len(list(directory.glob("*.done"))) < order.writers:
        committed += kind.act(op)
        op += 1
        if not is_done and committed >= order.commits and kind.has_met_all:
            is_done = True
            (directory / f"{order.writer.name}.done").touch()
        # A writer that is done goes on slowly, so that the others still meet its commits.
        pause_seconds = order.writer.pause_seconds
        time.sleep(kind.random.uniform(0, max(pause_seconds, _COMPANY_SECONDS) if is_done else pause_seconds))


if __name__ == "__main__":
    main(Order.from_json(sys.argv[1]))
