"""Proving a plan by a second reading of the log."""

from __future__ import annotations

import os
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from tests.support.runs.vacuum_runs import (
    NO_RETENTION,
    done,
    files_below,
    refusal,
    run_vacuum,
)
from tests.support.tables.vacuumable_tables import old_file, write_vacuumable


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_vacuumable(tmp_path / "table")


def test_a_log_with_all_commits_gives_the_strongest_proof(table: Path) -> None:
    report = done(run_vacuum(table, require_proof=True, **NO_RETENTION))
    assert report.plan is not None
    assert (report.plan["proof"], report.plan["confirmedBy"]) == ("commits", "listing")
    assert report.plan["liveFilesConfirmed"] == 2


def test_the_commits_reveal_a_checkpoint_that_lost_files(table: Path) -> None:

    DeltaTable(str(table)).create_checkpoint()
    (checkpoint,) = (table / "_delta_log").glob("*.checkpoint.parquet")
    rows = pq.read_table(checkpoint)
    adds = [number for number, add in enumerate(rows.column("add").to_pylist()) if add is not None]
    pq.write_table(rows.take([n for n in range(rows.num_rows) if n != adds[0]]), checkpoint)
    before = files_below(table)
    assert "disagree about the live files of version 6" in refusal(run_vacuum(table, **NO_RETENTION))
    assert files_below(table) == before


def test_the_strength_of_the_proof_is_reported_and_can_be_demanded(table: Path) -> None:
    old_file(table / "orphan")
    DeltaTable(str(table)).create_checkpoint()
    for version in range(3):
        (table / "_delta_log" / f"{version:020d}.json").unlink()
    for checksum in (table / "_delta_log").glob("*.crc"):
        checksum.unlink()
    assert "cannot be proved" in refusal(run_vacuum(table, require_proof=True))
    report = done(run_vacuum(table))
    assert report.plan is not None
    assert report.plan["proof"] == "checkpoint"
    old_file(table / "orphan")
    report = done(run_vacuum(table, require_proof=True))
    assert report.plan is not None
    assert report.plan["proof"] == "checkpoint_and_checksum"
    newest = max((table / "_delta_log").glob("*.crc"))
    newest.write_text(newest.read_text().replace('"numFiles":2', '"numFiles":3'))
    old_file(table / "orphan")
    assert "says 3 files" in refusal(run_vacuum(table))
    assert "orphan" in files_below(table)


def test_a_dry_run_proves_the_plan_if_a_proof_is_demanded(table: Path) -> None:
    (table / "orphan").write_bytes(b"x")
    os.utime(table / "orphan", (1, 1))
    plan = done(run_vacuum(table, dry_run=True, require_proof=True)).plan
    assert plan is not None
    assert plan["proof"] == "commits"
    DeltaTable(str(table)).create_checkpoint()
    for path in (table / "_delta_log").iterdir():
        if path.name.endswith((".crc", f"{0:020d}.json")):
            path.unlink()
    assert "cannot be proved" in refusal(run_vacuum(table, dry_run=True, require_proof=True))
