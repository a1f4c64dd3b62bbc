"""The fleet: one row for each table that a task has reported of, and the choice, order and page of rows that a reader asked for.

Pure functions of records. A member that a record lacks, or that is not of its kind, is ``None`` in a row.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from airflow_delta.monitoring.readings import (
    GONE,
    WITHOUT_CHANGE,
    could_not_open,
    error_type,
    is_open,
    newest_reading,
)
from airflow_delta.monitoring.record import HEALTH, SIGHT, Record, Source, table_id
from delta_log.printable import printable

#: In the order of urgency. ``unreadable``: a task could not open the table, and none has opened it since. ``unknown``: no task has read
#: the table's health.
STATUSES = ("unreadable", "critical", "attention", "unsupported", "unknown", "healthy")
#: Longest text of a row; a table may have a long address, and any writer of it may choose what messages quote.
MAX_TEXT = 1_000


class TrendPoint(NamedTuple):
    """Two figures of one reading of health."""

    time_ms: int
    dag_id: str
    num_files: int | None
    small_files: int | None


class Watch(Struct, frozen=True):
    """What a watcher of an asset remembers of a table.

    :param asset: name of the asset.
    :param version: place of the watcher in the table's log; ``None``: it has none yet.
    """

    asset: str
    version: int | None


class TableRecords(Struct, frozen=True):
    """The newest records of one table, by operation and DAG. It never changes; with news comes another one.

    A reader sees the records of the DAGs that Airflow lets them read, so there is one for each DAG. What a watcher remembers belongs to no
    DAG: every reader sees it.

    :param address: address of the table, as its records have it.
    :param failed: records of runs that failed.
    :param trend: the newest readings of any DAG, oldest first.
    """

    address: str
    newest: Mapping[tuple[str, str], Record] = {}
    failed: Mapping[tuple[str, str], Record] = {}
    trend: Sequence[TrendPoint] = ()
    watch: Watch | None = None

    @property
    def dags(self) -> frozenset[str]:
        """The DAGs that have reported of the table."""
        return frozenset(dag for _, dag in (*self.newest, *self.failed))


def row_for(records: TableRecords, dags: Container[str]) -> dict[str, Any]:
    """The row of a table for a reader who may see what some DAGs have reported of it.

    :param dags: DAGs that the reader may read: at least one that has reported of the table, or none if a watcher knows it.
    """
    newest, failed = (
        [record for (_, dag), record in reported.items() if dag in dags]
        for reported in (records.newest, records.failed)
    )
    trend = [point for point in records.trend if point.dag_id in dags]
    return row_of(records.address, newest, failed, trend, records.watch)


def row_of(
    table: str,
    records: Iterable[Record],
    failures: Iterable[Record],
    trend: Sequence[TrendPoint] = (),
    watch: Watch | None = None,
) -> dict[str, Any]:
    """The row of one table.

    :param records: records of runs and readings that ended well, at least the newest of each operation and DAG.
    """
    ended = newest_by_operation(records)
    failed = newest_by_operation(failures)
    open_failures = [failure for failure in failed.values() if is_open(failure, ended)]
    reading, sight = ended.pop(HEALTH, None), ended.pop(SIGHT, None)
    reading = newest_reading(reading, ended.values())
    reading = None if reading is None else _without_done(reading, ended)
    work = max(ended.values(), key=lambda record: record.time_ms, default=None)
    return {
        "id": table_id(table),
        "table": shown(table),
        "is_exact": shown(table) == table,
        "name": shown(table.rstrip("/").rpartition("/")[2] or table),
        **_health(reading),
        "is_older_than_work": _is_outdated(reading, ended.values()),
        "is_next_done": _is_next_done(reading, ended),
        **_unreadable(open_failures),
        "last_runs": _last_runs(reading, ended),
        "last_work": None if work is None else _run(work),
        "failure": _failure(max(open_failures, key=lambda record: record.time_ms, default=None)),
        "sight": None if sight is None else {**_run(sight), "version": number(sight.body, "version")},
        "watch": None if watch is None else {"asset": shown(watch.asset), "version": watch.version},
        "trend": {
            "num_files": [point.num_files for point in trend],
            "small_files": [point.small_files for point in trend],
        },
    }


def newest_by_operation(records: Iterable[Record]) -> dict[str, Record]:
    found: dict[str, Record] = {}
    for record in records:
        held = found.get(record.operation)
        if held is None or held.time_ms <= record.time_ms:
            found[record.operation] = record
    return found


def _health(reading: Record | None) -> dict[str, Any]:
    body: Mapping[str, Any] = {} if reading is None else reading.body
    status = text(body, "status")
    findings = objects(body.get("findings"))
    advice = objects(body.get("recommendations"))
    worst = max(findings, key=_severity, default=None)
    return {
        "status": status if status in STATUSES else "unknown",
        "version": number(body, "version"),
        "read_ms": None if reading is None else reading.time_ms,
        "finding": None
        if worst is None
        else {name: text(worst, name) for name in ("code", "severity", "message")},
        "num_findings": len(findings),
        "next": None
        if not advice
        else {name: text(advice[0], name) for name in ("operation", "why", "operator")},
        "size_bytes": number(body, "facts", "sizeInBytes"),
        "num_files": number(body, "facts", "numFiles"),
        "small_files": number(body, "facts", "optimize", "numFilesToMerge"),
        "deleted_rows_ratio": number(body, "facts", "deletedRowsRatio"),
        "commits_since_checkpoint": number(body, "facts", "log", "numCommitsSinceCheckpoint"),
        "reclaimable_bytes": number(body, "facts", "removedFiles", "reclaimable", "sizeInBytes"),
    }


def _without_done(reading: Record, ended: Mapping[str, Record]) -> Record:
    """Return a reading without the recommendations that a run has carried out since.

    If none is left, the recommendations stay, and :func:`_is_next_done` says that they are done. What only they concern is no reason for
    attention any more.
    """
    body = reading.body
    advice = objects(body.get("recommendations"))
    left = [one for one in advice if not _is_outdated(reading, _runs_of(one, ended))]
    if len(left) == len(advice):
        return reading
    changed: dict[str, Any] = {"recommendations": left or advice}
    if body.get("status") == "attention":
        done = _codes(one for one in advice if one not in left) - _codes(left)
        found = [one for one in objects(body.get("findings")) if text(one, "code") not in done]
        is_needy = any(_severity(one) >= _severity({"severity": "attention"}) for one in found)
        changed |= {"findings": found, "status": "attention" if is_needy else "healthy"}
    return replace(reading, body={**body, **changed})


def _runs_of(advice: Mapping[str, Any], ended: Mapping[str, Record]) -> list[Record]:
    run = ended.get(text(advice, "operation") or "")
    return [] if run is None else [run]


def _codes(advice: Iterable[Mapping[str, Any]]) -> set[str]:
    """The findings that recommendations are about."""
    codes = (one.get("findings") for one in advice)
    return {shown(code) for held in codes if isinstance(held, list) for code in held if isinstance(code, str)}


def _unreadable(open_failures: Iterable[Record]) -> dict[str, Any]:
    """The members of a row that the failure to open the table decides. What was found before cannot be acted on."""
    failures = (failure for failure in open_failures if could_not_open(failure))
    newest = max(failures, key=lambda record: record.time_ms, default=None)
    if newest is None:
        return {}
    why = text(newest.body, "error", "message")
    return {
        "status": "unreadable",
        "finding": {"code": error_type(newest), "severity": "critical", "message": why},
        "num_findings": 1,
        "next": None,
        "is_next_done": False,
    }


def _severity(finding: Mapping[str, Any]) -> int:
    order = ("info", "attention", "critical")
    severity = finding.get("severity")
    return order.index(severity) if severity in order else -1


def _is_outdated(reading: Record | None, runs: Iterable[Record]) -> bool:
    """Whether a run changed the table since its health was read."""
    if reading is None:
        return False
    return any(run.time_ms > reading.time_ms and run.status not in WITHOUT_CHANGE for run in runs)


def _is_next_done(reading: Record | None, ended: Mapping[str, Record]) -> bool:
    """Whether a run has done what the reading recommends first."""
    advice = objects(reading.body.get("recommendations")) if reading is not None else []
    return _is_outdated(reading, _runs_of(advice[0], ended) if advice else [])


def _last_runs(reading: Record | None, ended: Mapping[str, Record]) -> dict[str, dict[str, Any]]:
    """The newest run of each operation: by a task, or else by any writer, as the reading found it in the log."""
    runs: dict[str, dict[str, Any]] = {}
    logged = at(reading.body, "facts", "lastRuns") if reading is not None else None
    if isinstance(logged, Mapping):
        for name, run in logged.items():
            time_ms = number(run, "timestamp") if isinstance(run, Mapping) else None
            if time_ms is not None:
                runs[shown(str(name))] = {
                    "time_ms": time_ms,
                    "status": "committed",
                    "engine": text(run, "engineInfo"),
                }
    for name, record in ended.items():
        if name not in runs or runs[name]["time_ms"] < record.time_ms:
            runs[shown(name)] = {"time_ms": record.time_ms, "status": shown(record.status), "engine": None}
    return runs


def _run(record: Record) -> dict[str, Any]:
    return {
        "operation": shown(record.operation),
        "status": shown(record.status),
        "time_ms": record.time_ms,
        **source_of(record.source),
    }


def _failure(record: Record | None) -> dict[str, Any] | None:
    if record is None:
        return None
    return {**_run(record), "message": text(record.body, "error", "message")}


def source_of(source: Source) -> dict[str, Any]:
    return {
        "dag_id": source.dag_id,
        "run_id": source.run_id,
        "task_id": source.task_id,
        "map_index": source.map_index,
    }


# -- choice, order and page ------------------------------------------------------------------------------------------


class FleetQuery(Struct, frozen=True):
    """Which rows a reader asked for.

    :param status: one of :data:`STATUSES`, or ``failing`` for tables whose newest run of an operation failed.
    """

    status: str | None = None
    search: str = ""
    sort: str = "urgency"
    descending: bool = False
    offset: int = 0
    limit: int = 50


def counts_of(rows: Iterable[Mapping[str, Any]]) -> dict[str, int]:
    counts = dict.fromkeys((*STATUSES, "failing"), 0)
    for row in rows:
        counts[row["status"]] += 1
        counts["failing"] += row["failure"] is not None
    return counts


def matching(rows: Iterable[dict[str, Any]], query: FleetQuery) -> list[dict[str, Any]]:
    """The rows of the status and with the text that a reader asked for."""
    wanted = query.search.casefold()
    return [
        row
        for row in rows
        if _has_status(row, query.status) and (not wanted or wanted in row["table"].casefold())
    ]


def ordered(rows: Iterable[dict[str, Any]], sort: str, *, descending: bool) -> list[dict[str, Any]]:
    """Rows in order; those without the figure to sort by come last, either way."""
    found = sorted(rows, key=lambda row: row["table"])
    key = SORTS[sort]
    known = [row for row in found if key(row) is not None]
    known.sort(key=key, reverse=descending)
    return known + [row for row in found if key(row) is None]


def page_of(rows: Sequence[dict[str, Any]], query: FleetQuery) -> Sequence[dict[str, Any]]:
    return rows[query.offset : query.offset + query.limit]


def _has_status(row: Mapping[str, Any], status: str | None) -> bool:
    if status == "failing":
        return row["failure"] is not None
    return status is None or row["status"] == status


def _urgency(row: Mapping[str, Any]) -> tuple[float, bool, bool, int, float]:
    """Tables that cannot be read first, then critical ones; among tables of one status those with a failed run, then those with more
    findings, then the larger.

    A table that is gone comes behind those that are there and cannot be read: nothing in it can be mended. A table for which the next action was done since its reading comes behind those that still need something.
    """
    status = STATUSES.index(row["status"])
    return (
        max(status, _DONE) if row["is_next_done"] and row["failure"] is None else status,
        row["status"] == "unreadable" and row["finding"]["code"] in GONE,
        row["failure"] is None,
        -row["num_findings"],
        -(row["size_bytes"] or 0),
    )


_DONE = STATUSES.index("attention") + 0.5


def _figure(name: str) -> Callable[[Mapping[str, Any]], Any]:
    return lambda row: row[name]


#: By the name of an order, its key.
SORTS: dict[str, Callable[[Mapping[str, Any]], Any]] = {
    "urgency": _urgency,
    "table": _figure("table"),
    **{
        name: _figure(name)
        for name in (
            "size_bytes",
            "num_files",
            "small_files",
            "deleted_rows_ratio",
            "commits_since_checkpoint",
            "reclaimable_bytes",
            "read_ms",
        )
    },
    "last_work": lambda row: None if row["last_work"] is None else row["last_work"]["time_ms"],
}


# -- reading what others wrote ---------------------------------------------------------------------------------------


def at(value: Any, *path: str) -> Any:
    for name in path:
        value = value.get(name) if isinstance(value, Mapping) else None
    return value


def number(value: Any, *path: str) -> float | None:
    found = at(value, *path)
    # A browser's numbers are exact up to here, and JSON knows no infinity.
    is_number = isinstance(found, (int, float)) and not isinstance(found, bool) and -(2**53) < found < 2**53
    return found if is_number else None


def text(value: Any, *path: str) -> str | None:
    found = at(value, *path)
    return shown(found) if isinstance(found, str) else None


def objects(value: Any) -> list[Mapping[str, Any]]:
    return [held for held in value if isinstance(held, Mapping)] if isinstance(value, list) else []


def shown(value: str) -> str:
    """A text of a record without characters that do not show or turn the direction of writing, and not endless."""
    safe = printable(value)
    return safe if len(safe) <= MAX_TEXT else f"{safe[: MAX_TEXT - 1]}…"


@dataclass(frozen=True, slots=True)
class BrokenRecord:
    """An entry of a state store that has the key of a record, and is none."""

    time_ms: int
    source: Source
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class ReportedState:
    """It never changes; with news comes another one, whose tables without news are the same objects.

    :param tables: records by :func:`~airflow_delta.monitoring.record.table_id`.
    :param dags: DAGs that have reported of a table.
    """

    tables: Mapping[str, TableRecords] = field(default_factory=dict)
    broken: Sequence[BrokenRecord] = ()
    dags: frozenset[str] = frozenset()
