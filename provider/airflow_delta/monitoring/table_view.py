"""One table, and one run: what its page shows, as pure functions of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from airflow_delta.monitoring.fleet import number, objects, row_of, shown, source_of, text
from airflow_delta.monitoring.record import HEALTH, Record

#: Deepest level and longest list of what is passed on of a record as it is.
_MAX_DEPTH, _MAX_ITEMS = 8, 200


def table_view(table: str, records: Sequence[Record], failures: Sequence[Record]) -> dict[str, Any]:
    """
    :param records: of the table, those that the reader may see, in any order.
    :param failures: of its runs that failed.
    """
    newest_first = sorted(records, key=lambda record: record.time_ms, reverse=True)
    readings = [record for record in newest_first if record.kind == HEALTH]
    runs = [record for record in newest_first if record.kind != HEALTH]
    every = sorted([*runs, *failures], key=lambda record: record.time_ms, reverse=True)
    return {
        "row": row_of(table, newest_first, failures),
        "health": None if not readings else health_view(readings[0]),
        "trend": [_point(reading) for reading in reversed(readings)],
        "runs": [run_line(record) for record in every],
    }


def health_view(reading: Record) -> dict[str, Any]:
    """A reading: facts, findings and recommendations, with texts that are safe to show."""
    body = reading.body
    return {
        "read_ms": reading.time_ms,
        "version": number(body, "version"),
        "status": text(body, "status"),
        "facts": safe(body.get("facts")) if isinstance(body.get("facts"), Mapping) else {},
        "findings": [safe(finding) for finding in objects(body.get("findings"))],
        "recommendations": [safe(advice) for advice in objects(body.get("recommendations"))],
        "left_out": [shown(name) for name in reading.left_out],
        **source_of(reading.source),
    }


def run_line(record: Record) -> dict[str, Any]:
    """A run among the others of its table."""
    body = record.body
    started, finished = number(body, "started_ms"), number(body, "finished_ms")
    lines = body.get("lines")
    first = lines[0] if isinstance(lines, list) and lines and isinstance(lines[0], str) else None
    size = {name: number(body, "table_size", name) for name in _SIZES}
    return {
        "number": record.number,
        "operation": shown(record.operation),
        "status": shown(record.status),
        "time_ms": record.time_ms,
        "duration_ms": None if started is None or finished is None else max(0, finished - started),
        "version": number(body, "version"),
        "read_version": number(body, "read_version"),
        "engine": text(body, "engine"),
        "summary": None if first is None else shown(first),
        "error": text(body, "error", "message"),
        "table_size": size if any(value is not None for value in size.values()) else None,
        "deleted_files": _total(body, "numDeletedFiles", "numPurgedFiles"),
        "deleted_bytes": _total(body, "sizeOfDeletedData", "sizeOfPurgedData"),
        "dropped_bins": number(body, "dropped_bins"),
        "left_files": number(body, "left", "files"),
        **source_of(record.source),
    }


def run_view(record: Record, around: Iterable[Record]) -> dict[str, Any]:
    """One run in full.

    :param around: readings of health of the same table; the one before the run and the one after it are shown.
    """
    readings = sorted((one for one in around if one.kind == HEALTH), key=lambda one: one.time_ms)
    before = [one for one in readings if one.time_ms <= record.time_ms]
    after = [one for one in readings if one.time_ms > record.time_ms]
    body = record.body
    return {
        "table": shown(record.table),
        "run": run_line(record),
        "lines": [shown(line) for line in body.get("lines") or () if isinstance(line, str)][:_MAX_ITEMS],
        "report": safe({name: value for name, value in body.items() if name != "lines"}),
        "left_out": [shown(name) for name in record.left_out],
        "health_before": _point(before[-1]) if before else None,
        "health_after": _point(after[0]) if after else None,
    }


_SIZES = ("files_before", "files_after", "bytes_before", "bytes_after")


def _point(reading: Record) -> dict[str, Any]:
    facts = ("facts",)
    return {
        "read_ms": reading.time_ms,
        "version": number(reading.body, "version"),
        "status": text(reading.body, "status"),
        "num_files": number(reading.body, *facts, "numFiles"),
        "size_bytes": number(reading.body, *facts, "sizeInBytes"),
        "small_files": number(reading.body, *facts, "optimize", "numFilesToMerge"),
        "deleted_rows_ratio": number(reading.body, *facts, "deletedRowsRatio"),
        "commits_since_checkpoint": number(reading.body, *facts, "log", "numCommitsSinceCheckpoint"),
    }


def _total(body: Mapping[str, Any], *names: str) -> float | None:
    found = [value for value in (number(body, "metrics", name) for name in names) if value is not None]
    return sum(found) if found else None


def safe(value: Any, depth: int = 0) -> Any:
    """A JSON value of a record, whose texts are safe to show, and which is not endless."""
    if depth > _MAX_DEPTH:
        return None
    if isinstance(value, str):
        return shown(value)
    if isinstance(value, Mapping):
        return {shown(str(name)): safe(held, depth + 1) for name, held in list(value.items())[:_MAX_ITEMS]}
    if isinstance(value, list):
        return [safe(held, depth + 1) for held in value[:_MAX_ITEMS]]
    return value if value is None or isinstance(value, bool) else number({"": value}, "")
