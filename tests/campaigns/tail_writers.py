"""Writers of the tail campaign: real rows by delta-rs, delta-spark and ours, maintenance by each of them, and the log
cleaned. A table has one thread, so that no two of its writers meet: delta-spark alone knows no conditional PUT."""

from __future__ import annotations

import io
import itertools
import queue
import random
import threading
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec.structs import replace
from tests.support.runs.tail_runs import TailedTable

from delta_log import Table
from delta_log.log.actions import Add
from delta_log.runtime import Runtime
from delta_log.table_config.features import Operation
from delta_log.transaction.commit_body import Change, FileGroup
from delta_log.transaction.transaction import Transaction
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_ROWS = 10
_DAYS = ("2024-01-01", "2024-01-02")
#: delta-spark takes a hundred times longer for a commit than the others.
_SPARK_EVERY, _MAINTENANCE_EVERY = 12, 6
#: Commits of today stay, whatever the retention; two days later those of today may go.
_LATER_MS = 2 * 86_400_000
SHORT_LOG_RETENTION = {"delta.logRetentionDuration": "interval 1 hour"}


@dataclass
class RowTable(TailedTable):
    """A table with data files, so that it can be maintained."""

    properties: dict[str, str] = field(default_factory=dict)
    session: SparkSession | None = None

    def create(self) -> None:
        from deltalake import DeltaTable

        schema = pa.schema([("id", pa.int64()), ("day", pa.string())])
        DeltaTable.create(
            self.uri,
            schema,
            partition_by=["day"],
            configuration=self.properties,
            storage_options=self._delta_rs_options,
        )

    def write_by_delta_rs(self) -> None:
        from deltalake import write_deltalake

        write_deltalake(self.uri, _rows(), mode="append", storage_options=self._delta_rs_options)
        self._count("delta-rs")

    def write_by_ours(self) -> None:
        table = Table(self.uri, self.storage_options)
        rows = _rows()
        day = rows.column("day")[0].as_py()
        body = io.BytesIO()
        pq.write_table(rows.drop_columns(["day"]), body)
        path = f"day={day}/{uuid.uuid4()}.parquet"
        table.storage.put(path, body.getvalue())
        add = Add(
            path,
            body.tell(),
            Runtime().now_ms(),
            dataChange=True,
            partitionValues={"day": day},
            stats=f'{{"numRecords":{_ROWS}}}',
        )
        change = Change("WRITE", [FileGroup([add], [])])
        Transaction(table.storage, table.snapshot(), Operation.OPTIMIZE, Runtime()).commit(change)
        self._count("ours")

    def write_by_spark(self) -> None:
        assert self.session is not None
        rows = self.session.range(_ROWS).coalesce(1).selectExpr("id", f"'{random.choice(_DAYS)}' AS day")
        rows.write.format("delta").mode("append").save(self._spark_uri)
        self._count("delta-spark")

    def optimize_by_delta_rs(self) -> None:
        from deltalake import DeltaTable

        DeltaTable(self.uri, storage_options=self._delta_rs_options).optimize.compact()
        self._count("delta-rs, maintenance")

    def vacuum_by_delta_rs(self) -> None:
        from deltalake import DeltaTable

        DeltaTable(self.uri, storage_options=self._delta_rs_options).vacuum(dry_run=False)
        self._count("delta-rs, maintenance")

    def optimize_by_spark(self) -> None:
        self._sql(f"OPTIMIZE delta.`{self._spark_uri}`")

    def vacuum_by_spark(self) -> None:
        self._sql(f"VACUUM delta.`{self._spark_uri}`")

    def optimize_by_ours(self) -> None:
        self._run("optimize", engine="local")
        self._count("ours, maintenance")

    def vacuum_by_ours(self) -> None:
        self._run("vacuum", engine="local", options={"retain_hours": 0.0, "retention_check": False})
        self._count("ours, maintenance")

    def checkpoint(self) -> None:
        self._run("checkpoint")

    def clean_log_for_good(self) -> tuple[int, int]:
        """How many commits went, and the first version that is still there."""
        before = self._commits()
        runtime = replace(Runtime(), now_ms=lambda: time.time_ns() // 1_000_000 + _LATER_MS)
        self._run("cleanup-log", runtime=runtime)
        after = self._commits()
        return len(before) - len(after), min(after)

    def _commits(self) -> list[int]:
        from delta_log.log.log_segment import list_log

        return sorted(list_log(Table(self.uri, self.storage_options).storage).commits)

    def _run(
        self,
        operation: str,
        *,
        engine: str = "auto",
        options: dict[str, Any] | None = None,
        runtime: Runtime | None = None,
    ) -> JobReport:
        spec = JobSpec(operation, self.uri, str(uuid.uuid4()), options or {}, engine=engine)
        report = run_job(spec, JobSite(self.storage_options, runtime=runtime or Runtime()), SilentProgress())
        if report.error is not None:
            raise RuntimeError(f"{operation} of {self.name}: {report.error.message}")
        return report

    def _sql(self, statement: str) -> None:
        assert self.session is not None
        self.session.sql(statement).collect()
        self._count("delta-spark, maintenance")

    @property
    def _delta_rs_options(self) -> dict[str, str] | None:
        # An outage is told at once: the next try is the next commit.
        return {**self.delta_rs_options, "max_retries": "1"} if self.delta_rs_options else None

    @property
    def _spark_uri(self) -> str:
        return self.uri.replace("s3://", "s3a://", 1)


def _rows() -> pa.Table:
    return pa.table({"id": list(range(_ROWS)), "day": [random.choice(_DAYS)] * _ROWS})


class TableWriter(threading.Thread):
    """Commits to one table at its own pace until it is stopped; a commit that fails is not made.

    :param seconds_between: two commits.
    """

    def __init__(self, table: RowTable, seconds_between: float) -> None:
        super().__init__(name=f"writer of {table.name}")
        self.table, self._pace = table, seconds_between
        self.maintenance_alone = False
        self.failures: Counter[str] = Counter()
        self._asked: queue.SimpleQueue[tuple[Callable[[], Any], Future[Any]]] = queue.SimpleQueue()
        self._stopped = threading.Event()
        self._maintain = self._maintenance()

    def ask(self, what: Callable[[], Any]) -> Future[Any]:
        """Have something done between two commits."""
        asked: Future[Any] = Future()
        self._asked.put((what, asked))
        return asked

    def stop(self) -> None:
        self._stopped.set()

    def run(self) -> None:
        due = time.monotonic()
        for number in itertools.count(1):
            due = max(due + self._pace * random.uniform(0.5, 1.5), time.monotonic() - self._pace)
            if self._stopped.wait(max(0.0, due - time.monotonic())):
                return
            self._do_what_was_asked()
            try:
                self._commit(number)
            except Exception as error:
                # The store was down. What was committed is seen in the log.
                self.failures[f"{type(error).__name__}: {error}"[:200]] += 1

    def _do_what_was_asked(self) -> None:
        while not self._asked.empty():
            what, asked = self._asked.get()
            try:
                asked.set_result(what())
            except Exception as error:
                asked.set_exception(error)

    def _commit(self, number: int) -> None:
        if self.maintenance_alone or number % _MAINTENANCE_EVERY == 0:
            next(self._maintain)()
        elif self.table.session is not None and number % _SPARK_EVERY == 7:
            self.table.write_by_spark()
        elif number % 2:
            self.table.write_by_delta_rs()
        else:
            self.table.write_by_ours()

    def _maintenance(self) -> Iterator[Callable[[], None]]:
        table = self.table
        kinds = [
            table.optimize_by_ours,
            table.vacuum_by_delta_rs,
            table.optimize_by_delta_rs,
            table.vacuum_by_ours,
        ]
        if table.session is not None:
            kinds += [table.optimize_by_spark, table.vacuum_by_spark]
        return itertools.cycle(kinds)
