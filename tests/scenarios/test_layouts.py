"""OPTIMIZE with a layout: rows, types and ids are kept, files hold like values, and a second run finds nothing to do."""

from __future__ import annotations

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import write_deltalake
from hypothesis import assume, given
from hypothesis import strategies as st
from tests.support.checks.added_files import check_added_files
from tests.support.repetition import examples
from tests.support.runs.layout_columns import sortable
from tests.support.runs.maintenance_runs import (
    WatchedEngine,
    enable_deletion_vectors,
    keys,
    mark_deleted,
    run,
)
from tests.support.runs.shared_bins import SharingEngine
from tests.support.tables.rewritable_tables import GeneratedTable, as_multiset, generated_tables
from tests.support.tables.tracked_rows import tracked_rows, turn_row_tracking_on

from delta_log import Table
from delta_log.errors import ConcurrentDelete, InvalidRequest
from delta_maintenance.engine.engine import Engine
from delta_maintenance.engine.local import LocalEngine
from delta_maintenance.errors import TaskFailed
from delta_maintenance.layout.layout import KINDS
from delta_maintenance.rewrite.task import LAYOUT_TAG
from delta_maintenance.text.plan import render_plan, rewrite_lines
from delta_maintenance.text.report import render_report

#: Everything goes through the disk.
SPILLING = LocalEngine({}, memory_limit_bytes=1)
#: Several tasks share each bin, as on Spark; there are fewer tasks that write than files.
SHARING = SharingEngine(partitions=3)


def write(table: Path, files: int = 6, rows: int = 2000, first: int = 0) -> Path:
    """Writes files in each of which every value of each column may be."""
    rng = np.random.default_rng(first)
    for number in range(first, first + files):
        columns = {
            "id": np.arange(number * rows, (number + 1) * rows),
            "a": rng.integers(0, 10_000, rows),
            "b": rng.random(rows),
            "text": [f"t{value % 500:03}" for value in rng.integers(0, 1 << 20, rows)],
        }
        write_deltalake(str(table), pa.table(columns), mode="append")
    return table


def ids(table: Path) -> list[int]:
    found: list[int] = Table(str(table)).snapshot().to_arrow(["id"]).column("id").to_pylist()
    return sorted(found)


def bounds(table: Path, column: str) -> list[tuple[Any, Any]]:
    stats = [
        json.loads(text) for text in Table(str(table)).snapshot().files(["stats"]).column("stats").to_pylist()
    ]
    return sorted((one["minValues"][column], one["maxValues"][column]) for one in stats)


def width(table: Path, column: str) -> float:
    """The part of the column's range that a file covers, on average."""
    found = bounds(table, column)
    whole = max(high for _, high in found) - min(low for low, _ in found)
    return float(np.mean([high - low for low, high in found]) / whole)


@pytest.mark.parametrize("engine", [None, SPILLING, SHARING], ids=["in memory", "on disk", "shared"])
@pytest.mark.parametrize("kind", KINDS)
@examples(10)
@given(table=generated_tables(), data=st.data())
def test_rows_types_and_statistics_are_kept_and_a_second_run_does_nothing(
    kind: str, engine: Engine | None, table: GeneratedTable, data: st.DataObject
) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "t"
        table.write(path)
        columns = sortable(path)
        assume(columns)
        by = data.draw(st.lists(st.sampled_from(columns), min_size=1, max_size=3, unique=True))
        options: dict[str, Any] = {
            "layout": kind,
            "by": by,
            "target_size_bytes": data.draw(st.sampled_from([500, 5000])),
        }
        before = Table(str(path)).snapshot()
        run(path, engine=engine, verify="full", **options)
        after = Table(str(path)).snapshot()
        assert as_multiset(after.to_arrow().to_pylist()) == as_multiset(table.live_rows())
        assert after.to_arrow().schema == before.to_arrow().schema
        assert (after.metadata, after.protocol) == (before.metadata, before.protocol)
        for version in range(1, after.version + 1):
            check_added_files(path, version)
        assert run(path, run_id="again", **options).status == "nothing_to_do"


@pytest.mark.parametrize("engine", [None, SHARING], ids=["alone", "shared"])
@pytest.mark.parametrize("kind", KINDS)
def test_files_hold_like_values_and_are_evenly_large(
    kind: str, engine: Engine | None, tmp_path: Path
) -> None:
    table = write(tmp_path / "t")
    before = {column: width(table, column) for column in ("a", "b")}
    assert min(before.values()) > 0.9
    size = Table(str(table)).snapshot().size_bytes // 16
    report = run(table, engine=engine, layout=kind, by=["a", "b"], target_size_bytes=size)
    assert report.metrics["numAddedFiles"] == 16
    assert all(width(table, column) < 0.5 for column in before)
    rows = [
        json.loads(text)["numRecords"]
        for text in Table(str(table)).snapshot().files(["stats"]).column("stats").to_pylist()
    ]
    assert max(rows) < 1.3 * min(rows)
    assert ids(table) == list(range(12_000))


def test_rows_within_a_file_are_sorted_by_the_layout(tmp_path: Path) -> None:
    table = write(tmp_path / "t")
    run(table, zorder_by=["a"], target_size_bytes=1 << 20)
    (key,) = keys(table)
    values = pq.read_table(table / key, columns=["a"]).column("a").to_numpy()
    assert (np.diff(values) >= 0).all()


def test_memory_and_disk_give_the_same_files(tmp_path: Path) -> None:
    for name in ("memory", "disk"):
        write(tmp_path / name)
    options: dict[str, Any] = {"layout": "hilbert", "by": ["a", "text"], "target_size_bytes": 60_000}
    run(tmp_path / "memory", **options)
    run(tmp_path / "disk", engine=SPILLING, **options)
    assert bounds(tmp_path / "memory", "a") == bounds(tmp_path / "disk", "a")
    assert bounds(tmp_path / "memory", "text") == bounds(tmp_path / "disk", "text")


def test_a_nightly_run_takes_new_files_and_those_that_they_overlap(tmp_path: Path) -> None:
    table = tmp_path / "t"

    def night(first: int) -> dict[str, int]:
        rows = pa.table({"id": range(first, first + 4000), "a": [n % 97 for n in range(4000)]})
        write_deltalake(str(table), rows, mode="append")
        report = run(
            table,
            run_id=f"night{first}",
            layout="kd",
            by=["id", "a"],
            target_size_bytes=8000,
            min_file_size_bytes=0,
        )
        assert report.selection is not None
        return {reason: count["files"] for reason, count in report.selection["left"].items()}

    assert night(0) == {}
    first = set(keys(table))
    # Ids only grow: what was laid out before stays.
    assert night(4000) == {"laid_out": len(first)}
    assert first < set(keys(table))
    # A row between the others brings its neighbours back into the run, and no more.
    late = pa.table({"id": [2000], "a": [50]})
    write_deltalake(str(table), late, mode="append")
    report = run(
        table, run_id="late", layout="kd", by=["id", "a"], target_size_bytes=8000, min_file_size_bytes=0
    )
    assert report.selection is not None
    assert 1 < report.selection["chosen"]["files"] < len(first)
    assert len(ids(table)) == 8001


def test_a_deleted_part_of_a_file_and_other_columns_make_files_due_again(tmp_path: Path) -> None:
    table = write(tmp_path / "t")
    enable_deletion_vectors(table)
    options: dict[str, Any] = {"zorder_by": ["a", "b"], "target_size_bytes": 60_000}
    run(table, **options)
    key = min(keys(table))
    mark_deleted(table, {key: range(300)})
    again = run(table, run_id="deleted", **options)
    assert again.status == "committed"
    assert Table(str(table)).snapshot().num_deletion_vectors == 0
    assert run(table, run_id="none", **options).status == "nothing_to_do"
    other = run(table, run_id="other", zorder_by=["b", "a"], target_size_bytes=60_000)
    assert other.selection is not None
    assert other.selection["left"] == {}


def test_partitions_are_laid_out_by_themselves(tmp_path: Path) -> None:
    table = tmp_path / "t"
    for number in range(4):
        rows = pa.table({"id": range(number * 100, number * 100 + 100), "p": [n % 2 for n in range(100)]})
        write_deltalake(str(table), rows, mode="append", partition_by=["p"])
    report = run(table, zorder_by=["id"], where="p = 1")
    assert (report.metrics["numRemovedFiles"], report.metrics["numAddedFiles"]) == (4, 1)
    assert ids(table) == list(range(400))


@pytest.mark.parametrize("engine", [None, SHARING], ids=["alone", "shared"])
def test_row_ids_move_with_their_rows(engine: Engine | None, tmp_path: Path) -> None:
    table = write(tmp_path / "t", files=3, rows=50)
    turn_row_tracking_on(table)
    before = tracked_rows(table)
    options: dict[str, Any] = {"layout": "kd", "by": ["b", "text"], "target_size_bytes": 1500}
    assert run(table, engine=engine, **options).status == "committed"
    assert tracked_rows(table) == before


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"zorder_by": ["nothing"]}, "no column nothing"),
        ({"zorder_by": ["a.b"]}, "a has no members"),
        ({"zorder_by": ["p"]}, "partitioned by p"),
        ({"zorder_by": ["list"]}, "no order"),
        ({"zorder_by": ["late"]}, "keeps no statistics of late"),
        ({"zorder_by": ["a", "A"]}, "twice"),
        ({"zorder_by": []}, "a list of names"),
        ({"zorder_by": ["a"], "by": ["a"]}, "Give it alone"),
        ({"layout": "kd"}, "by is not given"),
        ({"by": ["a"]}, "layout is not given"),
        ({"layout": "pack", "by": ["a"]}, "no other layout"),
        ({"layout": "hilbert", "by": list("cdefghijkl")}, "Hilbert curve by 10 columns .* at most 9"),
        ({"layout": "kd", "by": ["a"], "max_file_size_bytes": 1 << 40}, "max_file_size does not go"),
        ({"zorder_by": ["a"], "seal_size_bytes": 1}, "for clustered tables"),
        ({"seal_size_bytes": 1}, "for clustered tables"),
    ],
)
def test_what_cannot_be_laid_out_is_refused_before_anything_is_written(
    options: dict[str, Any], words: str, tmp_path: Path
) -> None:
    rows = {"p": [1], "a": [1], **{name: [1] for name in "cdefghijkl"}, "list": [[1]], "late": ["x"]}
    properties = {"delta.dataSkippingNumIndexedCols": "12"}
    write_deltalake(str(tmp_path), pa.table(rows), partition_by=["p"], configuration=properties)
    before = sorted(tmp_path.rglob("*"))
    for dry_run in (False, True):
        with pytest.raises(InvalidRequest, match=words):
            run(tmp_path, dry_run=dry_run, **options)
    assert sorted(tmp_path.rglob("*")) == before


def test_without_remap_a_bin_whose_rows_others_deleted_meanwhile_is_left_out(tmp_path: Path) -> None:
    table = write(tmp_path / "t", files=2)
    enable_deletion_vectors(table)
    first = min(keys(table))
    engine = WatchedEngine(lambda number: mark_deleted(table, {first: [0]}))
    with pytest.raises(ConcurrentDelete):
        run(table, engine=engine, zorder_by=["a"])
    assert len(ids(table)) == 3999


def test_a_killed_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    table = tmp_path / "t"
    for number in range(2):
        rows = pa.table({"id": range(number * 100, number * 100 + 100), "p": [n % 3 for n in range(100)]})
        write_deltalake(str(table), rows, mode="append", partition_by=["p"])

    class Killed(Exception):
        pass

    def die(number: int) -> None:
        if number == 2:
            raise Killed

    with pytest.raises(Killed):
        run(table, engine=WatchedEngine(die), zorder_by=["id"])
    report = run(table, zorder_by=["id"])
    assert report.earlier_tries is not None
    assert report.earlier_tries["bins"] >= 1
    assert (report.metrics["numRemovedFiles"], report.metrics["numAddedFiles"]) == (6, 3)
    assert ids(table) == list(range(200))


def test_a_dry_run_shows_the_layout_and_its_plan_can_be_approved(tmp_path: Path) -> None:
    table = write(tmp_path / "t", files=2)
    plan = run(table, layout="kd", by=["a", "text"], dry_run=True).plan
    assert plan is not None
    assert plan["layout"]["kind"] == "kd"
    assert plan["layout"]["columns"] == ["a", "text"]
    assert "  layout       tree of quantiles by a, text" in render_plan(plan).splitlines()
    assert "layout: tree of quantiles by a, text" in rewrite_lines(plan)
    assert run(table, layout="kd", by=["a", "text"], approved_digest=plan["digest"]).status == "committed"


def skipped_by_one_value(table: Path, column: str, rows: pa.Table) -> float:
    """The part of the files whose bounds do not hold a value, on average over all rows."""
    found = bounds(table, column)
    values = np.array(rows.column(column).to_pylist())
    return float(1 - np.mean([(low <= values) & (values <= high) for low, high in found]))


@pytest.mark.parametrize("kind", KINDS)
def test_the_forecast_agrees_with_what_is_skipped_afterwards(kind: str, tmp_path: Path) -> None:
    table = write(tmp_path / "t")
    rows = Table(str(table)).snapshot().to_arrow()
    size = Table(str(table)).snapshot().size_bytes // 32
    options: dict[str, Any] = {"layout": kind, "by": ["a", "b", "text"], "target_size_bytes": size}
    plan = run(table, dry_run=True, **options).plan
    assert plan is not None
    before = {one["column"]: skipped_by_one_value(table, one["column"], rows) for one in plan["skipping"]}
    report = run(table, **options)
    assert report.skipping is not None
    assert "a query for one text skips" in render_report(report.to_dict())
    for one, measured in zip(plan["skipping"], report.skipping, strict=True):
        after = skipped_by_one_value(table, one["column"], rows)
        assert measured["column"] == one["column"]
        assert measured["before"] == pytest.approx(before[one["column"]], abs=0.02)
        assert measured["after"] == pytest.approx(after, abs=0.05)
        assert measured["rangeAfter"] < measured["after"]
        assert one["now"] == pytest.approx(before[one["column"]], abs=0.02)
        assert one["after"] == pytest.approx(after, abs=0.06)
        assert one["rangeAfter"] < one["after"]


def test_columns_without_bounds_have_no_forecast(tmp_path: Path) -> None:
    rows = pa.table(
        {"id": range(10), "flag": [n % 2 == 0 for n in range(10)], "gone": [None] * 10},
        pa.schema([("id", pa.int64()), ("flag", pa.bool_()), ("gone", pa.int64())]),
    )
    write_deltalake(str(tmp_path), rows)
    plan = run(tmp_path, layout="kd", by=["id", "flag", "gone"], dry_run=True).plan
    assert plan is not None
    assert [sorted(one) for one in plan["skipping"]] == [
        ["after", "column", "now", "rangeAfter", "rangeNow"],
        ["column"],
        ["column"],
    ]
    assert "skipping" not in (run(tmp_path, dry_run=True).plan or {})


def test_a_disk_without_room_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = write(tmp_path / "t", files=2)
    monkeypatch.setenv("SPARK_LOCAL_DIRS", str(tmp_path / "none"))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    with pytest.raises(TaskFailed, match="gone") as caught:
        run(table, engine=SPILLING, zorder_by=["a"])
    assert caught.value.report.type == "NoTemporarySpace"
    assert len(keys(table)) == 2
    assert len(list(table.glob("*.parquet"))) == 2


def test_files_name_their_layout(tmp_path: Path) -> None:
    table = write(tmp_path / "t", files=1)
    run(table, layout="hilbert", by=["text", "`a`"])
    (file,) = Table(str(table)).snapshot().files(["tags"]).to_pylist()
    assert dict(file["tags"])[LAYOUT_TAG] == '["hilbert",["text"],["a"]]'
    commit = next(iter(Table(str(table)).history(1)))
    assert commit["operationParameters"]["layout"] == "hilbert"
