"""Which failed runs of a table still count, and which of them say that the table cannot be read: pure functions of records.

A failure is over when a later run shows that what the failed one lacked is there now. What a run lacked follows from its error:

* The table could not be opened: every later run and every reading of health has opened it.
* The store failed or refused: so does a run that needs at least the same of the store.
* Anything else, such as a lost conflict: a run of the same kind of work.
"""

from __future__ import annotations

from collections.abc import Mapping

from airflow_delta.monitoring.record import HEALTH, SIGHT, Record

#: What an operation needs of the store.
_NEEDS: Mapping[str, frozenset[str]] = {
    SIGHT: frozenset({"read"}),
    HEALTH: frozenset({"read"}),
    "checkpoint": frozenset({"read", "write the log"}),
    "vacuum": frozenset({"read", "write the log", "delete"}),
    "optimize": frozenset({"read", "write the log", "write data"}),
    "purge": frozenset({"read", "write the log", "write data"}),
}
#: Operations that do the same kind of work.
_SAME_WORK = (frozenset({"optimize", "purge"}),)
_NOT_OPENED = frozenset(
    {
        "BucketNotFound",
        "LogReplaced",
        "NoCredentials",
        "NotATable",
        "NotDelta",
        "NotInCatalog",
        "TableDropped",
        "TableReplaced",
        "WrongRegion",
    }
)
#: Files of the log, if they lie below ``_delta_log``.
_BROKEN_FILE = frozenset({"CorruptLog", "UnreadableCheckpoint"})
#: There is no table at the address any more, or there never was one.
GONE = frozenset({"NotATable", "NotInCatalog", "TableDropped"})
_STORE = frozenset({"AccessDenied", "ListingDenied", "StorageError"})


def is_open(failure: Record, ended: Mapping[str, Record]) -> bool:
    """Whether a failed run still counts.

    :param ended: by operation, the newest run or reading that ended well, of any DAG.
    """
    return not any(
        later.time_ms >= failure.time_ms and _cures(later.operation, failure) for later in ended.values()
    )


def _cures(operation: str, failure: Record) -> bool:
    failed = failure.operation
    if operation == failed or any({operation, failed} <= same for same in _SAME_WORK):
        return True
    if could_not_open(failure):
        return True
    needed, had = _NEEDS.get(failed), _NEEDS.get(operation)
    return error_type(failure) in _STORE and needed is not None and had is not None and needed <= had


def could_not_open(failure: Record) -> bool:
    """Whether the table could not be opened, so that no other operation can work at it either."""
    kind = error_type(failure)
    return kind in _NOT_OPENED or (kind in _BROKEN_FILE and _is_of_the_log(failure.body.get("error")))


def error_type(failure: Record) -> str | None:
    """The name of the error's class."""
    error = failure.body.get("error")
    kind = error.get("type") if isinstance(error, Mapping) else None
    return kind if isinstance(kind, str) else None


def _is_of_the_log(error: object) -> bool:
    path = error.get("path") if isinstance(error, Mapping) else None
    return isinstance(path, str) and path.startswith("_delta_log/")
