"""OPTIMIZE and REORG PURGE on generated tables: what must be the same afterwards is the same."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from datetime import date
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.maintenance_runs import WatchedEngine, run
from tests.rewritable_tables import File, GeneratedTable, as_multiset, generated_tables

from delta_log import Snapshot, Table
from delta_log.actions import decode_actions
from delta_log.log_path import commit_key
from delta_log.schema import PARQUET_FIELD_ID, arrow_schema, parse_schema
from delta_log.stats import parse_stats, stats_columns
from delta_maintenance.engine.engine import TaskFailed

WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "optimize": ("optimize", {}),
    "optimize in batches": ("optimize", {"batch_size_bytes": 1}),
    "full": ("optimize", {"full": True, "target_size_bytes": 2000, "min_file_size_bytes": 0}),
    "purge": ("purge", {"target_size_bytes": 2000}),
    "purge, verified": ("purge", {"verify": "full", "batch_size_bytes": 1}),
}


@pytest.mark.parametrize("way", WAYS)
@settings(max_examples=15)
@given(table=generated_tables())
def test_rows_types_ids_and_times_are_kept_and_a_second_run_does_nothing(
    way: str, table: GeneratedTable
) -> None:
    operation, options = WAYS[way]
    with TemporaryDirectory() as directory:
        path = Path(directory) / "t"
        table.write(path)
        before = Table(str(path)).snapshot()
        expected = as_multiset(table.live_rows())
        assert as_multiset(before.to_arrow().to_pylist()) == expected, "the test's own idea of the table"
        report = run(path, operation, **options)
        after = Table(str(path)).snapshot()
        assert as_multiset(after.to_arrow().to_pylist()) == expected
        assert after.to_arrow().schema == before.to_arrow().schema
        for version in range(1, after.version + 1):
            check_commit(path, version, table)
        check_files(path, after, table)
        if operation == "purge":
            assert after.num_deletion_vectors == 0
        again = run(path, operation, run_id="again", **options)
        assert again.status == "nothing_to_do", report
        assert Table(str(path)).snapshot().version == after.version


def check_commit(path: Path, version: int, table: GeneratedTable) -> None:
    actions = decode_actions((path / commit_key(version)).read_bytes(), "commit")
    files = [file for action in actions if (file := action.add or action.remove) is not None]
    assert files
    assert {file.dataChange for file in files} == {False}
    info = actions[0].commitInfo
    assert info is not None
    if table.in_commit_timestamps:
        # The first commit is ahead of every clock, and each has to be after the one before.
        assert info["inCommitTimestamp"] == 4_000_000_000_000 + version


def check_files(path: Path, snapshot: Snapshot, table: GeneratedTable) -> None:
    """Of the files that we wrote: names, ids and statistics."""
    stored = snapshot.schema.without(snapshot.partition_columns)
    columns = stats_columns(stored, properties=snapshot.properties)
    wanted = list(ids_of(arrow_schema(stored, physical=True)))
    for row in snapshot.files().to_pylist():
        if not row["tags"]:
            continue
        schema = pq.read_schema(path / row["key"])
        assert [name for name, _ in ids_of(schema)] == [name for name, _ in wanted]
        if table.mapping != "none":
            assert list(ids_of(schema)) == wanted
        content = pq.read_table(path / row["key"])
        stats = parse_stats(row["stats"], columns)
        assert json.loads(row["stats"])["numRecords"] == content.num_rows > 0
        for column in stored:
            values = content.column(column.physical_name).to_pylist()
            name = (column.physical_name,)
            if name in stats.null_count:
                assert stats.null_count[name] == values.count(None)
            check_bounds(values, stats.min_values.get(name), stats.max_values.get(name))


def check_bounds(values: list[Any], low: Any, high: Any) -> None:
    present = [comparable(value) for value in values if value is not None]
    if low is not None:
        assert all(comparable(low) <= value for value in present)
    if high is not None:
        assert all(value <= comparable(high) for value in present)
    if any(isinstance(value, float) and not math.isfinite(value) for value in values):
        assert (low, high) == (None, None)


def comparable(value: Any) -> Any:
    """Texts are ordered by their bytes; and -0.0 is below 0.0."""
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, float):
        return value, math.copysign(1, value)
    return value


def ids_of(schema: Any) -> Iterator[tuple[str, bytes | None]]:
    """Name and field id of every struct member, at every depth."""
    for member in schema:
        yield member.name, (member.metadata or {}).get(PARQUET_FIELD_ID)
        yield from ids_inside(member.type)


def ids_inside(kind: pa.DataType) -> Iterator[tuple[str, bytes | None]]:
    if pa.types.is_struct(kind):
        yield from ids_of(kind)
    elif pa.types.is_list(kind):
        yield from ids_inside(kind.value_type)
    elif pa.types.is_map(kind):
        yield from ids_inside(kind.key_type)
        yield from ids_inside(kind.item_type)


@settings(max_examples=15)
@given(table=generated_tables(), data=st.data())
def test_a_run_that_dies_after_any_bin_is_ended_by_the_next_try(
    table: GeneratedTable, data: st.DataObject
) -> None:
    class Killed(BaseException):
        pass

    at = data.draw(st.integers(1, 3))

    def die(number: int) -> None:
        if number == at:
            raise Killed

    with TemporaryDirectory() as directory:
        path = Path(directory) / "t"
        table.write(path)
        size = data.draw(st.sampled_from([None, 1, 5000]))
        options: dict[str, Any] = {"target_size_bytes": 2500, **({"batch_size_bytes": size} if size else {})}
        try:
            run(path, "purge", engine=WatchedEngine(die), **options)
        except Killed:
            run(path, "purge", **options)
        assert as_multiset(Table(str(path)).snapshot().to_arrow().to_pylist()) == as_multiset(
            table.live_rows()
        )
        assert Table(str(path)).snapshot().num_deletion_vectors == 0
        assert run(path, "purge", run_id="again", **options).status == "nothing_to_do"


def test_a_footer_tells_spark_the_current_schema_in_physical_names(tmp_path: Path) -> None:
    rows = [{"struct": {"a": "x", "b": [{"c": 1}]}, "day": date(1500, 1, 1)}]
    file = File(("struct",), rows, frozenset(), None, extra=True, has_stats=True, row_group=1)
    table = GeneratedTable(("struct", "day"), "name", False, False, (file, file))
    table.write(tmp_path)
    run(tmp_path)
    (key,) = Table(str(tmp_path)).snapshot().files(["key"]).column("key").to_pylist()
    footer = pq.ParquetFile(tmp_path / key).metadata.metadata
    schema = parse_schema(footer[b"org.apache.spark.sql.parquet.row.metadata"].decode())
    assert arrow_schema(schema) == arrow_schema(table.schema, physical=True)
    assert schema.names == ("col-0001", "col-0005")
    # Spark takes dates for what they are only where a version says that the calendar is the current one.
    assert footer[b"org.apache.spark.version"] >= b"3.1"
    assert not {name for name in footer if b"legacy" in name}


@settings(max_examples=25)
@given(table=generated_tables(), target=st.integers(200, 2000))
def test_files_that_are_split_keep_their_rows_in_their_order(table: GeneratedTable, target: int) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "t"
        table.write(path)
        expected = as_multiset(table.live_rows())
        sizes: dict[str, Any] = {
            "target_size_bytes": target,
            "max_file_size_bytes": target,
            "min_file_size_bytes": 0,
        }
        report = run(path, verify="full", max_deleted_rows_ratio=1.0, **sizes)
        after = Table(str(path)).snapshot()
        assert as_multiset(after.to_arrow().to_pylist()) == expected
        check_files(path, after, table)
        for add in [a.add for a in decode_actions((path / commit_key(after.version)).read_bytes(), "commit")]:
            assert (
                report.status == "nothing_to_do" or add is None or json.loads(add.stats or "")["numRecords"]
            )


def test_a_large_file_becomes_files_of_about_the_target(tmp_path: Path) -> None:
    rows = [{"long": number * number * 7_919} for number in range(50_000)]
    file = File(
        ("long",), rows, frozenset(range(0, 50_000, 50)), None, extra=False, has_stats=True, row_group=10_000
    )
    GeneratedTable(("long",), "none", False, False, (file,)).write(tmp_path)
    size = Table(str(tmp_path)).snapshot().size_bytes
    sizes: dict[str, Any] = {"target_size_bytes": size // 3, "max_file_size_bytes": size // 2}
    report = run(tmp_path, verify="full", **sizes)
    snapshot = Table(str(tmp_path)).snapshot()
    assert (report.metrics["numAddedFiles"], report.metrics["numRemovedFiles"]) == (3, 1)
    found = [json.loads(stats) for stats in snapshot.files(["stats"]).column("stats").to_pylist()]
    assert sorted(stats["numRecords"] for stats in found) == [16_332, 16_334, 16_334]
    assert snapshot.to_arrow().num_rows == 49_000
    bounds = sorted((stats["minValues"]["long"], stats["maxValues"]["long"]) for stats in found)
    assert all(low[1] < high[0] for low, high in pairwise(bounds))
    assert run(tmp_path, run_id="again", **sizes).status == "nothing_to_do"


def test_a_split_that_fails_half_way_leaves_no_file_behind(tmp_path: Path) -> None:
    rows = [{"long": number} for number in range(5_000)]
    file = File(("long",), rows, frozenset(), None, extra=False, has_stats=True, row_group=1_000)
    GeneratedTable(("long",), "none", False, False, (file,)).write(tmp_path)
    (path,) = tmp_path.glob("*.parquet")
    # The last row group's pages are garbage; what comes before them can be read and is written.
    start = pq.ParquetFile(path).metadata.row_group(4).column(0).data_page_offset
    content = bytearray(path.read_bytes())
    content[start : start + 40] = b"\xff" * 40
    path.write_bytes(bytes(content))
    with pytest.raises(TaskFailed, match="cannot be read"):
        run(tmp_path, target_size_bytes=len(content) // 5, max_file_size_bytes=len(content) // 2)
    assert list(tmp_path.glob("*.parquet")) == [path]
