"""A fleet under maintenance for some months, simulated: our decision against the rules of others.

``./dev campaign fleet [--tables N] [--days N] [--seed N] [--chart FILE]`` simulates the same writes under each way of choosing the tables
of a night. Rewrites alone are simulated, and all of a night happen at its beginning. A run pays if queries save what it cost within a month;
what an overwrite of the table removes saves nothing more. Costs are in the proportion of the decision's stand-in prices.

The decision is the real one, over facts of a survey that are made of the figures, with the memory of all nights.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import svg_chart
from tests.support.fleet.nights import decided, night_of, successes
from tests.support.fleet.selectors import (
    Selected,
    Selector,
    amoro,
    every_table,
    openhouse,
    openhouse_within,
    small_files_over,
)
from tests.support.fleet.simulated_tables import Floats, Masks, SimulatedTables, Traits

from delta_maintenance.fleet.account.night import next_history
from delta_maintenance.fleet.decision.forecast import STAND_IN_PRICES, price
from delta_maintenance.fleet.history import Cost, FleetHistory
from delta_maintenance.fleet.policy.reading import WrittenPolicy, policy_of
from delta_maintenance.units import DAY_MS, HOUR_MS, format_bytes

#: 2026-06-01 00:00 UTC.
_BEGINNING_MS = 1_780_272_000_000
_EVENING_HOUR = 22
#: 5 TiB for 3,000 tables.
_BYTES_A_TABLE = (5 << 40) / 3000
_PAYS_WITHIN_DAYS = 30
_BYTES_PER_SECOND = 100e6
_PRICES = {name: getattr(STAND_IN_PRICES, name) for name in STAND_IN_PRICES.__struct_fields__}

#: Chooses the runs of a night: tables, the part of its work that each does, and whether it merges small files.
Chosen = tuple[Selected, Floats, Masks]
Chooser = Callable[[SimulatedTables, int], Chosen]


@dataclass(slots=True)
class _Runs:
    """Every run: its table, hour, bytes that it read, and files and bytes that queries no longer read."""

    rows: list[Floats] = field(default_factory=list)

    def add(self, table: Selected, hour: int, read: Floats, files: Floats, freed: Floats) -> None:
        hours = np.full(len(table), hour, float)
        self.rows.append(np.stack([table.astype(float), hours, read, files, freed]))

    def columns(self) -> Floats:
        return np.concatenate(self.rows, axis=1) if self.rows else np.zeros((5, 0))


@dataclass(slots=True)
class Outcome:
    """What came of one way of choosing.

    :ivar read_bytes: bytes read by all rewrites; ``nights`` by night.
    :ivar unhealthy_hours: hours of all tables together; ``unhealthy_by_day`` are tables that are unhealthy at the end of each day.
    :ivar unpaid: part of the runs that did not pay.
    """

    read_bytes: float
    unhealthy_hours: float
    num_runs: int
    unpaid: float
    nights: list[float]
    unhealthy_by_day: list[float]
    seconds: float

    def over(self, budget_bytes: float) -> int:
        return sum(read > budget_bytes * (1 + 1e-9) for read in self.nights)


def by_rule(select: Selector) -> Chooser:
    def choose(tables: SimulatedTables, _day: int) -> Chosen:
        return whole(select(tables))

    return choose


def whole(tables: Selected) -> Chosen:
    return tables, np.ones(len(tables)), np.ones(len(tables), bool)


def nothing(_tables: SimulatedTables, _day: int) -> Chosen:
    return whole(np.zeros(0, np.int64))


def policy(budget_bytes: float | None, within: str = "24h") -> WrittenPolicy:
    """The policy of the simulation: defaults, but for trust, which takes nights, and for what is not simulated."""
    document: dict[str, Any] = {
        "healthy": {"checkpoint": "ignore"},
        "window": "22:00-06:00 UTC",
        "trust": {"new_table": "auto"},
        "within": within,
        "prices": _PRICES,
    }
    if budget_bytes is not None:
        document["budget"] = {"read": int(budget_bytes)}
    return policy_of(document)


class Decided:
    """Our decision as a way of choosing: it remembers its nights."""

    def __init__(self, written: WrittenPolicy, traits: Traits) -> None:
        self._written, self._history = written, FleetHistory()
        self._names = [f"s3://lake/{number}" for number in range(len(traits.kind))]
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._partitions = [("day",) if one else () for one in traits.is_partitioned]

    def __call__(self, tables: SimulatedTables, day: int) -> Chosen:
        now_ms = _BEGINNING_MS + day * DAY_MS + _EVENING_HOUR * HOUR_MS
        surveyed = [
            tables.figures(number, now_ms).surveyed(name, now_ms, partition_columns=self._partitions[number])
            for number, name in enumerate(self._names)
        ]
        decision = decided(self._written, surveyed, now_ms, self._history)
        night = night_of(self._written, surveyed, self._history, decision, successes(decision))
        self._history = next_history(night)
        rewrites = [
            (self._numbers[unit.table], work)
            for unit in decision.units
            for work in unit.operations
            if work.operation in ("optimize", "purge")
        ]
        parts = [
            work.options.get("max_bytes", np.inf) / max(work.gain["bytesBefore"], 1) for _, work in rewrites
        ]
        return (
            np.array([number for number, _ in rewrites], np.int64),
            np.minimum(np.array(parts, float), 1),
            np.array([work.operation == "optimize" for _, work in rewrites], bool),
        )


def simulate(traits: Traits, days: int, choose: Chooser) -> Outcome:
    began = time.process_time()
    tables, runs = SimulatedTables(traits), _Runs()
    nights, unhealthy = [], []
    for hour in range(days * 24):
        tables.write(hour)
        if hour % 24 == _EVENING_HOUR:
            chosen, part, merges = choose(tables, hour // 24)
            read, files, freed = tables.rewrite(chosen, part, merges)
            runs.add(chosen, hour, read, files, freed)
            nights.append(float(read.sum()))
        if hour % 24 == 23:
            unhealthy.append(float(tables.is_unhealthy.sum()))
    columns = runs.columns()
    unpaid = float((~_paid(traits, days, columns)).mean()) if columns.shape[1] else 0.0
    return Outcome(
        read_bytes=sum(nights),
        unhealthy_hours=float(tables.unhealthy_hours.sum()),
        num_runs=columns.shape[1],
        unpaid=unpaid,
        nights=nights,
        unhealthy_by_day=unhealthy,
        seconds=time.process_time() - began,
    )


def _paid(traits: Traits, days: int, runs: Floats) -> Any:
    """Which runs save what they cost, within a month and before the table is overwritten."""
    table, hour, read, files, freed = runs
    table = table.astype(np.int64)
    lasts = np.minimum(
        _next_overwrite(traits, days)[hour.astype(np.int64), table] - hour, _PAYS_WITHIN_DAYS * 24
    )
    queries = traits.reads[table] * lasts / 24
    per_file = price(Cost(0, 0.01, 3), STAND_IN_PRICES)
    per_byte = price(Cost(1), STAND_IN_PRICES)
    saved = queries * (files * per_file + freed * per_byte)
    fixed = price(Cost(0, 1, 12), STAND_IN_PRICES)
    per_read = price(Cost(1, 1 / _BYTES_PER_SECOND), STAND_IN_PRICES)
    requests = price(Cost(requests=3), STAND_IN_PRICES) * files
    return saved >= fixed + per_read * read + requests


def _next_overwrite(traits: Traits, days: int) -> Floats:
    """By hour and table, the hour of the next overwrite."""
    hours = (days + _PAYS_WITHIN_DAYS) * 24
    found = np.full((hours + 1, len(traits.kind)), np.inf)
    overwrites = traits.is_kind("overwrite")
    for hour in range(hours - 1, 0, -1):
        is_now = overwrites & (traits.commits_in(hour) > 0)
        # What a run of this hour writes is removed by the next hour's overwrite at the earliest.
        found[hour - 1] = np.where(is_now, hour, found[hour])
    return found


def compared(traits: Traits, days: int, budget_bytes: float) -> Mapping[str, Outcome]:
    """The outcome of each way of choosing, by its name."""
    found: dict[str, Outcome] = {}

    def run(name: str, choose: Chooser, budget: float = budget_bytes) -> Outcome:
        found[name] = simulate(traits, days, choose)
        print(_row(name, found[name], budget), flush=True)
        return found[name]

    run("no maintenance", nothing)
    run("OPTIMIZE of every table each night", by_rule(every_table))
    run("more than 10 small files", by_rule(small_files_over(10)))
    run("Glue: more than 100 files below 75 %", by_rule(small_files_over(100)))
    run("Amoro", by_rule(amoro))
    ten = run("OpenHouse, ten tables a night", by_rule(openhouse))
    as_ten = ten.read_bytes / days
    run("the decision, at these bytes", Decided(policy(as_ten), traits), as_ten)
    ours = run("the decision", Decided(policy(budget_bytes), traits))
    run("OpenHouse's order, at these bytes", by_rule(openhouse_within(ours.read_bytes / days)))
    run("the decision, within: 30d", Decided(policy(budget_bytes, "30d"), traits))
    run("the decision, within: 365d", Decided(policy(budget_bytes, "365d"), traits))
    run("the decision, without a budget", Decided(policy(None), traits), float("inf"))
    return found


def _row(name: str, outcome: Outcome, budget_bytes: float) -> str:
    return (
        f"{name:<44} {format_bytes(outcome.read_bytes):>10} {outcome.unhealthy_hours / 1000:>12,.0f} "
        f"{outcome.num_runs:>9,} {outcome.unpaid:>8.1%} {outcome.over(budget_bytes):>6} {outcome.seconds:>8.0f} s"
    )


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--chart", type=Path, help="write a chart to this SVG file")
    asked = parser.parse_args()
    budget_bytes = asked.tables * _BYTES_A_TABLE
    print(
        f"{asked.tables:,} tables, {asked.days} days, budget {format_bytes(budget_bytes)} a night, seed {asked.seed}"
    )
    print(f"{'':<44} {'read':>10} {'unhealthy h':>12} {'runs':>9} {'unpaid':>8} {'over':>6} {'cpu':>8}")
    print(f"{'':<44} {'':>10} {'(thousands)':>12} {'':>9} {'':>8} {'nights':>6}")
    found = compared(Traits.drawn(asked.tables, asked.seed), asked.days, budget_bytes)
    if asked.chart is not None:
        _draw(asked.chart, asked.tables, found)


def _draw(path: Path, num_tables: int, found: Mapping[str, Outcome]) -> None:
    shown = {
        "decision": "the decision",
        "OpenHouse's order, same bytes": "OpenHouse's order, at these bytes",
        "Glue": "Glue: more than 100 files below 75 %",
        "OpenHouse, ten": "OpenHouse, ten tables a night",
    }
    series = {
        name: [100 * count / num_tables for count in found[of].unhealthy_by_day] for name, of in shown.items()
    }
    most = 10 * np.ceil(max(map(max, series.values())) / 10)
    svg_chart.lines(path, "Unhealthy tables at the end of each day, in per cent", "", most, series, "day")


if __name__ == "__main__":
    main()
