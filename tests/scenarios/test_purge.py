from __future__ import annotations

import json
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.runs.maintenance_runs import drop_column, enable_deletion_vectors, keys, mark_deleted, run

from delta_log import Table
from delta_log.log.actions import decode_actions
from delta_log.log.file_names import commit_key
from delta_log.table_config.schema import parse_schema
from delta_maintenance.optimize.dropped_columns import has_dropped_columns

FILES = 4


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Four files of ten rows, two in each of two partitions."""
    for number in range(FILES):
        rows = pa.table(
            {
                "id": pa.array(range(10 * number, 10 * number + 10), pa.int64()),
                "note": [f"note {n}" for n in range(10)],
                "part": ["xy"[number % 2]] * 10,
            }
        )
        deltalake.write_deltalake(str(tmp_path), rows, mode="append", partition_by=["part"])
    enable_deletion_vectors(tmp_path)
    return tmp_path


def ids(table: Path) -> list[int]:
    return sorted(Table(str(table)).snapshot().to_arrow(["id"]).column("id").to_pylist())


def ids_by_delta_rs(table: Path) -> list[int]:
    reader = deltalake.QueryBuilder().register("t", deltalake.DeltaTable(str(table)))
    return sorted(pa.table(reader.execute("SELECT id FROM t").read_all())["id"].to_pylist())


def file_of(table: Path, id_: int) -> str:
    return next(
        key for key in keys(table) if id_ in pq.ParquetFile(table / key).read(["id"]).column("id").to_pylist()
    )


def test_files_with_deleted_rows_are_rewritten_and_others_left_alone(table: Path) -> None:
    marked, untouched = file_of(table, 0), {file_of(table, 10), file_of(table, 20), file_of(table, 30)}
    mark_deleted(table, {marked: [0, 3]})
    before = ids(table)
    report = run(table, "purge")
    assert (report.status, report.metrics["numRemovedFiles"], report.metrics["numAddedFiles"]) == (
        "committed",
        1,
        1,
    )
    assert report.metrics["numDeletionVectorsRemoved"] == 1
    assert untouched < set(keys(table))
    assert marked not in keys(table)
    assert Table(str(table)).snapshot().num_deletion_vectors == 0
    assert ids(table) == ids_by_delta_rs(table) == before
    assert len(before) == 38


def test_the_commit_is_a_reorg_as_spark_writes_it(table: Path) -> None:
    mark_deleted(table, {keys(table)[0]: [1]})
    report = run(table, "purge", where="part in ('x', 'y')")
    assert report.version is not None
    actions = decode_actions((table / commit_key(report.version)).read_bytes(), "commit")
    info = actions[0].commitInfo
    assert info is not None
    assert info["operation"] == "REORG"
    assert info["operationParameters"] == {
        "predicate": json.dumps(["part in ('x', 'y')"]),
        "applyPurge": "true",
    }
    assert info["operationMetrics"]["numDeletionVectorsRemoved"] == "1"
    assert {action.add.dataChange for action in actions if action.add is not None} == {False}
    assert {action.remove.dataChange for action in actions if action.remove is not None} == {False}


def test_a_second_run_commits_nothing(table: Path) -> None:
    mark_deleted(table, {key: [0] for key in keys(table)})
    drop_column(table, "note")
    first = run(table, "purge")
    again = run(table, "purge", run_id="again")
    assert (first.status, again.status) == ("committed", "nothing_to_do")
    assert Table(str(table)).snapshot().version == first.version


def test_a_dropped_column_leaves_the_files(table: Path) -> None:
    drop_column(table, "note")
    before = ids(table)
    report = run(table, "purge")
    assert report.metrics["numRemovedFiles"] == FILES
    assert {name for key in keys(table) for name in pq.read_schema(table / key).names} == {"id"}
    assert ids(table) == ids_by_delta_rs(table) == before


def test_files_written_after_the_drop_are_no_candidates(table: Path) -> None:
    drop_column(table, "note")
    run(table, "purge")
    rows = pa.table({"id": pa.array([99], pa.int64()), "part": ["x"]})
    deltalake.write_deltalake(str(table), rows, mode="append")
    assert run(table, "purge", run_id="again").status == "nothing_to_do"


def test_a_file_of_nothing_but_deleted_rows_goes_without_a_successor(table: Path) -> None:
    mark_deleted(table, {file_of(table, 0): range(10)})
    report = run(table, "purge")
    assert (report.metrics["numRemovedFiles"], report.metrics["numAddedFiles"]) == (1, 0)
    assert ids(table) == list(range(10, 40))
    assert run(table, "purge", run_id="again").status == "nothing_to_do"


def test_by_ratio_only_files_above_it_are_rewritten_and_no_footer_is_read(table: Path) -> None:
    drop_column(table, "note")
    many, few = file_of(table, 0), file_of(table, 10)
    mark_deleted(table, {many: range(5), few: [0]})
    report = run(table, "purge", max_deleted_rows_ratio=0.2)
    assert report.metrics["numRemovedFiles"] == 1
    assert few in keys(table)
    assert many not in keys(table)
    assert run(table, "purge", run_id="again", max_deleted_rows_ratio=0.2).status == "nothing_to_do"
    assert "note" in pq.read_schema(table / few).names


def test_a_predicate_keeps_other_partitions_as_they_are(table: Path) -> None:
    mark_deleted(table, {key: [0] for key in keys(table)})
    report = run(table, "purge", where="part = 'x'")
    assert report.metrics["numRemovedFiles"] == 2
    left = [key for key in keys(table) if key.startswith("part=y/")]
    assert len(left) == 2
    assert Table(str(table)).snapshot().num_deletion_vectors == 2


def test_a_dry_run_says_why_each_file_was_chosen(table: Path) -> None:
    mark_deleted(table, {file_of(table, 0): [0]})
    drop_column(table, "note")
    before = sorted(table.rglob("*"))
    plan = run(table, "purge", dry_run=True).plan
    assert plan is not None
    assert plan["numChosenFiles"] == {"deleted_rows": 1, "dropped_columns": 4}
    assert sorted(table.rglob("*")) == before


def test_columns_that_files_may_hold_beside_the_schema_do_not_count(table: Path) -> None:
    schema = parse_schema('{"type":"struct","fields":[{"name":"id","type":"long","metadata":{}}]}')
    tolerated = frozenset({"part", "_change_type", "_row-id"})
    there = pa.schema([("ID", pa.int64()), ("part", pa.string()), ("_change_type", pa.string())])
    assert not has_dropped_columns(there, schema, tolerated, by_id=False)
    assert has_dropped_columns(there.append(pa.field("old", pa.int8())), schema, tolerated, by_id=False)


@pytest.mark.parametrize(
    ("kind", "there", "dropped"),
    [
        ("struct", pa.struct([("a", pa.int64())]), False),
        ("struct", pa.struct([("a", pa.int64()), ("b", pa.int64())]), True),
        ("array", pa.list_(pa.struct([("a", pa.int64()), ("b", pa.int64())])), True),
        ("map", pa.map_(pa.string(), pa.struct([("a", pa.int64()), ("b", pa.int64())])), True),
        ("map", pa.map_(pa.string(), pa.struct([("a", pa.int64())])), False),
    ],
)
def test_a_dropped_member_is_found_at_every_depth(kind: str, there: pa.DataType, dropped: bool) -> None:
    struct = {"type": "struct", "fields": [{"name": "a", "type": "long", "nullable": True, "metadata": {}}]}
    types = {
        "struct": struct,
        "array": {"type": "array", "elementType": struct, "containsNull": True},
        "map": {"type": "map", "keyType": "string", "valueType": struct, "valueContainsNull": True},
    }
    field = {"name": "c", "type": types[kind], "nullable": True, "metadata": {}}
    schema = parse_schema(json.dumps({"type": "struct", "fields": [field]}))
    found = has_dropped_columns(pa.schema([("c", there)]), schema, frozenset(), by_id=False)
    assert found is dropped


def test_columns_are_told_by_their_ids_where_the_table_maps_by_id() -> None:
    metadata = {"delta.columnMapping.id": 1, "delta.columnMapping.physicalName": "col-1"}
    field = {"name": "new name", "type": "long", "nullable": True, "metadata": metadata}
    schema = parse_schema(json.dumps({"type": "struct", "fields": [field]}), mapped=True)
    known = pa.field("whatever", pa.int64(), metadata={b"PARQUET:field_id": b"1"})
    gone = pa.field("col-2", pa.int64(), metadata={b"PARQUET:field_id": b"2"})
    assert not has_dropped_columns(pa.schema([known]), schema, frozenset(), by_id=True)
    assert has_dropped_columns(pa.schema([known, gone]), schema, frozenset(), by_id=True)
    # Written before there were ids.
    assert not has_dropped_columns(pa.schema([("col-1", pa.int64())]), schema, frozenset(), by_id=True)


def test_a_broken_file_is_named_by_the_purge_that_has_to_look_into_it(table: Path) -> None:
    broken = keys(table)[0]
    (table / broken).write_bytes(b"no parquet")
    with pytest.raises(Exception, match=broken.partition("/")[2]):
        run(table, "purge")
