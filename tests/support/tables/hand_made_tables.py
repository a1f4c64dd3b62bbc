"""Tables whose log and files are written by hand, for what no writer at hand would write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq


def write_log(table: Path, schema: list[dict[str, Any]], adds: list[dict[str, Any]], **metadata: Any) -> Path:
    """Write the first commit of a table by hand."""
    (table / "_delta_log").mkdir(parents=True, exist_ok=True)
    described = {
        "id": "a",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": schema}),
        "partitionColumns": [],
        "configuration": {},
        **metadata,
    }
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": described},
        *({"add": {"partitionValues": {}, "modificationTime": 1, "dataChange": True, **add}} for add in adds),
    ]
    (table / "_delta_log" / f"{0:020}.json").write_text(
        "".join(json.dumps(action) + "\n" for action in actions)
    )
    return table


def column(name: str, kind: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": True, "metadata": {}}


def data_files(table: Path, rows: list[pa.Table], names: list[str]) -> list[dict[str, Any]]:
    table.mkdir(exist_ok=True)
    for name, content in zip(names, rows, strict=True):
        pq.write_table(content, table / name)
    return [{"path": name, "size": (table / name).stat().st_size} for name in names]
