"""`kill -9` at every system call of a commit that touches the log: the table always loads, and the next run converges."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import deltalake
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support import ROOT
from tests.support.runs.commit_merged import MERGED, commit_merged

from delta_log import Table

#: Runs `commit_merged` and dies before its n-th system call on a file of the log; prints how many calls there were.
DYING_COMMIT = """
import os, signal, sys
table_uri, dies_at = sys.argv[1], int(sys.argv[2])
calls = 0
def watch(event, arguments):
    global calls
    if not (event == "open" or event.startswith("os.")) or not arguments:
        return
    # The commit opens the log's directory by its path, and names the files relative to that descriptor.
    name = arguments[0]
    if event == "os.listdir" if isinstance(name, int) else isinstance(name, str) and name != "_delta_log" and name[:1] != "/":
        calls += 1
        if calls == dies_at:
            os.kill(os.getpid(), signal.SIGKILL)
from tests.support.runs.commit_merged import commit_merged
sys.addaudithook(watch)
commit_merged(table_uri)
print(calls)
"""
VERSIONS = 4


def run(table: Path, dies_at: int) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", DYING_COMMIT, str(table), str(dies_at)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def make(table: Path) -> None:
    for number in range(VERSIONS):
        rows = pa.table({"id": [2 * number, 2 * number + 1]})
        deltalake.write_deltalake(
            str(table),
            rows,
            mode="append",
            configuration={"delta.checkpointInterval": "1"} if not number else None,
        )
    pq.write_table(deltalake.DeltaTable(str(table)).to_pyarrow_table(), table / MERGED)


def ids(table: Path) -> list[int]:
    return sorted(deltalake.DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist())


@pytest.mark.slow
def test_a_commit_killed_at_any_call_leaves_a_table_and_the_next_run_converges(tmp_path: Path) -> None:
    make(tmp_path / "original")

    def copied(name: str) -> Path:
        return Path(shutil.copytree(tmp_path / "original", tmp_path / name))

    whole = run(copied("whole"), 0)
    assert whole.returncode == 0, whole.stderr
    calls = int(whole.stdout)
    assert calls > 20
    log = {path.name for path in (tmp_path / "whole" / "_delta_log").iterdir()}
    assert {f"{VERSIONS:020d}.{end}" for end in ("json", "crc", "checkpoint.parquet")} <= log

    def killed_and_repeated(dies_at: int) -> str:
        table = copied(f"killed at {dies_at}")
        killed = run(table, dies_at)
        assert killed.returncode == -signal.SIGKILL
        between = Table(str(table)).snapshot()
        assert sorted(between.to_arrow().column("id").to_pylist()) == list(range(2 * VERSIONS))
        assert ids(table) == list(range(2 * VERSIONS))
        commit_merged(str(table))
        after = Table(str(table)).snapshot()
        assert (after.version, after.files(["key"]).column(0).to_pylist()) == (VERSIONS, [MERGED])
        assert ids(table) == list(range(2 * VERSIONS))
        assert after.transactions == {"app": 1}
        return "committed" if between.version == VERSIONS else "not yet"

    with ThreadPoolExecutor(2) as pool:
        outcomes = list(pool.map(killed_and_repeated, range(1, calls + 1)))
    assert set(outcomes) == {"committed", "not yet"}
    # One instant parts them.
    assert outcomes == sorted(outcomes, reverse=True)
