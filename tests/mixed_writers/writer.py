"""One writer of a fleet: ``python -m tests.mixed_writers.writer ORDER``.

What a commit does to the rows is written into its ``commitInfo``, so that the log itself is the serial history.
"""

from __future__ import annotations

import io
import json
import os
import random
import re
import shlex
import sys
import time
from abc import ABC, abstractmethod
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.mixed_writers.fleet import ROWS_PER_APPEND, Journal, Order

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_IDS_PER_DELETE = 3
_COMPANY_SECONDS = 3.0
_SPARK_CONFLICT = re.compile(r"io\.delta\.exceptions\.(Concurrent\w+|MetadataChanged\w+|ProtocolChanged\w+)")


class Hand(ABC):
    """Makes commits; ``random`` is seeded by the writer's number."""

    def __init__(self, order: Order) -> None:
        self.order, self.writer = order, order.writer
        self.journal = Journal(Path(order.directory) / f"{order.writer.name}.jsonl")
        self.random = random.Random(order.number)

    @abstractmethod
    def act(self, op: int) -> bool:
        """One try, told to the journal; ``True`` if it is in the log."""

    def range_of(self, op: int) -> tuple[int, int]:
        first = self.order.first_id + op * ROWS_PER_APPEND
        return first, first + ROWS_PER_APPEND

    def told(self, op: int, **what: Any) -> str:
        return json.dumps({"writer": self.writer.name, "op": op, **what})


class DeltaRs(Hand):
    """Appends."""

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        from deltalake import DeltaTable

        self._table = DeltaTable(self.writer.table, storage_options=dict(self.writer.options))

    def act(self, op: int) -> bool:
        import pyarrow as pa
        from deltalake import CommitProperties, write_deltalake

        first, end = self.range_of(op)
        rows = pa.table(
            {"writer": [self.writer.name] * (end - first), "id": pa.array(range(first, end), pa.int64())}
        )
        properties = CommitProperties(custom_metadata={"told": self.told(op, add=[first, end])})
        try:
            write_deltalake(self._table, rows, mode="append", commit_properties=properties)
        except Exception as error:
            self.journal.write(op=op, add=[first, end], failed=f"{type(error).__name__}: {error}"[:300])
            # It plans on what it read last, and would lose to the same commit for ever.
            self._table.update_incremental()
            return False
        self.journal.write(op=op, add=[first, end])
        return True


class Ours(Hand):
    """Compacts, through the command line."""

    def act(self, op: int) -> bool:
        from delta_maintenance.cli import main

        output = io.StringIO()
        options = ["--storage-options", json.dumps(dict(self.writer.options))] if self.writer.options else []
        with redirect_stdout(output):
            main(
                [
                    "optimize",
                    self.writer.table,
                    "--engine",
                    "local",
                    "--max-deleted-rows-ratio",
                    "0",
                    "--json",
                    *self.writer.arguments,
                    *options,
                ]
            )
        report = json.loads(output.getvalue())
        if report.get("status") == "committed":
            self.journal.write(
                op=op,
                version=report["version"],
                rebased=report["version"] - report["read_version"] - 1,
                dropped=report.get("dropped_bins", 0),
                remapped=report.get("remapped_bins", 0),
            )
            return True
        error = report.get("error")
        if error is not None and error.get("kind") != "conflict":
            raise AssertionError(error)
        if error is not None:
            self.journal.write(op=op, failed=error["type"])
        return False


class DeltaSpark(Hand):
    """Appends, and every other time deletes, updates or merges some of its rows by deletion vectors.

    Its own alone, in a partition of their own: any append to what it reads makes it fail, unless it is marked as
    blind, and delta-rs marks none.
    """

    def __init__(self, order: Order) -> None:
        super().__init__(order)
        self._session = spark_session(order)
        self._rows: set[int] = set()

    def act(self, op: int) -> bool:
        from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

        what, statement = self._next(op)
        self._session.conf.set("spark.databricks.delta.commitInfo.userMetadata", self.told(op, **what))
        try:
            if statement is None:
                data = self._session.range(*what["add"]).coalesce(1)
                data = data.selectExpr(f"'{self.writer.name}' AS writer", "id")
                data.write.format("delta").mode("append").save(self.writer.table)
            else:
                self._session.sql(statement)
        except Py4JJavaError as error:
            conflict = _SPARK_CONFLICT.search(str(error))
            if conflict is None:
                raise
            self.journal.write(op=op, **what, failed=conflict[1])
            return False
        self._rows.update(range(*what.get("add", (0, 0))))
        self._rows.difference_update(what.get("delete", ()))
        self.journal.write(op=op, **what)
        return True

    def _next(self, op: int) -> tuple[dict[str, list[int]], str | None]:
        """What it does to the ids, and the statement for it; none for an append."""
        first, end = self.range_of(op)
        if not (op % 2 and self._rows):
            return {"add": [first, end]}, None
        name, table = self.writer.name, f"delta.`{self.writer.table}`"
        chosen = sorted(self.random.sample(sorted(self._rows), _IDS_PER_DELETE))
        if op % 6 == 1:
            mine = f"writer = '{name}' AND id IN ({', '.join(map(str, chosen))})"
            return {"delete": chosen}, f"DELETE FROM {table} WHERE {mine}"
        one = {"delete": chosen[:1], "add": [first, first + 1]}
        if op % 6 == 3:
            return one, f"UPDATE {table} SET id = {first} WHERE writer = '{name}' AND id = {chosen[0]}"
        source = f"SELECT '{name}' AS writer, id FROM VALUES ({chosen[0]}L), ({first}L) AS t (id)"
        matched = f"t.writer = '{name}' AND t.writer = s.writer AND t.id = s.id"
        return one, (
            f"MERGE INTO {table} AS t USING ({source}) AS s ON {matched} "
            "WHEN MATCHED THEN DELETE WHEN NOT MATCHED THEN INSERT *"
        )


HANDS: dict[str, type[Hand]] = {"delta-rs": DeltaRs, "ours": Ours, "delta-spark": DeltaSpark}


def spark_session(order: Order) -> SparkSession:
    from tests.delta_spark import start_delta_spark

    confs = [part for name, value in order.writer.options.items() for part in ("--conf", f"{name}={value}")]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*confs, "pyspark-shell"])
    scratch = Path(order.directory) / f"{order.writer.name}-spark"
    return start_delta_spark(tuple(Path(jar) for jar in order.writer.jars), scratch)


def main(order: Order) -> None:
    hand = HANDS[order.writer.kind](order)
    directory, committed, op = Path(order.directory), 0, 0
    (directory / f"{order.writer.name}.ready").touch()
    # They start together, and nobody leaves before the last one is done.
    while len(list(directory.glob("*.ready"))) < order.writers:
        time.sleep(0.05)
    while len(list(directory.glob("*.done"))) < order.writers:
        committed += hand.act(op)
        op += 1
        if committed == order.commits:
            (directory / f"{order.writer.name}.done").touch()
        # Who is done only keeps the others company.
        pause_seconds = order.writer.pause_seconds if committed < order.commits else _COMPANY_SECONDS
        time.sleep(hand.random.uniform(0, pause_seconds))


if __name__ == "__main__":
    main(Order.from_json(sys.argv[1]))
