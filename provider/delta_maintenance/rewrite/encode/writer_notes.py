"""What the footer of a file says of its writer, and what this provider writes there of itself.

Programs that read a file and write another one, such as pyarrow, hand its key-value metadata on. So no note there is a proof: a note
may make this provider trust a file less, never more.

==================================  ===================  =============================================
writer                              bounds of floats     column indexes
==================================  ===================  =============================================
parquet-java from 1.10 on           right, also by NaN   right
Arrow                               NaN left out         right
parquet-rs, delta-rs                NaN left out         right outside of lists and maps: a page of a
                                                         list is called null if it has as many nulls
                                                         as rows
other known writers                 NaN left out         not known
==================================  ===================  =============================================
"""

from __future__ import annotations

import json
import re
from typing import Any

from msgspec import Struct

from delta_log.data.legacy_calendar import may_be_julian
from delta_log.table_config.schema import ArrayType, DataType, MapType, PrimitiveType, StructType
from parquet_parts.footer import Footer

#: In the footer of each new file: the codec of the columns that it makes smaller (:mod:`delta_maintenance.rewrite.encode.codec_choice`).
CODEC_KEY = "delta-maintenance.codec"
#: In the footers of files of earlier releases, which copied column indexes of every writer.
_OLD_KEY = b"delta-maintenance.floats"

_JAVA = re.compile(r"parquet-mr version 1\.(\d+)\.")
_FIRST_JAVA = 10
_ARROW = "parquet-cpp-arrow version"
_RUST = ("parquet-rs version", "delta-rs")
#: Other writers whose statistics follow the present rules.
_OTHERS = ("parquet-mr compatible Photon", "DuckDB", "Polars", "Trino version")


class WriterNotes(Struct, frozen=True):
    """What matters of the writer of a file.

    :param is_known: ``True``: its statistics follow the present rules of the format.
    :param may_be_julian: the file may hold dates of the Julian calendar.
    :param has_true_floats: ``True``: bounds of floats are right where there is a NaN.
    :param has_true_indexes: column indexes of leaves outside of lists and maps are right.
    :param has_true_list_indexes: column indexes of leaves in lists and maps are right.
    :param codec: what this provider compressed the columns with that it makes smaller; ``None``: the file does not say so.
    """

    is_known: bool
    may_be_julian: bool = False
    has_true_floats: bool = False
    has_true_indexes: bool = False
    has_true_list_indexes: bool = False
    codec: str | None = None

    @classmethod
    def of(cls, footer: Footer) -> WriterNotes:
        notes, created_by = footer.key_values, footer.created_by
        is_java, is_rust = _is_new_java(created_by), created_by.startswith(_RUST)
        is_right = (is_java or created_by.startswith(_ARROW)) and _OLD_KEY not in notes
        codec = notes.get(CODEC_KEY.encode())
        return cls(
            is_known=is_java or created_by.startswith((_ARROW, *_RUST, *_OTHERS)),
            may_be_julian=may_be_julian(notes, created_by)[0],
            has_true_floats=is_java,
            has_true_indexes=is_right or is_rust,
            has_true_list_indexes=is_right,
            codec=None if codec is None else codec.decode("utf-8", "replace"),
        )


def _is_new_java(created_by: str) -> bool:
    """Tell whether a parquet-java wrote a file whose statistics follow the present rules."""
    found = _JAVA.match(created_by)
    return found is not None and int(found[1]) >= _FIRST_JAVA


def own_notes(codec: str) -> dict[str, str]:
    """Return what the footer of each new file says of this provider.

    :param codec: codec of the columns that it makes smaller.
    """
    return {CODEC_KEY: codec}


SCHEMA_KEY = "org.apache.spark.sql.parquet.row.metadata"
VERSION_KEY = "org.apache.spark.version"
_VERSION = "4.0.0"
_OF_COLUMN_MAPPING = "delta.columnMapping."


def spark_metadata(stored: StructType) -> dict[str, str]:
    """Return the key-value metadata that Spark writes into the footers of its data files: a schema and a version.

    The schema has current types, physical names, and everything nullable. The version does not name the writer, which ``created_by``
    does. It tells Spark that dates and times are of the proleptic Gregorian calendar. Without it, Spark 3 refuses dates before 1582
    and times before 1900.

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
