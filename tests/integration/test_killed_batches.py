"""`kill -9` at ten random moments of a run in batches: what is done again is less than one batch for each."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
from pathlib import Path

import deltalake
import pyarrow as pa
import pytest

from delta_log import Table
from delta_maintenance.contract import JobSpec, TransactionId
from delta_maintenance.job_interface import REPORT_PREFIX, RUN_KEY_VARIABLE

pytestmark = pytest.mark.slow

KILLS, BINS, BINS_OF_A_BATCH, BINS_AT_ONCE = 10, 24, 4, 2

#: A job that kills itself before or after its n-th change of the store, and notes each data file that it begins.
DIES = """
import os, signal, sys
from contextlib import contextmanager
from delta_log.storage.local.local_storage import LocalStorage
from delta_maintenance.entrypoint import run_job
left, begun = int(sys.argv[1]), sys.argv[2]
def counted():
    global left
    left -= 1
    if left == 0:
        os.kill(os.getpid(), signal.SIGKILL)
def watched(name):
    original = getattr(LocalStorage, name)
    def call(self, *arguments):
        counted()
        result = original(self, *arguments)
        counted()
        return result
    setattr(LocalStorage, name, call)
for name in ("put", "put_if_absent", "delete"):
    watched(name)
open_write = LocalStorage.open_write
@contextmanager
def writing(self, key):
    if key.endswith(".parquet") and not key.startswith("_delta_log/"):
        with open(begun, "a") as notes:
            notes.write(key + "\\n")
    counted()
    with open_write(self, key) as file:
        counted()
        yield file
    counted()
LocalStorage.open_write = writing
sys.exit(run_job.main(["--spec", sys.argv[3]]))
"""


@pytest.mark.parametrize("rewrite", ["auto", "copy"])
def test_ten_kills_cost_less_than_a_batch_each(tmp_path: Path, rewrite: str) -> None:
    table, begun = tmp_path / "t", tmp_path / "begun"
    for number in range(2):
        rows = pa.table({"id": [BINS * number + n for n in range(BINS)], "part": list(range(BINS))})
        deltalake.write_deltalake(str(table), rows, partition_by=["part"], mode="append")
    size = Table(str(table)).snapshot().size_bytes * BINS_OF_A_BATCH // BINS
    spec = JobSpec(
        "optimize",
        str(table),
        "run",
        {"batch_size_bytes": size, "rewrite": rewrite},
        engine="local",
        transaction=TransactionId("app", 1),
    )
    environment = {**os.environ, RUN_KEY_VARIABLE: "5e" * 32}
    rng, kills, output = random.Random(2026), 0, ""
    while True:
        # Ten deaths within the length of one run, and then a try that is left alone.
        moment = rng.randint(3, 18) if kills < KILLS else 10**9
        command = [sys.executable, "-c", DIES, str(moment), str(begun), spec.to_json()]
        done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
        if done.returncode != -signal.SIGKILL:
            output = done.stdout
            break
        kills += 1
        assert sorted(Table(str(table)).snapshot().to_arrow(["id"]).column("id").to_pylist()) == list(
            range(2 * BINS)
        )
    report = json.loads(output.splitlines()[-1].removeprefix(REPORT_PREFIX))
    assert kills == KILLS
    assert (report["status"], report["metrics"]["numRemovedFiles"]) == ("committed", 2 * BINS)
    redone = len(begun.read_text().splitlines()) - BINS
    assert 0 < redone <= BINS_AT_ONCE * KILLS, "the bins that were being written, for each kill"
    batches = [entry for entry in Table(str(table)).history() if entry.get("operation") == "OPTIMIZE"]
    # A try that takes over a full batch commits it with its own first bin, and the bins that were finished meanwhile.
    assert len(batches) == report["num_batches"] >= BINS // (2 * BINS_OF_A_BATCH)
    assert [("txnId" in b, "delta-maintenance.transaction" in b["tags"]) for b in batches] == [
        (True, number == 0) for number in range(len(batches))
    ]
    snapshot = Table(str(table)).snapshot()
    assert (snapshot.num_files, snapshot.transactions) == (BINS, {"app": 1})
    assert sorted(deltalake.DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist()) == list(
        range(2 * BINS)
    )
    # A kill in the middle of another thread's write may leave its temporary file, which VACUUM removes later.
    left = [path for path in (table / "_maintenance").rglob("*") if path.is_file()]
    assert not [path for path in left if not path.name.startswith(".")]
