"""Two tries of one run at once: a killed task's job lives on for a moment while Airflow already tries again."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from pathlib import Path

import deltalake
import pyarrow as pa
from tests.support.runs.maintenance_runs import run_spec

from delta_log import Table
from delta_maintenance.contract import JobReport, JobSpec, TransactionId
from delta_maintenance.engine.engine import BinResult
from delta_maintenance.engine.local import LocalEngine
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.manifest.manifest_file import RunKey
from delta_maintenance.rewrite.task import RewriteTask


class OvertakenEngine:
    """A local engine in whose shadow another try of the same run does everything, once."""

    name = "local"

    def __init__(
        self, other_try: list[JobSpec], table: Path, reports: list[JobReport], finish_first: bool
    ) -> None:
        self._other, self._table, self._reports, self._finish_first = other_try, table, reports, finish_first

    def run(
        self, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> Generator[BinResult, None, None]:
        engine = LocalEngine({})
        if self._finish_first:
            yield from engine.run(tasks, progress, run_key)
        if self._other:
            self._reports.append(run(self._other.pop(), self._table))
        if not self._finish_first:
            yield from engine.run(tasks, progress, run_key)


def run(spec: JobSpec, table: Path, engine: OvertakenEngine | None = None) -> JobReport:
    return run_spec(spec, Table(str(table)), engine)


def small_files(table: Path) -> None:
    for number in range(3):
        rows = pa.table({"id": [2 * number, 2 * number + 1], "part": ["x", "y"]})
        deltalake.write_deltalake(str(table), rows, partition_by=["part"], mode="append")


def test_a_try_that_was_overtaken_by_another_deletes_none_of_its_files(tmp_path: Path) -> None:
    for finish_first in (True, False):
        table = tmp_path / str(finish_first)
        small_files(table)
        spec = JobSpec("optimize", str(table), "run", engine="local", transaction=TransactionId("app", 5))
        reports: list[JobReport] = []
        report = run(spec, table, OvertakenEngine([spec], table, reports, finish_first))
        assert [other.status for other in reports] == ["committed"]
        assert report.status == "already_done"
        assert report.version == reports[0].version == 3
        snapshot = Table(str(table)).snapshot()
        assert snapshot.version == 3
        assert sorted(snapshot.to_arrow().column("id").to_pylist()) == list(range(6))
        assert sorted(deltalake.DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist()) == list(range(6))
