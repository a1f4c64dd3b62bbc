"""OPTIMIZE and REORG PURGE on generated tables: what must be the same afterwards is the same."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import msgspec
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.checks.added_files import check_added_files
from tests.support.repetition import examples
from tests.support.runs.maintenance_runs import WatchedEngine, run
from tests.support.tables.rewritable_tables import (
    COLUMNS,
    NARROW,
    File,
    GeneratedTable,
    Narrow,
    as_multiset,
    generated_tables,
)

from delta_log import Table
from delta_log.log.actions import decode_actions
from delta_log.log.file_names import commit_key
from delta_log.runtime import Runtime
from delta_log.table_config.features import Operation
from delta_log.table_config.schema import arrow_schema, parse_schema
from delta_log.transaction.commit_body import Change
from delta_log.transaction.transaction import Transaction
from delta_maintenance.errors import TaskFailed

WAYS: dict[str, tuple[str, dict[str, Any]]] = {
    "optimize": ("optimize", {}),
    "optimize in batches": ("optimize", {"batch_size_bytes": 1}),
    "full": ("optimize", {"full": True, "target_size_bytes": 2000, "min_file_size_bytes": 0}),
    "purge": ("purge", {"target_size_bytes": 2000}),
    "purge, verified": ("purge", {"verify": "full", "batch_size_bytes": 1}),
    "copied": ("optimize", {"rewrite": "copy"}),
    "copied, verified": ("optimize", {"rewrite": "copy", "verify": "full", "full": True}),
    "decoded": ("optimize", {"rewrite": "encode"}),
}


@pytest.mark.parametrize("way", WAYS)
@examples(15)
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
        # Default values, type changes, column mapping: all that a table is stays what it was.
        assert (after.metadata, after.protocol) == (before.metadata, before.protocol)
        for version in range(1, after.version + 1):
            check_commit(path, version, table)
            check_added_files(path, version, copied=options.get("rewrite") == "copy")
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


@examples(30)
@given(data=st.data(), last=st.sampled_from("az\x7fé\uffff\U0010ffff"))
def test_bounds_of_texts_hold_all_of_them_and_are_as_narrow_as_they_can_be(
    data: st.DataObject, last: str
) -> None:
    """
    :param last: no character is above it, so that the greatest text is a long one of these.
    """
    ends = st.text(st.characters(codec="utf-8", max_codepoint=ord(last)), max_size=2)
    texts = st.builds(lambda count, end: last * count + end, st.integers(0, 70), ends)
    rows = [{"text": text} for text in data.draw(st.lists(texts, min_size=1, max_size=4))]
    file = File(("text",), rows, frozenset(), None, extra=False, has_stats=True, row_group=2)
    with TemporaryDirectory() as directory:
        GeneratedTable(("text",), "none", False, False, (file, file)).write(Path(directory) / "t")
        run(Path(directory) / "t", full=True)
        assert check_added_files(Path(directory) / "t", 1) == 1


@examples(15)
@given(table=generated_tables(), mode=st.sampled_from(["name", "id"]))
def test_columns_that_are_renamed_after_a_compaction_are_read_and_compacted_under_their_new_names(
    table: GeneratedTable, mode: str
) -> None:
    with TemporaryDirectory() as directory:
        path = Path(directory) / "t"
        replace(table, mapping=mode).write(path)
        run(path, full=True, target_size_bytes=2000, min_file_size_bytes=0)
        rename_all_columns(path)
        expected = as_multiset(renamed(table.live_rows()))
        assert as_multiset(Table(str(path)).snapshot().to_arrow().to_pylist()) == expected
        # The files have the names that they had, so that there is nothing to purge.
        run(path, "purge", run_id="purge")
        assert run(path, "purge", run_id="again").status == "nothing_to_do"
        run(path, run_id="more", full=True, target_size_bytes=100_000, verify="full")
        after = Table(str(path)).snapshot()
        assert as_multiset(after.to_arrow().to_pylist()) == expected
        for version in range(1, after.version + 1):
            check_added_files(path, version)


def rename_all_columns(path: Path) -> None:
    """As ``ALTER TABLE … RENAME COLUMN`` does it, for members of structs and partition columns as well."""
    table = Table(str(path))
    snapshot = table.snapshot()

    def rename(kind: Any) -> Any:
        if isinstance(kind, list):
            return [
                {**member, "name": f"new {member['name']}", "type": rename(member["type"])} for member in kind
            ]
        if not isinstance(kind, dict):
            return kind
        nested = ("fields", "elementType", "keyType", "valueType")
        return {name: rename(value) if name in nested else value for name, value in kind.items()}

    properties = dict(snapshot.properties)
    properties.pop("delta.dataSkippingStatsColumns", None)  # it has logical names, and is another's business
    metadata = msgspec.structs.replace(
        snapshot.metadata,
        schemaString=json.dumps(rename(json.loads(snapshot.metadata.schemaString))),
        partitionColumns=[f"new {name}" for name in snapshot.partition_columns],
        configuration=properties,
    )
    change = Change("RENAME COLUMN", metadata=metadata)
    Transaction(table.storage, snapshot, Operation.CHECKPOINT, Runtime()).commit(change)


def renamed(value: Any) -> Any:
    """Rows, and what is in them, under the new names."""
    if isinstance(value, dict):
        return {f"new {name}": renamed(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(renamed, value))
    return value


@pytest.mark.parametrize("mapping", ["none", "name"])
def test_columns_with_defaults_keep_them_and_no_row_is_given_one(tmp_path: Path, mapping: str) -> None:
    rows: list[dict[str, Any]] = [
        {"int": 1, "text": "a", "day": None},
        {"int": None, "text": None, "day": date(1999, 9, 9)},
    ]
    files = [
        File(columns, rows, frozenset(), None, extra=not columns, has_stats=True, row_group=1)
        for columns in (("int", "text", "day"), ("int",), ())
    ]
    table = GeneratedTable(("int", "text", "day"), mapping, False, False, tuple(files), defaults=True)
    table.write(tmp_path)
    report = run(tmp_path, full=True, verify="full")
    assert report.metrics["numAddedFiles"] == check_added_files(tmp_path, 1) == 1
    snapshot = Table(str(tmp_path)).snapshot()
    found = [field.metadata["CURRENT_DEFAULT"] for field in snapshot.schema]
    assert found == ["17", "'none'", "DATE'2024-02-29'"]
    assert as_multiset(snapshot.to_arrow().to_pylist()) == as_multiset(table.live_rows())
    assert snapshot.to_arrow()["int"].null_count == 4


@pytest.mark.parametrize(
    ("name", "narrow"),
    [pytest.param(name, was, id=f"{name} was {was.type}") for name in NARROW for was in NARROW[name]],
)
@examples(6)
@given(data=st.data())
def test_files_of_before_a_type_was_widened_become_files_of_the_wide_type(
    name: str, narrow: Narrow, data: st.DataObject
) -> None:
    def file(older: bool) -> File:
        values = narrow.values if older else COLUMNS[name][1]
        rows = [{name: value} for value in data.draw(st.lists(st.none() | values, min_size=1, max_size=6))]
        holds = frozenset({name} if older else ())
        return File((name,), rows, frozenset(), None, extra=False, has_stats=True, row_group=3, narrow=holds)

    table = GeneratedTable(
        (name,),
        data.draw(st.sampled_from(["none", "name", "id"])),
        False,
        False,
        (file(older=True), file(older=False), file(older=True)),
        narrow={name: narrow},
    )
    with TemporaryDirectory() as directory:
        table.write(Path(directory) / "t")
        stored = [pq.read_schema(path).types for path in sorted(Path(directory).glob("t/*.parquet"))]
        assert stored[0] == stored[2] != stored[1]
        before = Table(f"{directory}/t").snapshot()
        run(Path(directory) / "t", full=True, verify="full")
        after = Table(f"{directory}/t").snapshot()
        assert after.metadata == before.metadata
        assert "delta.typeChanges" in after.schema.field(name).metadata
        assert as_multiset(after.to_arrow().to_pylist()) == as_multiset(table.live_rows())
        assert check_added_files(Path(directory) / "t", 1) == 1


@examples(8)
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


@examples(12)
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
        assert (report.status == "committed") == (after.version == 1)
        if after.version:
            assert check_added_files(path, 1) == report.metrics["numAddedFiles"]


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
