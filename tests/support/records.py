"""Records of tasks for tests of the page Delta tables."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from airflow_delta.monitoring.record import Record, Source, read_record, record_of_health, record_of_report
from delta_maintenance.contract import ErrorReport, JobReport

HOUR_MS = 3_600_000
NOW_MS = 1_800_000_000_000
#: Texts that a page could take for markup, or that would turn what stands beside them.
HOSTILE = (
    "<script>alert(1)</script>",
    "\"quoted\" & 'single'",
    "right\u202eto left \u05d0\u05d1",
    "\x1b[31mred\0",
    "x" * 500,
)


def health_document(table: str, status: str = "healthy", **facts: Any) -> dict[str, Any]:
    """A document as :func:`delta_maintenance.health.document.health_of` makes it, with one finding unless `status` is healthy."""
    findings, advice = [], []
    if status != "healthy":
        message = "OPTIMIZE would merge 416 of 422 files; the limit is 10."
        findings = [
            {
                "code": "small_files",
                "severity": "critical" if status == "critical" else "attention",
                "message": message,
                "number": 416,
                "limit": 10,
                "evidence": {"numBins": 6},
            }
        ]
        advice = [
            {
                "operation": "optimize",
                "findings": ["small_files"],
                "why": "416 files (1.2 GiB) → about 6 (1.2 GiB) in 6 partitions.",
                "gain": {"filesBefore": 416, "filesAfter": 6},
                "operator": "DeltaOptimizeOperator",
                "arguments": {},
                "command": f"delta-maintenance optimize {table}",
            }
        ]
    return {
        "health_version": 1,
        "table": table,
        "version": 73,
        "status": status,
        "facts": {
            "measured": NOW_MS,
            "numFiles": 422,
            "sizeInBytes": 1_288_490_188,
            "numDeletionVectors": 0,
            "deletedRowsRatio": 0.02,
            "worstDeletedRowsRatio": 0.05,
            "optimize": {"numFilesToMerge": 416, "numFilesToAddEstimate": 6},
            "log": {
                "checkpointVersion": 70,
                "numCommitsSinceCheckpoint": 3,
                "sizeOfCommitsSinceCheckpoint": 2_000,
                "checkpointInterval": 10,
                "firstVersion": 0,
                "numFiles": 74,
                "expired": {"numFiles": 0, "sizeInBytes": 0},
            },
            "removedFiles": {
                "reclaimable": {"numFiles": 12, "sizeInBytes": 4_096},
                "held": {"numFiles": 1, "sizeInBytes": 100},
            },
            "features": ["deletionVectors"],
            "refusals": {},
            "lastRuns": {
                "optimize": {"version": 60, "timestamp": NOW_MS - 48 * HOUR_MS, "engineInfo": "delta-rs"}
            },
            **facts,
        },
        "findings": findings,
        "recommendations": advice,
    }


def health(
    table: str,
    status: str = "healthy",
    *,
    at_ms: int = NOW_MS,
    dag_id: str = "nightly",
    number: int = 1,
    **facts: Any,
) -> Record:
    raw = record_of_health(health_document(table, status, **facts))
    return read_record(raw, Source(dag_id, "run", "health"), at_ms, number)


def run(
    table: str,
    status: str = "committed",
    *,
    operation: str = "optimize",
    at_ms: int = NOW_MS,
    dag_id: str = "nightly",
    number: int = 1,
    **members: Any,
) -> Record:
    report = JobReport(operation, table, status, version=74, read_version=73, **members)
    return read_record(
        record_of_report(report, ["It did this."]), Source(dag_id, "run", operation), at_ms, number
    )


def failure(table: str, message: str = "The store is away.", **arguments: Any) -> Record:
    return run(table, "failed", error=ErrorReport("StorageError", message), **arguments)


def newest_of(records: Iterable[Record]) -> dict[tuple[str, str], Record]:
    """The newest record of each operation and DAG."""
    newest: dict[tuple[str, str], Record] = {}
    for record in records:
        key = (record.operation, record.source.dag_id)
        held = newest.get(key)
        if held is None or (record.time_ms, record.number) >= (held.time_ms, held.number):
            newest[key] = record
    return newest
