"""The schema of a table without notes of a feature."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from delta_log.table_config.schema import COLUMN_ID, NESTED_IDS, PHYSICAL_NAME

MAPPING_NOTES = (PHYSICAL_NAME, COLUMN_ID, NESTED_IDS)
#: Characters that names of columns cannot have without column mapping.
_NOT_IN_NAMES = re.compile(r"[ ,;{}()\n\t=]")


def without_notes(schema_json: str, names: tuple[str, ...]) -> str:
    """Return the schema without these members of the metadata of its fields, at every depth."""

    def strip(field: dict[str, Any]) -> None:
        for name in names:
            (field.get("metadata") or {}).pop(name, None)

    schema = json.loads(schema_json)
    for field in all_raw_fields(schema):
        strip(field)
    return json.dumps(schema, separators=(",", ":"))


def has_notes(schema_json: str, name: str) -> bool:
    """Tell whether the metadata of a field has this member."""
    return any(name in (field.get("metadata") or {}) for field in all_raw_fields(json.loads(schema_json)))


def renamed_columns(schema_json: str) -> list[str]:
    """Return the names of fields whose names in data files are others."""
    return _names_where(
        schema_json,
        lambda field: (field.get("metadata") or {}).get(PHYSICAL_NAME, field["name"]) != field["name"],
    )


def unusual_names(schema_json: str) -> list[str]:
    """Return the names of fields that need column mapping, since they hold characters that Parquet readers refuse."""
    return _names_where(schema_json, lambda field: _NOT_IN_NAMES.search(field["name"]) is not None)


def _names_where(schema_json: str, holds: Callable[[Mapping[str, Any]], bool]) -> list[str]:
    return [str(field["name"]) for field in all_raw_fields(json.loads(schema_json)) if holds(field)]


def all_raw_fields(kind: Any) -> Iterator[dict[str, Any]]:
    """Yield the JSON objects of all fields of structs within a type, at every depth."""
    if not isinstance(kind, dict):
        return
    for field in kind.get("fields") or ():
        yield field
        yield from all_raw_fields(field["type"])
    for member in ("elementType", "keyType", "valueType"):
        yield from all_raw_fields(kind.get(member))
