"""Nights of a fleet while delta-rs writes to a third of its tables; `./dev campaign fleet-nights` is the long form."""

from __future__ import annotations

import random
import time
from pathlib import Path

from tests.support.fleet.written_tables import DeltaRs, WrittenTable, unannounced

from delta_log.runtime import Runtime
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.fleet.account.night import Night
from delta_maintenance.fleet.policy.reading import policy_of
from delta_maintenance.fleet.run import FleetJob, FleetNight
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import ProgressReporter, SilentProgress

NIGHTS = 4


class Clock:
    """The time of this machine, and what was slept, which takes no time."""

    def __init__(self) -> None:
        self._slept_seconds = 0.0

    def now_ms(self) -> int:
        return int((time.time() + self._slept_seconds) * 1000)

    def sleep(self, seconds: float) -> None:
        self._slept_seconds += seconds


def data_files(lake: Path) -> set[str]:
    return {str(path) for path in lake.rglob("*.parquet") if "_delta_log" not in path.parts}


def test_tables_become_healthy_beside_their_writers_and_nothing_is_lost(tmp_path: Path) -> None:
    lake, delta_rs, numbers = tmp_path / "lake", DeltaRs(), random.Random(1)
    tables = [WrittenTable(str(lake / f"table {number}"), delta_rs) for number in range(6)]
    for table in tables:
        for _ in range(6):
            table.append()
        table.delete(numbers)  # fewer commits than a checkpoint takes, which forgets the removed files
    # The others have removed files that nobody reads any more.
    written = {table.address: table for table in tables[:2]}
    for table in tables[2:]:
        delta_rs.keep_no_removed_files(table.address)

    def beside_a_writer(spec: JobSpec, site: JobSite, progress: ProgressReporter) -> JobReport:
        """The writer of the table commits after the decision, and after the job."""
        writer = written.get(spec.table)
        if writer is not None:
            writer.append()
            writer.delete(numbers)
        report = run_job(spec, site, progress)
        if writer is not None:
            writer.write(numbers)
        return report

    policy = {
        "tables": {"include": [f"{lake}/**"]},
        "healthy": {"small_files": 3},
        "disruption": {"quiet": "0m"},
        "jitter": "0m",
        "other_maintainer": "maintain",
        "trust": {"after": 1, "deletions": "auto"},
    }
    clock = Clock()
    site = JobSite(runtime=Runtime(now_ms=clock.now_ms, sleep=clock.sleep))
    fleet = FleetNight(policy_of(policy), str(tmp_path / "state"), site, SilentProgress())
    nights: list[Night] = []
    for _ in range(NIGHTS):
        before = data_files(lake)
        report = fleet.run((), FleetJob(), run=beside_a_writer)
        night = fleet.store.night(report.run_id)
        assert unannounced(before - data_files(lake), night, nights) == []
        nights.append(night)
    assert [
        outcome.error_type for night in nights for outcome in night.outcomes if outcome.run.has_failed
    ] == []
    vacuumed = {one.table for night in nights for one in night.outcomes if one.run.operation == "vacuum"}
    assert vacuumed == {table.address for table in tables[2:]}
    assert [table.failed for table in tables] == [[]] * 6
    assert fleet.plan().figures.num_unhealthy == 0
    for table in tables:
        assert delta_rs.ids(table.address) == sorted(table.ids)
