"""A run of a fleet that is killed: nothing is done twice, and everything is reported."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

from deltalake import DeltaTable
from tests.support.tables.small_tables import write_days

from delta_log.runtime import Runtime
from delta_maintenance.fleet.account.night import Night
from delta_maintenance.fleet.account.store import FleetStore
from delta_maintenance.fleet.policy.reading import read_policy
from delta_maintenance.fleet.run import FleetJob, FleetNight
from delta_maintenance.job import JobSite
from delta_maintenance.progress import SilentProgress

_TABLES = 12
#: Leases of the killed run have expired by then.
_LATER_MS = 21 * 60_000


def run_until_killed(policy: Path, state: Path, results: int) -> None:
    """Start a run in a process of its own, and kill it when it has written so many results."""
    command = [sys.executable, "-m", "delta_maintenance", "fleet", "run", str(policy), "--state", str(state)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while len(list(state.glob("results/*/*.json.z"))) < results:
            assert process.poll() is None, "the run was over before it was killed"
            time.sleep(0.001)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL


def reported(night: Night) -> list[str]:
    """The tables in the account of a night, one name for each operation and for each interruption."""
    tables = [*(one.table for one in night.outcomes), *(one.table for one in night.not_begun)]
    return sorted(Path(table).name for table in tables)


def test_the_next_run_accounts_for_a_killed_one_and_does_what_is_left(tmp_path: Path) -> None:
    lake, state = tmp_path / "lake", tmp_path / "state"
    rows = {}
    for number in range(_TABLES):
        rows[f"{number}"] = write_days(lake / f"{number}")["id"].to_pylist()
    policy = {
        "tables": {"include": [f"{lake}/**"]},
        "healthy": {"small_files": 2},
        "disruption": {"quiet": "0m"},
        "other_maintainer": "maintain",
        "jitter": "0m",
        "trust": {"new_table": "auto"},
    }
    (tmp_path / "fleet.json").write_text(json.dumps(policy))
    run_until_killed(tmp_path / "fleet.json", state, _TABLES // 3)

    site = JobSite(runtime=Runtime(now_ms=lambda: time.time_ns() // 1_000_000 + _LATER_MS))
    written = read_policy(json.dumps(policy), "fleet.json")
    report = FleetNight(written, str(state), site, SilentProgress()).run((), FleetJob())
    assert not report.troubles
    killed, after = FleetStore.open(str(state), {}).nights(0)
    assert reported(killed) == sorted(rows)
    assert {one.reason for one in killed.not_begun} == {"interrupted"}
    done = {outcome.table for outcome in killed.outcomes}
    assert done.isdisjoint(outcome.table for outcome in after.outcomes)
    for name, ids in rows.items():
        table = DeltaTable(str(lake / name))
        operations = Counter(str(commit["operation"]) for commit in table.history())
        assert operations["OPTIMIZE"] == 1, name
        assert len(table.file_uris()) == 2
        assert sorted(table.to_pyarrow_table(columns=["id"])["id"].to_pylist()) == ids
