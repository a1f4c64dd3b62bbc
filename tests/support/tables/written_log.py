"""Writes logs by hand. A planner reads the log alone, so no data file has to exist."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from delta_log import Snapshot, Table


def add(
    path: str, size: int, partition: Mapping[str, str | None] | None = None, **more: Any
) -> dict[str, Any]:
    """An ``add`` action; ``more`` are further members under their names in the protocol."""
    return {
        "path": path,
        "size": size,
        "partitionValues": dict(partition or {}),
        "modificationTime": 1,
        "dataChange": True,
        **more,
    }


def deletion_vector(cardinality: int, offset: int | None = 1) -> dict[str, Any]:
    """Returns a descriptor of a deletion vector that does not exist."""
    vector = {
        "storageType": "u",
        "pathOrInlineDv": "ab^-aqEH.-t@S}K{vb[*",
        "sizeInBytes": 40,
        "cardinality": cardinality,
    }
    return vector if offset is None else {**vector, "offset": offset}


def write_log(
    table: Path,
    adds: Sequence[Mapping[str, Any]],
    *,
    partition_by: Mapping[str, str] | None = None,
    properties: Mapping[str, str] | None = None,
    columns: Mapping[str, str] | None = None,
    features: Sequence[str] = (),
    writer_features: Sequence[str] = (),
) -> Snapshot:
    """Writes version 0 of a table; returns its snapshot.

    :param partition_by: partition columns and their types.
    :param columns: data columns and their types; else, there is one, ``value``.
    :param features: further features of readers and writers.
    :param writer_features: further features of writers alone.
    """
    columns = {**(partition_by or {}), **(columns or {"value": "long"})}
    schema = {
        "type": "struct",
        "fields": [
            {"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in columns.items()
        ],
    }
    metadata = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": list(partition_by or ()),
        "configuration": dict(properties or {}),
    }
    readers = ["deletionVectors", "timestampNtz", *features]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": readers,
        "writerFeatures": [*readers, *writer_features],
    }
    actions = [{"protocol": protocol}, {"metaData": metadata}, *({"add": action} for action in adds)]
    log = table / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)) + "\n")
    return Table(str(table)).snapshot()
