"""Columns of intervals, in every spelling: through OPTIMIZE, health, inspect and history, without bounds and without an annotation."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.support.runs.maintenance_runs import run
from tests.support.tables.written_log import add, write_log

from delta_log import Table
from delta_log.errors import InvalidRequest
from delta_maintenance.cli.main import main

COLUMNS = {"id": "long", "months": "interval year", "span": "interval day to second"}
#: By file: the partition as its writer spells it. The first two are one partition.
PARTITIONS = ("INTERVAL '1-6' YEAR TO MONTH", "INTERVAL '18' MONTH", "INTERVAL '-0-1' YEAR TO MONTH", None)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    adds = []
    for number, spelling in enumerate(PARTITIONS * 2):
        values = {
            "id": pa.array([number, number + 100], pa.int64()),
            "months": pa.array([number - 3, None], pa.int32()),
            "span": pa.array([-number * 86_400_000_001, number], pa.int64()),
        }
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table(values), path)
        adds.append(add(path.name, path.stat().st_size, {"term": spelling}))
    write_log(tmp_path, adds, partition_by={"term": "interval year to month"}, columns=COLUMNS)
    return tmp_path


def rows(table: Path) -> list[dict[str, object]]:
    found: list[dict[str, object]] = Table(str(table)).snapshot().to_arrow().sort_by("id").to_pylist()
    return found


def test_values_are_months_and_microseconds(table: Path) -> None:
    found = rows(table)
    assert found[0] == {"id": 0, "months": -3, "span": 0, "term": 18}
    assert [row["term"] for row in found[:4]] == [18, 18, -1, None]


def test_optimize_keeps_rows_and_writes_neither_bounds_nor_an_annotation(table: Path) -> None:
    before = rows(table)
    assert run(table).status == "committed"
    assert rows(table) == before
    snapshot = Table(str(table)).snapshot()
    assert snapshot.num_files == 3
    for text in snapshot.files(["stats"])["stats"].to_pylist():
        stats = json.loads(text)
        assert stats["minValues"].keys() == stats["maxValues"].keys() == {"id"}
        assert stats["nullCount"]["months"] * 2 == stats["numRecords"]
    for key in snapshot.files(["key"])["key"].to_pylist():
        schema = pq.ParquetFile(table / key).schema
        described = [(schema.column(n).physical_type, schema.column(n).logical_type.type) for n in range(3)]
        assert described == [("INT64", "NONE"), ("INT32", "NONE"), ("INT64", "NONE")]


@pytest.mark.parametrize("command", [["health"], ["inspect"], ["history"], ["checkpoint"]])
def test_commands_do_not_refuse_the_table(table: Path, command: list[str]) -> None:
    assert main([*command, str(table), "--json"]) == 0


def test_a_checkpoint_gives_back_the_table(table: Path) -> None:
    before = rows(table)
    assert main(["checkpoint", str(table), "--json"]) == 0
    (table / "_delta_log" / f"{0:020}.json").rename(table / "kept.json")
    assert rows(table) == before


def test_a_layout_by_an_interval_is_refused(table: Path) -> None:
    with pytest.raises(InvalidRequest, match="no bounds of intervals"):
        run(table, zorder_by=("span",))
    assert Table(str(table)).snapshot().version == 0


def test_a_predicate_on_an_interval_partition_compares_values(table: Path) -> None:
    snapshot = Table(str(table)).snapshot()
    assert snapshot.files(where=pc.field("term") == 18).num_rows == 4
