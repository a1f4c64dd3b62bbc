"""How long it takes to decide over 10,000 tables with a memory of 90 days. ``./dev bench fleet_decision``.

The tables are those of the simulation (`tests/campaigns/fleet.py`) after a month without maintenance. Each has been seen in 90 nights,
and its history has 20 runs, which is as many as are kept. What is measured is the pure decision: facts and history are in memory.

0.85 s of a processor (median of three), and 17 MiB beside the facts and the history, on a busy machine of two cores with Python 3.11.
"""

from __future__ import annotations

import argparse
import resource
import time

import numpy as np
from tests.support.fleet.nights import MONDAY_EVENING_MS, trusted
from tests.support.fleet.simulated_tables import SimulatedTables, Traits

from delta_maintenance.fleet.decision.decide import FleetState, decide
from delta_maintenance.fleet.facts import SurveyedTable
from delta_maintenance.fleet.history import MAX_RUNS, Cost, FleetHistory, PastRun, TableHistory
from delta_maintenance.units import DAY_MS

_DAYS_BEFORE, _NIGHTS = 30, 90


def surveyed_tables(count: int) -> list[SurveyedTable]:
    tables = SimulatedTables(Traits.drawn(count, 1))
    for hour in range(_DAYS_BEFORE * 24):
        tables.write(hour)
    return [
        tables.figures(number, MONDAY_EVENING_MS).surveyed(f"s3://lake/{number}", MONDAY_EVENING_MS)
        for number in range(count)
    ]


def remembered(tables: list[SurveyedTable]) -> FleetHistory:
    runs = tuple(
        PastRun("optimize", MONDAY_EVENING_MS - n * DAY_MS, "succeeded", Cost(1e9, 10, 100), Cost(1.1e9, 12))
        for n in range(MAX_RUNS, 0, -1)
    )
    first_ms, last_ms = MONDAY_EVENING_MS - _NIGHTS * DAY_MS, MONDAY_EVENING_MS - DAY_MS
    one = TableHistory(first_ms, last_ms, reports=_NIGHTS, runs=runs)
    return FleetHistory({table.table: one for table in tables})


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=5)
    asked = parser.parse_args()
    tables = surveyed_tables(asked.tables)
    state = FleetState(tables, remembered(tables), MONDAY_EVENING_MS)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    written = trusted(budget={"read": "5TiB"})
    seconds = []
    for _ in range(asked.rounds):
        began = time.process_time()
        decision = decide(written, state)
        seconds.append(time.process_time() - began)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(
        f"{asked.tables:,} tables, {len(decision.units):,} units: {np.median(seconds):.2f} s of a processor "
        f"({min(seconds):.2f} to {max(seconds):.2f}), {(after - before) / 1024:.0f} MiB of memory above {before / 1024:.0f} MiB"
    )


if __name__ == "__main__":
    main()
