"""What is known of a table's health: the newest reading of a health task, and what later runs have read at their end.

A run tells what its own snapshot shows, and names the findings for which it did not look (``unmeasured``). These stay as an earlier
reading found them, until a run has done what that reading recommended against them. Pure functions of records.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from msgspec.structs import replace

from airflow_delta.monitoring.record import HEALTH, SIGHT, Record

_SEVERITIES = ("info", "attention", "critical")
#: Statuses of runs that did nothing of what was recommended.
WITHOUT_CHANGE = ("nothing_to_do", "planned")


def newest_reading(reading: Record | None, runs: Iterable[Record]) -> Record | None:
    """Return what is known of a table's health, as one reading; ``None``: nothing.

    :param reading: the newest reading of a health task.
    :param runs: runs that ended well, at least the newest of each operation.
    """
    since = sorted(
        (run for run in runs if reading is None or run.time_ms > reading.time_ms), key=lambda run: run.time_ms
    )
    told = [run for run in since if isinstance(run.body.get("reading"), Mapping)]
    if not told:
        return reading
    newest = told[-1]
    body: dict[str, Any] = dict(newest.body["reading"])
    if reading is not None:
        # An operation that finds nothing to do has nothing left of what was recommended.
        done = {run.operation for run in since if run.status != "planned"}
        body = _merged(reading.body, body, done)
    return replace(newest, kind=HEALTH, operation=HEALTH, body=body)


def _merged(older: Mapping[str, Any], newer: Mapping[str, Any], done: set[str]) -> dict[str, Any]:
    """Add to a run's reading what it did not look for, as the older reading found it.

    :param done: operations that have run since the older reading.
    """
    unmeasured = newer.get("unmeasured")
    open_codes = set(unmeasured) if isinstance(unmeasured, list) else set()
    advice = _objects(older.get("recommendations"))
    cured = {code for one in advice if one.get("operation") in done for code in _texts(one.get("findings"))}
    left = [one for one in _objects(older.get("findings")) if one.get("code") in open_codes - cured]
    codes = {one.get("code") for one in left}
    findings = [*_objects(newer.get("findings")), *left]
    helpful = [one for one in advice if codes & set(_texts(one.get("findings")))]
    status = newer.get("status")
    if status != "unsupported" and left:
        known = [one["severity"] for one in findings if one.get("severity") in _SEVERITIES]
        worst = max(map(_SEVERITIES.index, known), default=0)
        status = ("healthy", "attention", "critical")[worst]
    facts = {**_object(older.get("facts")), **_object(newer.get("facts"))}
    facts["log"] = {
        **_object(_object(older.get("facts")).get("log")),
        **_object(_object(newer.get("facts")).get("log")),
    }
    if "vacuum" in done:
        facts.pop("removedFiles", None)
    recommendations = [*_objects(newer.get("recommendations")), *helpful]
    return {
        **newer,
        "status": status,
        "facts": facts,
        "findings": findings,
        "recommendations": recommendations,
    }


def _object(value: object) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _objects(value: object) -> list[Mapping[str, Any]]:
    return [one for one in value if isinstance(one, Mapping)] if isinstance(value, list) else []


def _texts(value: object) -> list[str]:
    return [one for one in value if isinstance(one, str)] if isinstance(value, list) else []


#: What an operation needs of the store.
_NEEDS: Mapping[str, frozenset[str]] = {
    SIGHT: frozenset({"read"}),
    HEALTH: frozenset({"read"}),
    "checkpoint": frozenset({"read", "write the log"}),
    "vacuum": frozenset({"read", "write the log", "delete"}),
    "optimize": frozenset({"read", "write the log", "write data"}),
    "purge": frozenset({"read", "write the log", "write data"}),
    "expire": frozenset({"read", "write the log", "write data"}),
    "drop-feature": frozenset({"read", "write the log", "write data"}),
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
    """Whether a failed run still counts. It does not if a later run shows that what the failed one lacked is there now:

    * The table could not be opened: every later run and every reading of health has opened it.
    * The store failed or refused: so does a run that needs at least the same of the store.
    * Anything else, such as a lost conflict: a run of the same kind of work.

    :param ended: the newest run or reading of each operation that ended well, of any DAG.
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
