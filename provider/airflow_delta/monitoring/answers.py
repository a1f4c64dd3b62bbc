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


class Sight(Work):
    """What a sensor has waited for."""

    version: float | None


class Watch(BaseModel):
    """What a watcher remembers of a table.

    :param asset: name of the asset that it watches for.
    :param version: place of the watcher in the table's log; null: it has none yet.
    """

    asset: str
    version: int | None


class Trend(BaseModel):
    """Figures of the newest readings, oldest first."""

    num_files: list[int | None]
    small_files: list[int | None]


class Row(BaseModel):
    """One table. A figure is null where no task has reported it.

    :param is_exact: whether `table` is the whole address, as tasks have it.
    :param status: status of the newest reading, without what has been done since; `unreadable`: no task could open the table since.
    :param finding: the worst finding; where the table is `unreadable`, the error that says so, by the name of its class.
    :param next: the first recommendation that no run has carried out since the reading, if there is one.
    :param is_next_done: whether every recommendation has been carried out; `next` is then the first of them.
    """

    id: str
    table: str
    is_exact: bool
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
    is_next_done: bool
    last_runs: dict[str, LastRun]
    last_work: Work | None
    failure: Failure | None
    sight: Sight | None
    watch: Watch | None
    trend: Trend


class BrokenRecord(TaskInstanceName):
    """An entry of a task's state store that has the key of a record, and is none that this release reads."""

    time_ms: int
    why: str


class Fleet(BaseModel):
    """A page of tables.

    :param counts: numbers of tables by status before any choice, and of tables whose newest run of an operation failed.
    :param total: tables that the choice leaves, of which `tables` is a page.
    :param maintenance_dag: the DAG that the caller may start for a table; null: none is configured, or they may not.
    """

    counts: dict[str, int]
    total: int
    offset: int
    tables: list[Row]
    broken: list[BrokenRecord]
    days: int
    maintenance_dag: str | None


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
    left_by_reason: dict[str, float]
    taken_over_bins: float | None


class Version(BaseModel):
    """A version of a table, by what its writer noted.

    :param writer: short name of the program; null: it is not noted.
    :param is_maintenance: whether the version changed files, not rows.
    """

    version: float
    time_ms: float | None
    operation: str | None
    engine: str | None
    writer: str | None
    is_maintenance: bool


class FeatureNote(BaseModel):
    """A feature of a table, and what it means for maintenance.

    :param refused: operations that refuse a table with it.
    """

    name: str
    note: str
    refused: list[str]


class Plan(BaseModel):
    """The newest plan of a dry run."""

    run: RunLine
    lines: list[str]


class TableView(BaseModel):
    """One table: its newest reading, the readings over time (oldest first), its runs and versions (newest first)."""

    row: Row
    health: Health | None
    trend: list[Point]
    runs: list[RunLine]
    versions: list[Version]
    features: list[FeatureNote]
    plan: Plan | None
    maintenance_dag: str | None = None


class ReportedTable(BaseModel):
    """What a task instance has reported of one table.

    :param kind: `run`, `health` or `sight`.
    """

    kind: str
    row: Row
    run: RunLine | None


class TaskView(BaseModel):
    told: list[ReportedTable]


class RunView(BaseModel):
    """One run: its report, and the readings of health before and after it."""

    table: str
    run: RunLine
    lines: list[str]
    report: dict[str, Any]
    left_out: list[str]
    health_before: Point | None
    health_after: Point | None
