"""Data files of tables with ``materializePartitionColumns`` hold the partition columns, whatever the old files hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.runs.maintenance_runs import mark_deleted, run
from tests.support.tables.written_log import add, write_log

from delta_log import Table

FEATURE: dict[str, Any] = {"writer_features": ["materializePartitionColumns"]}
PROPERTY: dict[str, Any] = {"properties": {"delta.writePartitionColumnsToParquet": "TRUE"}}


def make(table: Path, **how: Any) -> Path:
    """Four files in two partitions. Half of them hold a partition column, of which one has a wrong value."""
    table.mkdir(exist_ok=True)
    adds = []
    for number in range(4):
        columns = {"value": pa.array([number * 10, number * 10 + 1])}
        if number in (1, 2):
            columns["place"] = pa.array(["wrong", None])
        partition = {"place": "a b" if number < 2 else None, "day": "2024-01-02"}
        path = table / f"{number}.parquet"
        pq.write_table(pa.table(columns), path)
        adds.append(add(path.name, path.stat().st_size, partition, stats='{"numRecords":2}'))
    write_log(table, adds, partition_by={"place": "string", "day": "date"}, **how)
    return table


def rows(table: Path) -> pa.Table:
    return Table(str(table)).snapshot().to_arrow().sort_by("value")


def stored(table: Path) -> list[dict[str, Any]]:
    """The rows of the live files as a reader of Parquet alone sees them."""
    keys = Table(str(table)).snapshot().files(["key"])["key"].to_pylist()
    files = [pq.ParquetFile(table / key).read() for key in keys]
    found: list[dict[str, Any]] = (
        pa.concat_tables(files, promote_options="default").sort_by("value").to_pylist()
    )
    return found


@pytest.mark.parametrize("how", [FEATURE, PROPERTY])
@pytest.mark.parametrize(
    "options", [{}, {"rewrite": "copy"}, {"zorder_by": ("value",)}, {"target_size_bytes": 500}]
)
def test_new_files_hold_the_values_of_the_log(
    how: dict[str, Any], options: dict[str, Any], tmp_path: Path
) -> None:
    table = make(tmp_path / "t", **how)
    before = rows(table)
    assert run(table, verify="full", full=True, **options).status == "committed"
    assert rows(table) == before
    assert stored(table) == before.select(["value", "place", "day"]).to_pylist()
    for text in Table(str(table)).snapshot().files(["stats"])["stats"].to_pylist():
        stats = json.loads(text)
        assert (
            stats["minValues"].keys() == stats["maxValues"].keys() == stats["nullCount"].keys() == {"value"}
        )


def test_a_purge_holds_them_too_and_ends(tmp_path: Path) -> None:
    table = make(tmp_path / "t", **FEATURE)
    mark_deleted(table, {"0.parquet": [1]})
    before = rows(table)
    assert run(table, "purge", verify="full").status == "committed"
    assert rows(table) == before
    assert {row["place"] for row in stored(table) if row["value"] == 0} == {"a b"}
    assert run(table, "purge", run_id="again").status == "nothing_to_do"


@pytest.mark.parametrize("value", ["false", "odd"])
def test_without_the_feature_only_true_asks_for_them(value: str, tmp_path: Path) -> None:
    table = make(tmp_path / "t", properties={"delta.writePartitionColumnsToParquet": value})
    before = rows(table)
    assert run(table).status == "committed"
    assert rows(table) == before
    assert stored(table) == before.select(["value"]).to_pylist()


def test_a_table_without_partitions_is_an_ordinary_one(tmp_path: Path) -> None:
    adds = []
    for number in range(2):
        pq.write_table(pa.table({"value": [number]}), tmp_path / f"{number}.parquet")
        adds.append(add(f"{number}.parquet", (tmp_path / f"{number}.parquet").stat().st_size))
    write_log(tmp_path, adds, **FEATURE)
    assert run(tmp_path, verify="full").status == "committed"
    assert stored(tmp_path) == [{"value": 0}, {"value": 1}]
