"""Columns and partitions of nanosecond timestamps (``timestampNanos``) through every operation."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.support.runs.maintenance_runs import mark_deleted, run
from tests.support.tables.written_log import add, write_log

from delta_log import Table
from delta_log.errors import InvalidRequest
from delta_log.table_config.partition_values import parse, serialise
from delta_log.table_config.schema import PrimitiveType
from delta_maintenance.cli.main import main

COLUMNS = {"id": "long", "at": "timestamp_nanos", "local": "timestamp_nanos_ntz"}
DAYS = ("1969-12-31T23:59:59.123456789Z", "2024-01-01T00:00:00.000000001Z", None)
FIRST = 1_700_000_000_123_456_789


@pytest.fixture
def table(tmp_path: Path) -> Path:
    adds = []
    for number, day in enumerate(DAYS * 2):
        moments = pa.array([FIRST + number, None, -(1 << 62) + number], pa.int64())
        values = {
            "id": pa.array(range(number * 10, number * 10 + 3)),
            "at": moments.cast(pa.timestamp("ns", "UTC")),
            "local": moments.cast(pa.timestamp("ns")),
        }
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table(values), path)
        adds.append(add(path.name, path.stat().st_size, {"day": day}, stats='{"numRecords":3}'))
    properties = {"delta.enableDeletionVectors": "true"}
    write_log(
        tmp_path, adds, partition_by={"day": "timestamp_nanos"}, columns=COLUMNS, features=["timestampNanos"],
        properties=properties,
    )  # fmt: skip
    return tmp_path


def rows(table: Path) -> pa.Table:
    """Rows with their timestamps as nanoseconds since 1970."""
    found = Table(str(table)).snapshot().to_arrow().sort_by("id")
    fields = [("day", pa.int64()), ("id", pa.int64()), ("at", pa.int64()), ("local", pa.int64())]
    return found.select([name for name, _ in fields]).cast(pa.schema(fields))


def test_values_keep_every_digit(table: Path) -> None:
    found = rows(table).to_pylist()
    assert found[0] == {"day": -876_543_211, "id": 0, "at": FIRST, "local": FIRST}
    assert found[5] == {
        "day": 1_704_067_200_000_000_001,
        "id": 12,
        "at": -(1 << 62) + 1,
        "local": -(1 << 62) + 1,
    }


@pytest.mark.parametrize("options", [{}, {"rewrite": "copy"}, {"zorder_by": ("at", "local")}])
def test_optimize_keeps_rows_units_and_zones(table: Path, options: dict[str, Any]) -> None:
    before = rows(table)
    assert run(table, verify="full", full=True, **options).status == "committed"
    assert rows(table) == before
    snapshot = Table(str(table)).snapshot()
    assert snapshot.num_files == len(DAYS)
    for file in snapshot.files(["key", "stats"]).to_pylist():
        schema = pq.ParquetFile(table / file["key"]).schema_arrow
        assert schema.field("at").type == pa.timestamp("ns", "UTC")
        assert schema.field("local").type == pa.timestamp("ns")
        bounds = json.loads(file["stats"])
        # Bounds are in milliseconds, rounded outwards: a reader of any precision takes them for bounds.
        assert bounds["maxValues"]["at"] == "2023-11-14T22:13:20.124Z"
        assert bounds["minValues"]["local"] == "1823-11-12T00:06:21.572"


def test_every_other_operation_keeps_the_rows(table: Path) -> None:
    mark_deleted(table, {"1.parquet": [0]})
    left = rows(table)
    assert len(left) == 3 * 2 * len(DAYS) - 1
    for command in ["health", "inspect", "history", "checkpoint", "vacuum", "cleanup-log"]:
        assert main([command, str(table), "--json"]) == 0, command
        assert rows(table) == left
    assert run(table, "purge", verify="full").status == "committed"
    assert main(["checkpoint", str(table), "--json"]) == 0
    for path in (table / "_delta_log").glob("*.json"):
        path.unlink()
    assert rows(table) == left


def test_predicates_on_partitions_compare_nanoseconds(table: Path) -> None:
    snapshot = Table(str(table)).snapshot()
    day = pa.scalar(1_704_067_200_000_000_001, pa.int64()).cast(pa.timestamp("ns", "UTC"))
    assert snapshot.files(where=pc.field("day") == day).num_rows == 2
    report = run(table, where="day = '2024-01-01T00:00:00.000000001Z'")
    assert report.metrics["numRemovedFiles"] == 2
    with pytest.raises(InvalidRequest, match="cannot be compared with day"):
        run(table, run_id="other", where="day = 5")


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [
        ("timestamp_nanos", "1969-12-31T23:59:59.999999999Z", -1),
        ("timestamp_nanos", "2262-04-11T23:47:16.854775807Z", (1 << 63) - 1),
        ("timestamp_nanos_ntz", "1970-01-01T00:00:00.000000000", 0),
    ],
)
def test_texts_of_partition_values_are_canonical(name: str, text: str, value: int) -> None:
    assert parse(text, PrimitiveType(name)) == value
    assert serialise(value, PrimitiveType(name)) == text


def test_other_texts_of_the_same_moment(table: Path) -> None:
    kind = PrimitiveType("timestamp_nanos")
    assert (
        parse("1970-01-01 01:00:00.000000007+01:00", kind)
        == parse("1970-01-01 00:00:00.000000007", kind)
        == 7
    )
    with pytest.raises(InvalidRequest, match="partition value"):
        serialise(1.5, kind)
