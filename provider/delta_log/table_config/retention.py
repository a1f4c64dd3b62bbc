"""How long a table keeps removed files, commits and transactions: three properties, each with its default.

Durations are in milliseconds. A reader of a table that sets a property to something else than a duration gets
:class:`~delta_log.errors.InvalidProperty`; :func:`readable` is for a reader that can do without.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TypeVar

from delta_log.errors import InvalidProperty
from delta_log.table_config.properties import interval_ms

DELETED_FILE_RETENTION = "delta.deletedFileRetentionDuration"
LOG_RETENTION = "delta.logRetentionDuration"
TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"

_Result = TypeVar("_Result")
_DAY_MS = 86_400_000
_DEFAULT_DELETED_FILE_RETENTION_MS = 7 * _DAY_MS
_DEFAULT_LOG_RETENTION_MS = 30 * _DAY_MS


def deleted_file_retention_ms(properties: Mapping[str, str]) -> int:
    """How long tombstones, and the files that they name, are kept."""
    configured = interval_ms(properties, DELETED_FILE_RETENTION)
    return _DEFAULT_DELETED_FILE_RETENTION_MS if configured is None else configured


def log_retention_ms(properties: Mapping[str, str]) -> int:
    """How long commits and checkpoints are kept."""
    configured = interval_ms(properties, LOG_RETENTION)
    return _DEFAULT_LOG_RETENTION_MS if configured is None else configured


def transaction_retention_ms(properties: Mapping[str, str]) -> int | None:
    """How long ``txn`` actions are kept; ``None``: for ever, which is the default."""
    return interval_ms(properties, TRANSACTION_RETENTION)


def readable(read: Callable[[Mapping[str, str]], _Result], properties: Mapping[str, str]) -> _Result | None:
    """Return what one of the functions above returns; ``None``: the property is not a duration."""
    try:
        return read(properties)
    except InvalidProperty:
        return None
