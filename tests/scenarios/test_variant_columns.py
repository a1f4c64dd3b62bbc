"""Columns of variants, shredded in several ways and not at all, through every operation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql.variant_utils import VariantUtils
from tests.support.runs.maintenance_runs import keys, mark_deleted, run
from tests.support.tables.shredded_variants import column_of
from tests.support.tables.written_log import add, write_log

from delta_log import Table
from delta_maintenance.cli.main import main

SHREDDINGS: list[Any] = [None, {"a": pa.int64()}, {"a": pa.string(), "b": [pa.int64()]}, pa.int64()]
VALUES = [{"a": 1, "b": [1, "x"]}, 5, None, {"a": "text", "c": {"a": [True]}}, "plain"]
FEATURES = ("variantType", "variantShredding")


@pytest.fixture(params=["shredded", "one schema", "unshredded"])
def table(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shreddings = {"shredded": SHREDDINGS, "one schema": SHREDDINGS[1:2] * 4, "unshredded": [None] * 4}
    adds = []
    for number, shredding in enumerate(shreddings[request.param]):
        column = column_of([*VALUES, "absent"], shredding, absent=[len(VALUES)])
        if shredding is None:
            column = pa.StructArray.from_arrays(
                [column.field("value"), column.field("metadata")],
                ["value", "metadata"],
                mask=column.is_null(),
            )
        ids = pa.array(range(number * 10, number * 10 + len(VALUES) + 1))
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"id": ids, "v": column}), path)
        adds.append(add(path.name, path.stat().st_size, stats=json.dumps({"numRecords": len(ids)})))
    properties = {"delta.enableVariantShredding": "true", "delta.enableDeletionVectors": "true"}
    write_log(
        tmp_path, adds, columns={"id": "long", "v": "variant"}, features=FEATURES, properties=properties
    )
    return tmp_path


def rows(table: Path) -> dict[int, Any]:
    """The values of each row in a tuple; a row without a variant has an empty one."""
    found = Table(str(table)).snapshot().to_arrow().to_pylist()
    return {
        row["id"]: ()
        if row["v"] is None
        else (VariantUtils.to_python(row["v"]["value"], row["v"]["metadata"]),)
        for row in found
    }


EXPECTED = {
    number * 10 + row: value
    for number in range(4)
    for row, value in enumerate([*((value,) for value in VALUES), ()])
}


def test_rows_are_read(table: Path) -> None:
    assert rows(table) == EXPECTED


@pytest.mark.parametrize(
    "options", [{}, {"rewrite": "copy"}, {"zorder_by": ("id",)}, {"target_size_bytes": 1000}]
)
def test_optimize_keeps_values_and_writes_them_unshredded(table: Path, options: dict[str, Any]) -> None:
    assert run(table, verify="full", full=True, **options).status == "committed"
    assert rows(table) == EXPECTED
    snapshot = Table(str(table)).snapshot()
    for file in snapshot.files(["key", "stats"]).to_pylist():
        schema = pq.ParquetFile(table / file["key"]).schema_arrow
        assert [member.name for member in schema.field("v").type] == ["value", "metadata"]
        assert not any(member.nullable for member in schema.field("v").type)
        stats = json.loads(file["stats"])
        assert stats["minValues"].keys() == {"id"}
    nulls = [json.loads(text)["nullCount"]["v"] for text in snapshot.files(["stats"])["stats"].to_pylist()]
    assert sum(nulls) == 4


def test_every_other_operation_keeps_the_rows(table: Path) -> None:
    mark_deleted(table, {"1.parquet": [0]})
    left = {key: value for key, value in EXPECTED.items() if key != 10}
    assert rows(table) == left
    for command in ["health", "inspect", "history", "checkpoint", "vacuum", "cleanup-log"]:
        assert main([command, str(table), "--json"]) == 0, command
        assert rows(table) == left
    assert run(table, "purge", verify="full").status == "committed"
    assert rows(table) == left
    assert "1.parquet" not in keys(table)
    assert main(["checkpoint", str(table), "--json"]) == 0
    for path in (table / "_delta_log").glob("*.json"):
        path.unlink()
    assert rows(table) == left


def test_a_struct_of_a_user_with_the_members_of_a_variant_is_a_struct(tmp_path: Path) -> None:
    kind = pa.struct([pa.field(name, pa.binary(), False) for name in ("value", "metadata")])
    for number in range(2):
        rows = pa.array([{"value": b"v", "metadata": b"m"}, None], kind)
        pq.write_table(pa.table({"id": [number, number + 2], "s": rows}), tmp_path / f"{number}.parquet")
    names = [f"{number}.parquet" for number in range(2)]
    members: list[dict[str, Any]] = [
        {"name": name, "type": "binary", "nullable": False, "metadata": {}} for name in ("value", "metadata")
    ]
    columns: dict[str, Any] = {"id": "long", "s": {"type": "struct", "fields": members}}
    write_log(tmp_path, [add(name, (tmp_path / name).stat().st_size) for name in names], columns=columns)
    assert run(tmp_path, verify="full").status == "committed"
    found = Table(str(tmp_path)).snapshot().to_arrow().sort_by("id")["s"].to_pylist()
    assert found == [{"value": b"v", "metadata": b"m"}] * 2 + [None] * 2
