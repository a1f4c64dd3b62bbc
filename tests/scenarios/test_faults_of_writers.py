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
from tests.support.runs.maintenance_runs import keys, run

from delta_log import Table
from delta_log.parquet.footer import Footer, footer_length
from delta_log.parquet.schema_elements import UNKNOWN_TYPE
from delta_log.parquet.thrift_compact import I32, LIST, STRUCT

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
