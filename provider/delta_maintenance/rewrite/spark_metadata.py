"""What Spark leaves in the footers of its data files, for files of ours: the schema in its own words, and the calendar.

Both are key-value metadata of Parquet. The schema is that of the file: current types, physical names, everything nullable.
The version does not say who wrote the file (``created_by`` does): by it Spark knows that dates and times are of the
proleptic Gregorian calendar, as they always are here. Without it Spark 3 refuses dates before 1582 and times before 1900.
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
    """
    :param stored: the columns of a data file.
    """
    return {SCHEMA_KEY: json.dumps(_type(stored), separators=(",", ":")), VERSION_KEY: _VERSION}


def _type(kind: DataType) -> Any:
    if isinstance(kind, PrimitiveType):
        # In Spark's files these are strings; the length stands in the column's metadata.
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
