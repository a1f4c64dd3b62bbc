"""The forms of the API's answers about fleets."""

from __future__ import annotations

from pydantic import BaseModel

from airflow_delta.monitoring.answers import TaskInstanceName


class Cost(BaseModel):
    read_bytes: float
    worker_seconds: float
    requests: float


class DoneWork(BaseModel):
    """One operation that ran; `message` says what went wrong."""

    operation: str
    status: str
    forecast: Cost
    outcome: Cost
    message: str = ""
    saved_files: int = 0
    saved_bytes: int = 0


class LeftWork(BaseModel):
    """Operations that were not done, and why; all of them, where none is named."""

    reason: str
    why: str
    operations: list[str] = []
    next_ms: int | None = None


class DueWork(BaseModel):
    operation: str
    why: str
    cost: Cost


class TableNight(BaseModel):
    """One table in a night.

    :param id: digest of its address.
    :param deadline_ms: moment by which the policy wants it healthy again; null: it is let wait.
    :param value: what its work saves within a month, in the currency of the policy's prices.
    """

    id: str
    table: str
    state: str
    owner: str | None = None
    done: list[DoneWork] = []
    left: list[LeftWork] = []
    due_next: list[DueWork] = []
    left_next: list[LeftWork] = []
    value: float = 0
    unhealthy_since_ms: int | None = None
    deadline_ms: int | None = None
    num_files: int | None = None
    size_bytes: int | None = None
    small_files: int | None = None
    reclaimable_bytes: int | None = None
    written_ms: int | None = None


class Figures(BaseModel):
    started_ms: int
    num_tables: int
    num_unhealthy: int
    num_unread: int
    num_files: int
    size_bytes: int
    reclaimable_bytes: int
    num_done: int
    num_failed: int


class BudgetUse(BaseModel):
    """One resource of the window: what its runs took, and what was expected of them; `limit` is null without one."""

    resource: str
    limit: float | None
    used: float
    forecast: float


class NextNight(BaseModel):
    starts_ms: int
    num_tables: int
    cost: Cost
    budget: list[BudgetUse]


class Alert(BaseModel):
    """`kind` is `failed`, `late`, `over_budget` or `not_run`."""

    kind: str
    why: str
    num_tables: int = 0


class Hold(BaseModel):
    """A pause, or an acknowledgement of failures, of the tables that match a pattern."""

    kind: str
    match: str
    why: str
    until: str | None = None


class Group(BaseModel):
    name: str
    num_tables: int
    num_unhealthy: int
    num_failed: int
    num_done: int
    small_files: int
    size_bytes: int
    reclaimable_bytes: int


class FleetLine(TaskInstanceName):
    """One fleet, and the task instance that has told of its newest night.

    :param asset_id: number of its asset, by which the other routes name it.
    :param broken: why its night cannot be read; empty: it can.
    """

    asset_id: int
    asset: str
    broken: str
    figures: Figures | None
    alerts: list[Alert]


class Fleets(BaseModel):
    fleets: list[FleetLine]


class Fleet(FleetLine):
    """The newest night of a fleet, and a page of its tables.

    :param counts: numbers of all tables by state, and of those that are `unhealthy` and `late`.
    :param totals: sums over the tables that the choice leaves, of which there are `total`.
    :param groups: the same by owner or by directory, for at most 100 groups of `num_groups`.
    :param holds: what persons say now; `night_holds` is what the night was decided by.
    :param broken_holds: why they cannot be read; empty: they can.
    :param may_change: whether the caller may pause and acknowledge, by Airflow's REST API.
    """

    run_id_of_fleet: str
    started_ms: int
    finished_ms: int
    source: str
    interval_ms: int | None
    budget: list[BudgetUse]
    next: NextNight
    trend: list[Figures]
    counts: dict[str, int]
    total: int
    offset: int
    tables: list[TableNight]
    totals: Group
    groups: list[Group]
    num_groups: int
    holds: list[Hold]
    night_holds: list[Hold]
    broken_holds: str
    may_change: bool
