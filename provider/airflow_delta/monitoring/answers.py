"""The forms of the API's answers, which its OpenAPI description publishes."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel


class TaskInstanceName(BaseModel):
    dag_id: str
    run_id: str
    task_id: str
    map_index: int


class WorstFinding(BaseModel):
    code: str | None
    severity: str | None
    message: str | None


class NextAction(BaseModel):
    operation: str | None
    why: str | None
    operator: str | None


class LastRun(BaseModel):
    time_ms: float
    status: str
    engine: str | None


class Work(TaskInstanceName):
    operation: str
    status: str
    time_ms: int


class Failure(Work):
    message: str | None


class Row(BaseModel):
    """One table. A figure is null where no task has told it."""

    id: str
    table: str
    name: str
    status: str
    version: float | None
    read_ms: int | None
    finding: WorstFinding | None
    num_findings: int
    next: NextAction | None
    size_bytes: float | None
    num_files: float | None
    small_files: float | None
    deleted_rows_ratio: float | None
    commits_since_checkpoint: float | None
    reclaimable_bytes: float | None
    is_older_than_work: bool
    last_runs: dict[str, LastRun]
    last_work: Work | None
    failure: Failure | None


class BrokenEvent(TaskInstanceName):
    """An event of the monitoring asset that is no record of a task of this provider."""

    time_ms: int
    why: str


class Fleet(BaseModel):
    """A page of tables.

    :param counts: tables by status before any choice, and those whose newest run of an operation failed.
    :param total: tables that the choice leaves, of which `tables` is a page.
    """

    counts: dict[str, int]
    total: int
    offset: int
    tables: list[Row]
    broken: list[BrokenEvent]
    days: int


class Point(BaseModel):
    """One reading of health among others."""

    read_ms: int
    version: float | None
    status: str | None
    num_files: float | None
    size_bytes: float | None
    small_files: float | None
    deleted_rows_ratio: float | None
    commits_since_checkpoint: float | None


class Health(TaskInstanceName):
    """A reading, as `delta-maintenance health --json` prints it."""

    read_ms: int
    version: float | None
    status: str | None
    facts: dict[str, Any]
    findings: list[dict[str, Any]]
    recommendations: list[dict[str, Any]]
    left_out: list[str]


class RunLine(Work):
    number: int | None
    duration_ms: float | None
    version: float | None
    read_version: float | None
    engine: str | None
    summary: str | None
    error: str | None
    table_size: dict[str, float | None] | None
    deleted_files: float | None
    deleted_bytes: float | None
    dropped_bins: float | None
    left_files: float | None


class TableView(BaseModel):
    """One table: its newest reading, the readings over time (oldest first), and its runs (newest first)."""

    row: Row
    health: Health | None
    trend: list[Point]
    runs: list[RunLine]


class RunView(BaseModel):
    """One run: its report, and the readings of health before and after it."""

    table: str
    run: RunLine
    lines: list[str]
    report: dict[str, Any]
    left_out: list[str]
    health_before: Point | None
    health_after: Point | None
