"""`kill -9` of the job just before and just after its commit: the table is whole, and the next try ends the work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from msgspec.structs import replace
from tests.support.tables.busy_logs import write_statements

from delta_log import Table
from delta_maintenance.contract import JobSpec, TransactionId
from delta_maintenance.job_interface import REPORT_PREFIX, RUN_KEY_VARIABLE

#: A job that kills itself at the first put of a commit: before it takes effect, or right after.
DIES = """
import os, signal, sys
from delta_log.storage.local.local_storage import LocalStorage
from delta_maintenance.entrypoint import run_job
put = LocalStorage.put_if_absent
def dying(self, key, data):
    if key.startswith("_delta_log/"):
        if sys.argv[1] == "after":
            put(self, key, data)
        os.kill(os.getpid(), signal.SIGKILL)
    return put(self, key, data)
LocalStorage.put_if_absent = dying
run_job.main(["--spec", sys.argv[2]])
"""


def small_files(table: Path) -> None:
    for number in range(6):
        rows = pa.table({"id": [2 * number, 2 * number + 1], "part": ["x", "y"]})
        deltalake.write_deltalake(str(table), rows, partition_by=["part"], mode="append")


def ids(table: Path) -> list[int]:
    return sorted(deltalake.DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist())


#: The same for both tries, as Airflow's state store keeps it.
ENVIRONMENT = {**os.environ, RUN_KEY_VARIABLE: "5e" * 32}


def next_try(spec: JobSpec) -> dict[str, Any]:
    command = [sys.executable, "-m", "delta_maintenance.entrypoint.run_job", "--spec", spec.to_json()]
    process = subprocess.run(command, capture_output=True, text=True, check=True, env=ENVIRONMENT)
    line = next(line for line in process.stdout.splitlines() if line.startswith(REPORT_PREFIX))
    report: dict[str, Any] = json.loads(line.removeprefix(REPORT_PREFIX))
    return report


@pytest.mark.parametrize("rewrite", ["auto", "copy"])
@pytest.mark.parametrize(
    ("moment", "left_at", "status"), [("before", 5, "committed"), ("after", 6, "already_done")]
)
def test_a_killed_job_leaves_the_table_whole_and_its_next_try_ends_the_work(
    tmp_path: Path, moment: str, left_at: int, status: str, rewrite: str
) -> None:
    table = tmp_path / "t"
    small_files(table)
    spec = JobSpec(
        "optimize",
        str(table),
        "run",
        {"rewrite": rewrite},
        engine="local",
        transaction=TransactionId("app", 1),
    )
    killed = subprocess.run(
        [sys.executable, "-c", DIES, moment, spec.to_json()],
        check=False,
        capture_output=True,
        env=ENVIRONMENT,
    )
    assert killed.returncode == -signal.SIGKILL
    assert Table(str(table)).snapshot().version == left_at
    assert ids(table) == list(range(12))
    report = next_try(spec)
    assert (report["status"], report["version"]) == (status, 6)
    (commit,) = [entry for entry in Table(str(table)).history() if entry.get("operation") == "OPTIMIZE"]
    assert (int(commit["operationMetrics"]["numCopiedBytes"]) > 0) == (rewrite == "copy")
    snapshot = Table(str(table)).snapshot()
    assert (snapshot.version, snapshot.num_files) == (6, 2)
    assert ids(table) == list(range(12))
    # Nothing is left but what the log names or has removed: the second try took the first one's files over.
    written = {str(path.relative_to(table)) for path in table.rglob("*.parquet")}
    known = {
        key
        for files in (snapshot.files(["key"]), snapshot.tombstones(["key"]))
        for key in files.column(0).to_pylist()
    }
    assert written == known


def test_a_job_killed_while_it_waits_for_a_gap_leaves_its_bins_to_the_next_try(tmp_path: Path) -> None:
    table = tmp_path / "t"
    small_files(table)
    now_ms = time.time_ns() // 1_000_000
    write_statements(table, "x", 60, every_seconds=60, took_seconds=59, until_ms=now_ms)
    version = Table(str(table)).snapshot().version
    options = {"commit_when": "gap", "where": "part = 'x'"}
    spec = JobSpec(
        "optimize", str(table), "run", options, engine="local", transaction=TransactionId("app", 1)
    )
    command = [sys.executable, "-m", "delta_maintenance.entrypoint.run_job", "--spec"]
    with subprocess.Popen(
        [*command, spec.to_json()],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env=ENVIRONMENT,
    ) as job:
        assert job.stdout is not None
        assert any("wait for a gap between statements of other writers" in line for line in job.stdout)
        job.kill()
    assert job.returncode == -signal.SIGKILL
    assert Table(str(table)).snapshot().version == version
    report = next_try(replace(spec, options={**options, "max_wait_seconds": 1}))
    assert (report["status"], report["version"]) == ("committed", version + 1)
    assert report["earlier_tries"]["bins"] == 1
    assert [moment["decision"] for moment in report["commit_wait"]["moments"]] == ["give_up"]
    assert ids(table) == list(range(12))
