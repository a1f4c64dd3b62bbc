"""Random fleets: figures of tables, histories and policies, also odd ones."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from delta_log.transaction.commit_body import ENGINE_INFO
from delta_maintenance.contract import ErrorReport
from delta_maintenance.fleet.facts import SurveyedTable, UnreadTable
from delta_maintenance.fleet.history import Cost, FleetHistory, PastRun, TableHistory
from delta_maintenance.fleet.policy.reading import WrittenPolicy, policy_of
from delta_maintenance.health.facts import CommitFact, LastRun, Refusal
from delta_maintenance.units import DAY_MS
from tests.support.fleet.nights import MONDAY_EVENING_MS
from tests.support.fleet.table_figures import TableFigures

MOST = 2**62
PRICES = {"gib_read": 0.0004, "gib_month": 0.023, "vcpu_hour": 0.05, "requests_1000": 0.0005}
OPERATIONS = ("purge", "optimize", "checkpoint", "compact-log", "cleanup-log", "vacuum")
#: Zero, usual and huge.
numbers = st.one_of(st.just(0), st.integers(1, 20_000), st.integers(0, MOST))
sizes = st.one_of(st.just(0), st.integers(1, 1 << 44), st.integers(0, MOST))
moments = st.one_of(st.integers(MONDAY_EVENING_MS - 30 * DAY_MS, MONDAY_EVENING_MS), st.integers(-MOST, MOST))
engines = st.sampled_from([None, "", "Apache-Spark/4.0", "delta-rs:1.6", ENGINE_INFO])
commits = st.builds(
    CommitFact,
    version=st.integers(0, MOST),
    timestamp_ms=moments,
    operation=st.sampled_from([None, "WRITE", "MERGE", "DELETE", "OPTIMIZE"]),
    engine=engines,
)
last_runs = st.dictionaries(
    st.sampled_from(["optimize", "purge", "vacuum", "checkpoint"]),
    st.builds(LastRun, version=st.integers(0, 9), timestamp_ms=moments, engine=engines),
    max_size=2,
)
refusals = st.dictionaries(
    st.sampled_from(["optimize", "checkpoint", "vacuum"]), st.just(Refusal(("odd",), "it is odd")), max_size=1
)
figures = st.builds(
    TableFigures,
    num_small=numbers,
    small_bytes=sizes,
    num_large=numbers,
    large_bytes=sizes,
    deleted=st.floats(0, 1),
    tail_commits=st.integers(0, 10_000),
    expired=numbers,
    reclaimable=st.tuples(numbers, sizes),
    held_bytes=sizes,
    looks=st.one_of(st.none(), st.integers(0, 9)),
    version=st.integers(0, MOST),
    commits=st.lists(commits, max_size=4).map(tuple),
    last_runs=st.one_of(st.just({}), last_runs),
    refusals=st.one_of(st.just({}), refusals),
)
properties = st.dictionaries(
    st.sampled_from(
        [
            "delta-maintenance.enabled",
            "delta-maintenance.deletions",
            "delta-maintenance.quiet",
            "delta-maintenance.retain",
            "delta.autoOptimize.autoCompact",
            "delta.deletedFileRetentionDuration",
        ]
    ),
    st.sampled_from(["true", "false", "auto", "never", "15m", "30d", "interval 1 week", "odd"]),
    max_size=2,
)


@st.composite
def surveyed(draw: st.DrawFn, name: str) -> SurveyedTable | UnreadTable:
    if draw(st.integers(0, 9)) == 0:
        return UnreadTable(name, draw(moments), ErrorReport("environment", "NotATable", "it cannot be read"))
    return draw(figures).surveyed(
        name,
        draw(st.one_of(st.just(MONDAY_EVENING_MS), moments)),
        properties=draw(properties),
        partition_columns=draw(st.sampled_from([(), ("day",)])),
    )


@st.composite
def fleets(draw: st.DrawFn, max_size: int = 6) -> list[SurveyedTable | UnreadTable]:
    """Tables of different names, in any order."""
    count = draw(st.integers(0, max_size))
    tables = [draw(surveyed(f"s3://lake/{number}")) for number in range(count)]
    return draw(st.permutations(tables))


costs = st.builds(
    Cost,
    st.floats(0, 1e18, allow_nan=False),
    st.floats(0, 1e9, allow_nan=False),
    st.floats(0, 1e9, allow_nan=False),
)
runs = st.builds(
    PastRun,
    operation=st.sampled_from(OPERATIONS),
    started_ms=st.integers(MONDAY_EVENING_MS - 10 * DAY_MS, MONDAY_EVENING_MS),
    status=st.sampled_from(["succeeded", "failed", "skipped"]),
    forecast=costs,
    outcome=costs,
    kind=st.sampled_from(["", "conflict", "environment"]),
    version=st.one_of(st.none(), st.integers(0, 9)),
)
table_histories = st.builds(
    TableHistory,
    first_seen_ms=moments,
    last_seen_ms=moments,
    reports=st.integers(0, 100),
    unhealthy_since_ms=st.one_of(st.none(), moments),
    missed_windows=st.integers(0, 1000),
    announced=st.dictionaries(st.sampled_from(["vacuum", "cleanup-log"]), moments, max_size=2),
    runs=st.lists(runs, max_size=5).map(lambda found: tuple(sorted(found, key=lambda run: run.started_ms))),
)


def histories(max_size: int = 6) -> st.SearchStrategy[FleetHistory]:
    names = st.integers(0, max_size).map(lambda number: f"s3://lake/{number}")
    return st.builds(FleetHistory, st.dictionaries(names, table_histories, max_size=max_size))


budgets = st.fixed_dictionaries(
    {},
    optional={
        "read": st.integers(1, 1 << 45),
        "worker_hours": st.floats(0.001, 1e6),
        "requests": st.integers(0, 10_000_000),
    },
)


@st.composite
def policies(draw: st.DrawFn) -> WrittenPolicy:
    document: dict[str, Any] = {
        "budget": draw(budgets),
        "within": draw(st.sampled_from(["1m", "24h", "30d"])),
        "window": draw(st.sampled_from(["always", "21:00-03:00 Europe/Berlin", "02:30-03:00 Europe/Berlin"])),
        "priority": draw(st.integers(-1000, 1000)),
        "disruption": {"quiet": draw(st.sampled_from(["0m", "15m", "30d"]))},
        "trust": {
            "new_table": draw(st.sampled_from(["auto", "report"])),
            "deletions": draw(st.sampled_from(["auto", "approve", "never"])),
        },
        "other_maintainer": draw(st.sampled_from(["report", "maintain"])),
    }
    if draw(st.booleans()):
        document["prices"] = PRICES
        if draw(st.booleans()):
            document["budget"] = {**document["budget"], "cost": draw(st.floats(1e-6, 1e6))}
    return policy_of(document)
