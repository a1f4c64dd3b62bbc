"""Storage options of a ``delta`` connection: its extra, named as fsspec's file systems name them."""

from __future__ import annotations

from typing import Any

from airflow_delta.connections.fields import ConnectionFields
from airflow_delta.provider_info import CONNECTION_FIELDS
from delta_log.storage.schemes import CATALOG_OPTIONS

#: Keys of ``extra`` that are for us, not for the file system.
_OWN_KEYS = frozenset({"test_table", "allowed_roots", *CATALOG_OPTIONS})
#: The form always sends these, and not every file system knows them.
_SWITCHES = frozenset(
    name for name, definition in CONNECTION_FIELDS.items() if definition["schema"]["type"] == "boolean"
)


def storage_options(fields: ConnectionFields) -> dict[str, Any]:
    return {
        name: value
        for name, value in fields.extra.items()
        if name not in _OWN_KEYS and not (name in _SWITCHES and value is False)
    }
