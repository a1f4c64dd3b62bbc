"""Changes of a column's type: those of the protocol are read, of any other a reader says that it does not know it."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.runs.maintenance_runs import run
from tests.support.tables.written_log import add, write_log

from delta_log import Table
from delta_log.errors import InvalidMetadata, UnsupportedFeature
from delta_log.table_config.schema import parse_schema


def schema_with(old: object, new: object, kind: str = "long") -> str:
    change = {"fromType": old, "toType": new, "fieldPath": "element"}
    inner = {"name": "c", "type": kind, "nullable": True, "metadata": {"delta.typeChanges": [change]}}
    struct = {"type": "struct", "fields": [inner]}
    outer = {"name": "s", "type": struct, "nullable": True, "metadata": {}}
    return json.dumps({"type": "struct", "fields": [outer]})


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("byte", "short"),
        ("short", "long"),
        ("integer", "long"),
        ("float", "double"),
        ("byte", "double"),
        ("integer", "double"),
        ("date", "timestamp_ntz"),
        ("decimal(5,2)", "decimal(7,4)"),
        ("decimal(5,2)", "decimal(12,2)"),
        ("byte", "decimal(10,0)"),
        ("integer", "decimal(12,2)"),
        ("long", "decimal(20,0)"),
    ],
)
def test_the_changes_of_the_protocol_are_known(old: str, new: str) -> None:
    assert parse_schema(schema_with(old, new)).fields


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("long", "string"),
        ("long", "timestamp"),
        ("long", "integer"),
        ("long", "double"),
        ("date", "timestamp"),
        ("decimal(5,2)", "decimal(6,4)"),
        ("decimal(5,2)", "decimal(9,1)"),
        ("integer", "decimal(9,0)"),
        ("long", "decimal(19,0)"),
        ("string", "decimal(38,0)"),
        ("decimal(5,2)", "double"),
    ],
)
def test_any_other_change_is_refused_by_name(old: str, new: str) -> None:
    with pytest.raises(UnsupportedFeature) as caught:
        parse_schema(schema_with(old, new))
    assert f"a type change from {old} to {new}" in str(caught.value)


@pytest.mark.parametrize("old", [None, 3, {"type": "array"}])
def test_a_change_that_is_none_is_no_schema(old: object) -> None:
    with pytest.raises(InvalidMetadata):
        parse_schema(schema_with(old, "long"))


def test_a_table_with_an_unknown_change_is_neither_read_nor_rewritten(tmp_path: Path) -> None:
    adds = []
    for number in range(2):
        path = tmp_path / f"{number}.parquet"
        pq.write_table(pa.table({"value": [number]}), path)
        adds.append(add(path.name, path.stat().st_size))
    write_log(tmp_path, adds)
    commit = tmp_path / "_delta_log" / f"{0:020}.json"
    lines = [json.loads(line) for line in commit.read_text().splitlines()]
    (metadata,) = (line["metaData"] for line in lines if "metaData" in line)
    schema = json.loads(metadata["schemaString"])
    change = {"fromType": "long", "toType": "string"}
    schema["fields"][0] |= {"type": "string", "metadata": {"delta.typeChanges": [change]}}
    metadata["schemaString"] = json.dumps(schema)
    commit.write_text("".join(json.dumps(line) + "\n" for line in lines))
    with pytest.raises(UnsupportedFeature, match="from long to string"):
        Table(str(tmp_path)).snapshot().to_arrow()
    before = sorted(path.name for path in tmp_path.rglob("*"))
    with pytest.raises(UnsupportedFeature, match="from long to string"):
        run(tmp_path, full=True)
    assert sorted(path.name for path in tmp_path.rglob("*")) == before
