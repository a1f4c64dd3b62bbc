"""The key-value metadata that Spark writes into the footers of its data files, for our files: its schema and a version.

The schema is that of the file: current types, physical names, everything nullable. The version does not name the writer, which
``created_by`` does. It tells Spark that dates and times are of the proleptic Gregorian calendar, as ours always are. Without it,
Spark 3 refuses dates before 1582 and times before 1900.
"""

from __future__ import annotations

import json
from typing import Any

from delta_log.table_config.schema import ArrayType, DataType, MapType, PrimitiveType, StructType

SCHEMA_KEY = "org.apache.spark.sql.parquet.row.metadata"
VERSION_KEY = "org.apache.spark.version"
_VERSION = "4.0.0"
_OF_COLUMN_MAPPING = "delta.columnMapping."


def spark_metadata(stored: StructType) -> dict[str, str]:
    """Return the metadata of a data file.

    :param stored: the file's columns.
    """
    return {SCHEMA_KEY: json.dumps(_type(stored), separators=(",", ":")), VERSION_KEY: _VERSION}


def _type(kind: DataType) -> Any:
    if isinstance(kind, PrimitiveType):
        # Spark stores these as strings and their length in the column's metadata.
        return "string" if kind.name.startswith(("char(", "varchar(")) else kind.name
    if isinstance(kind, ArrayType):
        return {"type": "array", "elementType": _type(kind.element), "containsNull": True}
    if isinstance(kind, MapType):
        return {
            "type": "map",
            "keyType": _type(kind.key),
            "valueType": _type(kind.value),
            "valueContainsNull": True,
        }
    fields = [
        {
            "name": member.physical_name,
            "type": _type(member.type),
            "nullable": True,
            "metadata": {
                name: value
                for name, value in member.metadata.items()
                if not name.startswith(_OF_COLUMN_MAPPING)
            },
        }
        for member in kind
    ]
    return {"type": "struct", "fields": fields}
