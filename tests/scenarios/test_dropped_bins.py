"""Another writer deletes rows while a compaction runs: only the bins that held them are lost."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest
from tests.support.runs.maintenance_runs import run_spec

from delta_log import Table
from delta_log.errors import ConcurrentDelete
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.engine.engine import BinResult
from delta_maintenance.engine.local import LocalEngine
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.manifest.manifest_file import RunKey
from delta_maintenance.rewrite.task import RewriteTask
from delta_maintenance.text.report import render_report

FILES, PARTS = 3, ("x", "y", "z")


class DisturbedEngine:
    """The local engine; another writer's statement follows when its work is done."""

    name = "local"

    def __init__(self, statement: Callable[[], object]) -> None:
        self._statement = statement

    def run(
        self, tasks: Sequence[RewriteTask], progress: ProgressReporter, run_key: RunKey
    ) -> Generator[BinResult, None, None]:
        yield from LocalEngine({}).run(tasks, progress, run_key)
        self._statement()


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Nine files of one row, three in each of three partitions."""
    for number in range(FILES):
        rows = pa.table({"id": [10 * number + n for n in range(len(PARTS))], "part": list(PARTS)})
        deltalake.write_deltalake(str(tmp_path), rows, partition_by=["part"], mode="append")
    return tmp_path


def disturbed(table: Path, statement: Callable[[deltalake.DeltaTable], object]) -> JobReport:
    return run_spec(
        JobSpec("optimize", str(table), "run", engine="local"),
        Table(str(table)),
        DisturbedEngine(lambda: statement(deltalake.DeltaTable(str(table)))),
    )


def ids(table: Path) -> list[int]:
    return sorted(deltalake.DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist())


def test_a_bin_whose_row_was_deleted_is_left_out_and_told(table: Path) -> None:
    report = disturbed(table, lambda other: other.delete("id = 10"))
    assert (report.status, report.version) == ("committed", FILES + 1)
    assert report.dropped_bins == 1
    assert report.dropped is not None
    assert report.dropped[0]["partition_values"] == {"part": "x"}
    assert report.dropped[0]["type"] == "ConcurrentDelete"
    assert (report.metrics["numRemovedFiles"], report.metrics["numAddedFiles"]) == (6, 2)
    assert ids(table) == [0, 1, 2, 11, 12, 20, 21, 22]
    # Two of the three files of x are left, and the two others are compact.
    assert Table(str(table)).snapshot().num_files == 4
    committed = Table(str(table)).history(1)[0]
    assert committed["operationMetrics"]["numRemovedFiles"] == 6
    assert "1 bins left out" in render_report(report.to_dict())


def test_an_append_costs_no_bin(table: Path) -> None:
    more = pa.table({"id": [99], "part": ["x"]})
    report = disturbed(table, lambda other: deltalake.write_deltalake(other, more, mode="append"))
    assert (report.status, report.dropped_bins, report.dropped) == ("committed", 0, None)
    assert 99 in ids(table)
    assert Table(str(table)).snapshot().num_files == 4


def test_when_every_bin_was_changed_nothing_is_committed(table: Path) -> None:
    with pytest.raises(ConcurrentDelete):
        disturbed(table, lambda other: other.update({"id": "id + 1"}, predicate="id < 20"))
    assert Table(str(table)).snapshot().version == FILES
