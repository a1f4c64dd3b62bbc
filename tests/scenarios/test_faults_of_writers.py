"""Faults of well-known writers that other readers forgive, in data files and checkpoints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.runs.maintenance_runs import enable_deletion_vectors, keys, mark_deleted, run
from tests.support.tables.hand_made_tables import column, data_files, write_log

from delta_log import Table
from delta_log.errors import DeltaLogError, InvalidRequest, UnsupportedFeature
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.health.reading import read_health
from parquet_parts.footer import Footer, footer_length
from parquet_parts.schema_elements import UNKNOWN_TYPE
from parquet_parts.thrift import I32, LIST, STRUCT

_END_BYTES = 8


def mark_entries_of_maps(path: Path) -> None:
    """Describe the entries of maps as parquet-java 1.11.0 does: MAP_KEY_VALUE, and the logical type UNKNOWN beside it."""
    content = path.read_bytes()
    start = len(content) - footer_length(content[-_END_BYTES:]) - _END_BYTES
    footer = Footer.from_end(content)
    elements, marked = footer.schema, 0
    for element in elements:
        if element.binary(4) in (b"key_value", b"entries"):
            element.put_number(6, 2, I32)
            element[10] = (STRUCT, UNKNOWN_TYPE)
            marked += 1
    assert marked
    fields = type(footer.fields)(footer.fields)
    fields[2] = (LIST, elements)
    path.write_bytes(content[:start] + Footer(fields).to_end())
    with pytest.raises((OSError, pa.ArrowException)):
        pq.read_metadata(path).schema.to_arrow_schema()


def resize(table: Path, path: Path) -> None:
    """Let the log say how long a file is now."""
    for commit in (table / "_delta_log").glob("*.json"):
        text = commit.read_text()
        if path.name in text:
            actions: list[dict[str, Any]] = [json.loads(line) for line in text.splitlines()]
            for action in actions:
                if action.get("add", {}).get("path") == path.name:
                    action["add"]["size"] = path.stat().st_size
            commit.write_text("".join(json.dumps(action) + "\n" for action in actions))


@pytest.mark.parametrize("rewrite", ["auto", "copy"])
def test_maps_of_parquet_java_1_11_0_are_read_and_rewritten(tmp_path: Path, rewrite: str) -> None:
    kind = pa.map_(pa.string(), pa.int64())
    for n in range(3):
        rows = pa.table({"id": [n], "map": pa.array([[("a", n), ("b", None)]], kind)})
        deltalake.write_deltalake(str(tmp_path), rows, mode="append")
    before = Table(str(tmp_path)).snapshot().to_arrow().sort_by("id").to_pylist()
    for key in keys(tmp_path):
        mark_entries_of_maps(tmp_path / key)
        resize(tmp_path, tmp_path / key)
    by_duckdb = duckdb.connect().execute(
        f"SELECT count(*) FROM read_parquet('{tmp_path}/*.parquet') WHERE map['a'] >= 0"
    )
    assert by_duckdb.fetchall() == [(3,)]
    assert Table(str(tmp_path)).snapshot().to_arrow().sort_by("id").to_pylist() == before
    assert run(tmp_path, verify="full", rewrite=rewrite).status == "committed"
    assert Table(str(tmp_path)).snapshot().to_arrow().sort_by("id").to_pylist() == before
    assert deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().sort_by("id").to_pylist() == before


def test_checkpoints_of_parquet_java_1_11_0_are_read(tmp_path: Path) -> None:
    for n in range(3):
        rows = pa.table({"id": [n], "day": [f"day {n}"]})
        deltalake.write_deltalake(str(tmp_path), rows, mode="append", partition_by=["day"])
    deltalake.DeltaTable(str(tmp_path)).create_checkpoint()
    (checkpoint,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    mark_entries_of_maps(checkpoint)
    for commit in (tmp_path / "_delta_log").glob("*.json"):
        if re.fullmatch(r"0+\d\.json", commit.name):
            commit.unlink()
    found = Table(str(tmp_path)).snapshot().to_arrow()
    assert sorted(found["day"].to_pylist()) == ["day 0", "day 1", "day 2"]


def test_a_percent_sign_that_begins_no_escape_stands_for_itself(tmp_path: Path) -> None:
    rows = [pa.table({"id": [n]}) for n in range(2)]
    adds = data_files(tmp_path, rows, ["100%.parquet", "a%zb.parquet"])
    write_log(tmp_path, [column("id", "long")], adds)
    assert sorted(Table(str(tmp_path)).snapshot().to_arrow()["id"].to_pylist()) == [0, 1]
    assert run(tmp_path).status == "committed"
    assert sorted(deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table()["id"].to_pylist()) == [0, 1]


_VECTOR_OF_ML = {
    "type": "udt",
    "class": "org.apache.spark.ml.linalg.VectorUDT",
    "pyClass": "pyspark.ml.linalg.VectorUDT",
    "sqlType": {
        "type": "struct",
        "fields": [
            column("type", "byte"),
            column("values", {"type": "array", "elementType": "double", "containsNull": False}),
        ],
    },
}


@pytest.mark.parametrize("operation", ["optimize", "purge"])
def test_user_defined_types_are_stored_as_their_sql_type(tmp_path: Path, operation: str) -> None:
    kind = pa.struct({"type": pa.int8(), "values": pa.list_(pa.float64())})
    rows = [
        pa.table({"id": [n, n + 1], "vector": pa.array([{"type": 1, "values": [n / 2]}, None], kind)})
        for n in (0, 2)
    ]
    adds = data_files(tmp_path, rows, ["a.parquet", "b.parquet"])
    write_log(tmp_path, [column("id", "long"), column("vector", _VECTOR_OF_ML)], adds)
    if operation == "purge":
        enable_deletion_vectors(tmp_path)
        mark_deleted(tmp_path, {"a.parquet": [1]})
    schema = Table(str(tmp_path)).snapshot().metadata.schemaString
    before = Table(str(tmp_path)).snapshot().to_arrow().sort_by("id").to_pylist()
    assert run(tmp_path, operation, verify="full").status == "committed"
    snapshot = Table(str(tmp_path)).snapshot()
    assert snapshot.to_arrow().sort_by("id").to_pylist() == before
    assert snapshot.metadata.schemaString == schema
    assert read_health(Table(str(tmp_path)), HealthOptions(), 0).refusals == {}


@pytest.mark.parametrize(
    ("schema", "partition_columns"),
    [([], []), ([column("a", "integer")], ["a"]), ([column("a", "void")], [])],
    ids=["no columns", "partition columns alone", "a void alone"],
)
@pytest.mark.parametrize("operation", ["optimize", "purge"])
def test_an_empty_table_without_data_columns_has_nothing_to_rewrite(
    tmp_path: Path, schema: list[dict[str, Any]], partition_columns: list[str], operation: str
) -> None:
    write_log(tmp_path, schema, [], partitionColumns=partition_columns)
    assert run(tmp_path, operation, dry_run=True).status == "planned"
    assert run(tmp_path, operation).status == "nothing_to_do"
    assert read_health(Table(str(tmp_path)), HealthOptions(), 0).refusals == {}


def _nested(depth: int, kind: str) -> tuple[Any, pa.DataType, Any]:
    """Return a column's type in the log and in Arrow, and a value of it."""
    in_log: Any
    value: Any
    in_log, in_arrow, value = "long", pa.int64(), 1
    for _ in range(depth):
        if kind == "array":
            in_log = {"type": "array", "elementType": in_log, "containsNull": True}
            in_arrow, value = pa.list_(in_arrow), [value]
        else:
            in_log = {"type": "struct", "fields": [column("m", in_log)]}
            in_arrow, value = pa.struct({"m": in_arrow}), {"m": value}
    return in_log, in_arrow, value


@pytest.mark.parametrize(("kind", "deepest"), [("array", 49), ("struct", 98)])
def test_columns_are_rewritten_as_deep_as_arrow_writes_them_and_deeper_ones_refused(
    tmp_path: Path, kind: str, deepest: int
) -> None:
    in_log, in_arrow, value = _nested(deepest, kind)
    rows = [pa.table({"c": pa.array([value], in_arrow)})] * 2
    table = write_log(
        tmp_path / "t", [column("c", in_log)], data_files(tmp_path / "t", rows, ["a.parquet", "b.parquet"])
    )
    assert run(table, verify="full").status == "committed"
    assert Table(str(table)).snapshot().to_arrow()["c"].to_pylist() == [value, value]

    in_log, _, _ = _nested(deepest + 1, kind)
    deeper = write_log(tmp_path / "deeper", [column("c", in_log)], [{"path": "x.parquet", "size": 1}] * 1)
    for dry_run in (True, False):
        with pytest.raises(UnsupportedFeature, match="'c', which is nested more than 99 levels deep"):
            run(deeper, dry_run=dry_run)


def test_an_empty_descriptor_of_a_vector_in_a_checkpoint_is_none(tmp_path: Path) -> None:
    for n in range(2):
        deltalake.write_deltalake(str(tmp_path), pa.table({"id": [n]}), mode="append")
    deltalake.DeltaTable(str(tmp_path)).create_checkpoint()
    (path,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    found = pq.read_table(path)
    adds = found["add"].to_pylist()
    for add in adds:
        if add is not None:
            add["deletionVector"] = {
                "storageType": "",
                "pathOrInlineDv": "",
                "offset": None,
                "sizeInBytes": 0,
                "cardinality": 0,
            }
    vector = pa.struct(
        {
            "storageType": pa.string(),
            "pathOrInlineDv": pa.string(),
            "offset": pa.int32(),
            "sizeInBytes": pa.int32(),
            "cardinality": pa.int64(),
        }
    )
    old = found.schema.field("add").type
    kind = pa.struct(
        [*(field for field in old if field.name != "deletionVector"), pa.field("deletionVector", vector)]
    )
    at = found.schema.get_field_index("add")
    pq.write_table(found.set_column(at, "add", pa.array(adds, kind)), path)
    snapshot = Table(str(tmp_path)).snapshot()
    assert snapshot.num_deletion_vectors == 0
    assert sorted(snapshot.to_arrow()["id"].to_pylist()) == [0, 1]


def test_a_checkpoint_with_a_value_of_another_type_names_the_column(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), pa.table({"id": [1]}))
    deltalake.DeltaTable(str(tmp_path)).create_checkpoint()
    (path,) = (tmp_path / "_delta_log").glob("*.checkpoint.parquet")
    (tmp_path / "_delta_log" / f"{0:020}.json").unlink()
    found = pq.read_table(path)
    old = found.schema.field("add").type
    kind = pa.struct([field if field.name != "size" else pa.field("size", pa.string()) for field in old])
    adds = [add and {**add, "size": "much"} for add in found["add"].to_pylist()]
    pq.write_table(found.set_column(found.schema.get_field_index("add"), "add", pa.array(adds, kind)), path)
    with pytest.raises(DeltaLogError, match=r"add\.size \(string\)"):
        Table(str(tmp_path)).snapshot().files()


def test_a_column_whose_name_has_a_dot_is_written_in_backticks(tmp_path: Path) -> None:
    for n in range(2):
        deltalake.write_deltalake(str(tmp_path), pa.table({"a.b": [n, 5], "c": [1, 2]}), mode="append")
    with pytest.raises(InvalidRequest, match=r"Write `a\.b` for the name with the dot"):
        run(tmp_path, zorder_by=["a.b"])
    assert run(tmp_path, zorder_by=["`a.b`"]).status == "committed"
