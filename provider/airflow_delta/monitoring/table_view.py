"""One table, and one run: what its page shows, as pure functions of records."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from airflow_delta.monitoring.fleet import (
    TrendPoint,
    Watch,
    at,
    number,
    objects,
    row_of,
    shown,
    source_of,
    text,
)
from airflow_delta.monitoring.readings import newest_reading
from airflow_delta.monitoring.record import HEALTH, RUN, Record
from delta_log.printable import printable
from delta_log.table_config.features import FEATURES, Operation

_OF_ROWS = "Rules for rows that writers check. Maintenance changes no row."
_WIDER = "Old files hold narrower types. OPTIMIZE widens the values of the files that it rewrites."
_BOOKKEEPING = "Bookkeeping of the protocol, which costs maintenance nothing."
_VARIANTS = "Semi-structured values. OPTIMIZE keeps them, and writes them as one value each, not in columns of their own."
#: What each table feature means for maintenance. Why an operation refuses a feature: :mod:`delta_log.table_config.features`.
NOTES = {
    "appendOnly": "Rows are only added. OPTIMIZE and VACUUM work as usual.",
    "invariants": _OF_ROWS,
    "checkConstraints": _OF_ROWS,
    "generatedColumns": _OF_ROWS,
    "allowColumnDefaults": _OF_ROWS,
    "identityColumns": _OF_ROWS,
    "changeDataFeed": "Changes of rows are kept in files of their own, which VACUUM deletes after the retention.",
    "columnMapping": "Files keep physical names of columns. A purge takes out columns that were dropped.",
    "deletionVectors": "Deleted rows stay in their files until OPTIMIZE or a purge rewrites these. Watch the share of deleted rows.",
    "domainMetadata": _BOOKKEEPING,
    "v2Checkpoint": "Checkpoints may be in parts, of which a new one can use some again.",
    "variantType": _VARIANTS,
    "variantType-preview": _VARIANTS,
    "variantShredding": _VARIANTS,
    "variantShredding-preview": _VARIANTS,
    "timestampNanos": "Timestamps of nanoseconds. It changes nothing for maintenance.",
    "materializePartitionColumns": "Files hold the partition columns, too, and OPTIMIZE writes them.",
    "timestampNtz": "Timestamps without a time zone. It changes nothing for maintenance.",
    "vacuumProtocolCheck": "VACUUM looks at the protocol of the newest version before it deletes, as this one always does.",
    "typeWidening": _WIDER,
    "typeWidening-preview": _WIDER,
    "inCommitTimestamp": "Each commit states its time, so retentions do not depend on the clock of the store.",
    "checkpointProtection": "A log cleanup may not delete checkpoints before a version that the table names.",
    "columnMappingUsageTracking": _BOOKKEEPING,
    "rowTracking": "Rows have ids. OPTIMIZE keeps them, which takes two more columns in the new files.",
    "clustering": "OPTIMIZE orders rows by the clustering columns, and rewrites more than small files.",
}
_UNKNOWN = "This release does not know the feature."


def feature_note(name: str) -> dict[str, Any]:
    """
    :param name: name of the feature, as a reading has it.
    """
    feature = FEATURES.get(name)
    if feature is None:
        return {"name": printable(name), "note": _UNKNOWN, "refused": [one.value for one in Operation]}
    why = next(iter((feature.refused or {}).values()), "")
    note = NOTES.get(name) or f"{why[:1].upper()}{why[1:]}."
    return {"name": name, "note": note, "refused": [one.value for one in feature.refused or {}]}


#: Deepest level and longest list of what is passed on of a record as it is.
_MAX_DEPTH, _MAX_ITEMS = 8, 200
#: Versions that a table's page shows, and lines of its newest plan.
MAX_VERSIONS, _MAX_PLAN_LINES = 150, 40
#: By the beginning of ``commitInfo.engineInfo``, the program that wrote a version.
_WRITERS = {
    "airflow-provider-delta": "airflow-provider-delta",
    "delta-rs": "delta-rs",
    "Apache-Spark": "Spark",
    "Databricks": "Databricks",
    "Trino": "Trino",
    "Kernel": "Delta Kernel",
}
#: What changes files and no row, in the words of Spark, which others use as well.
_MAINTENANCE = ("OPTIMIZE", "REORG", "VACUUM START", "VACUUM END", "FSCK")


def table_view(table: str, records: Iterable[Record], watch: Watch | None = None) -> dict[str, Any]:
    """
    :param records: records of the table that the reader may see, in any order.
    """
    newest_first = sorted(records, key=lambda record: record.time_ms, reverse=True)
    every = [record for record in newest_first if record.kind == RUN]
    ended = [record for record in newest_first if not record.has_failed]
    readings = [record for record in ended if record.kind == HEALTH]
    runs = [record for record in ended if record.kind == RUN]
    plan = next((record for record in runs if record.status == "planned"), None)
    known = newest_reading(readings[0] if readings else None, runs)
    return {
        "row": row_of(
            table,
            ended,
            [record for record in newest_first if record.has_failed],
            [_trend_point(one) for one in readings[:_MAX_TREND][::-1]],
            watch,
        ),
        "health": None if known is None else health_view(known),
        "trend": [_point(reading) for reading in reversed(readings)],
        "runs": [run_line(record) for record in every],
        "versions": versions(readings),
        "features": [] if known is None else [feature_note(name) for name in _features(known)],
        "plan": None if plan is None else {"run": run_line(plan), "lines": lines_of(plan)[:_MAX_PLAN_LINES]},
    }


def versions(readings: Iterable[Record]) -> list[dict[str, Any]]:
    """The versions that readings have found in the log, newest first. Each reading lists its newest few.

    :param readings: readings of health, newest first.
    """
    found: dict[float, dict[str, Any]] = {}
    for reading in readings:
        for commit in objects(at(reading.body, "facts", "commits")):
            version = number(commit, "version")
            if version is not None and version not in found:
                operation, engine = text(commit, "operation"), text(commit, "engineInfo")
                found[version] = {
                    "version": version,
                    "time_ms": number(commit, "timestamp"),
                    "operation": operation,
                    "engine": engine,
                    "writer": None if engine is None else writer_of(engine),
                    "is_maintenance": operation in _MAINTENANCE,
                }
    return [found[version] for version in sorted(found, reverse=True)[:MAX_VERSIONS]]


def writer_of(engine: str) -> str:
    """A short name of the program that an ``engineInfo`` names."""
    known = next((name for start, name in _WRITERS.items() if engine.startswith(start)), None)
    return known or engine.partition("/")[0].partition(":")[0][:40]


def _features(reading: Record) -> list[str]:
    names = at(reading.body, "facts", "features")
    return [name for name in names if isinstance(name, str)][:_MAX_ITEMS] if isinstance(names, list) else []


def _trend_point(reading: Record) -> TrendPoint:
    files, small = number(reading.body, "facts", "numFiles"), number(reading.body, *_SMALL)
    return TrendPoint(reading.time_ms, reading.source.dag_id, _whole(files), _whole(small))


def _whole(value: float | None) -> int | None:
    return None if value is None else int(value)


def lines_of(record: Record) -> list[str]:
    """A report in words."""
    lines = record.body.get("lines")
    return (
        [shown(line) for line in lines if isinstance(line, str)][:_MAX_ITEMS]
        if isinstance(lines, list)
        else []
    )


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
    lines = lines_of(record)
    left = at(body, "selection", "left")
    size = {name: number(body, "table_size", name) for name in _SIZES}
    return {
        "number": None if record.has_failed else record.number,
        "operation": shown(record.operation),
        "status": shown(record.status),
        "time_ms": record.time_ms,
        "duration_ms": None if started is None or finished is None else max(0, finished - started),
        "version": number(body, "version"),
        "read_version": number(body, "read_version"),
        "engine": text(body, "engine"),
        "summary": lines[0] if lines else None,
        "error": text(body, "error", "message"),
        "table_size": size if any(value is not None for value in size.values()) else None,
        "deleted_files": _total(body, "numDeletedFiles", "numPurgedFiles"),
        "deleted_bytes": _total(body, "sizeOfDeletedData", "sizeOfPurgedData"),
        "dropped_bins": number(body, "dropped_bins"),
        "left_files": number(body, "left", "files"),
        "left_by_reason": {
            shown(str(name)): files
            for name, held in (list(left.items())[:_MAX_ITEMS] if isinstance(left, Mapping) else ())
            if (files := number(held, "files"))
        },
        "taken_over_bins": number(body, "earlier_tries", "bins"),
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
        "lines": lines_of(record),
        "report": safe({name: value for name, value in body.items() if name != "lines"}),
        "left_out": [shown(name) for name in record.left_out],
        "health_before": _point(before[-1]) if before else None,
        "health_after": _point(after[0]) if after else None,
    }


_SMALL = ("facts", "optimize", "numFilesToMerge")
#: Readings in the trend of a row.
_MAX_TREND = 20
_SIZES = ("files_before", "files_after", "bytes_before", "bytes_after")


def _point(reading: Record) -> dict[str, Any]:
    facts = ("facts",)
    return {
        "read_ms": reading.time_ms,
        "version": number(reading.body, "version"),
        "status": text(reading.body, "status"),
        "num_files": number(reading.body, *facts, "numFiles"),
        "size_bytes": number(reading.body, *facts, "sizeInBytes"),
        "small_files": number(reading.body, *_SMALL),
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
