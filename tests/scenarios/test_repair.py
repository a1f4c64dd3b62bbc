"""A repair reports what is missing, and on request makes a damaged table readable without losing another row."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples
from tests.support.runs.maintenance_runs import enable_deletion_vectors, keys, mark_deleted
from tests.support.runs.vacuum_runs import contents, done, refusal
from tests.support.tables.small_tables import write_days
from tests.support.tables.vacuum_histories import NOW_MS, History, histories, vector_key

from delta_log import Table
from delta_log.checkpoint.writer import write_checkpoint
from delta_log.runtime import Runtime
from delta_log.testing import FaultyStorage
from delta_maintenance.contract import JobReport, JobSpec, TransactionId
from delta_maintenance.job import JobSite, run_job, run_on
from delta_maintenance.progress import SilentProgress
from delta_maintenance.repair.options import LOST_VECTORS
from delta_maintenance.repair.plan import plan_repair
from delta_maintenance.text.report import render_report


def repair(
    table: Path, *, dry_run: bool = False, transaction: TransactionId | None = None, **options: Any
) -> JobReport:
    spec = JobSpec("repair", str(table), "repairing", options, dry_run=dry_run, transaction=transaction)
    return run_job(spec, JobSite(), SilentProgress())


def ids(table: Path) -> list[int]:
    found: list[int] = sorted(Table(str(table)).snapshot().to_arrow()["id"].to_pylist())
    return found


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Six files of ten rows in two partitions; the log begins with a checkpoint."""
    path = tmp_path / "t"
    write_days(path, files=6, rows=10, days=2)
    opened = Table(str(path))
    write_checkpoint(opened.storage, opened.snapshot(), Runtime())
    for commit in (path / "_delta_log").glob("0*[0-4].json"):
        commit.unlink()
    return path


def rows_of(table: Path, key: str) -> set[int]:
    return set(pq.ParquetFile(table / key).read(["id"])["id"].to_pylist())


def test_a_whole_table_needs_nothing(table: Path) -> None:
    report = done(repair(table, remove_missing=True))
    assert report.status == "nothing_to_do"
    assert render_report(report.to_dict()) == "Nothing to do: all 6 files of version 5 are there."


def test_missing_files_are_reported_and_removed_on_request(table: Path, tmp_path: Path) -> None:
    lost = keys(table)[1:3]
    remaining = sorted(set(ids(table)).difference(*(rows_of(table, key) for key in lost)))
    for key in lost:
        (table / key).unlink()
    report = done(repair(table, output=str(tmp_path / "missing.jsonl")))
    assert report.plan is not None
    assert (report.status, report.plan["numMissingFiles"], report.plan["numMissingRecords"]) == (
        "planned",
        2,
        20,
    )
    lines = [json.loads(line) for line in (tmp_path / "missing.jsonl").read_text().splitlines()]
    assert {line["path"] for line in lines} == set(lost)
    assert "Missing at version 5: 2 of 6 files" in render_report(report.to_dict())
    planned = done(repair(table, dry_run=True, remove_missing=True))
    assert Table(str(table)).snapshot().version == 5
    repaired = done(repair(table, remove_missing=True, approved_digest=planned.plan["digest"]))  # type: ignore[index]
    assert (repaired.status, repaired.version, repaired.plan) == ("committed", 6, planned.plan)
    assert ids(table) == remaining
    assert sorted(DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist()) == remaining
    (commit,) = Table(str(table)).history(1)
    assert (commit["operation"], commit["operationMetrics"]["numRemovedFiles"]) == ("FSCK", 2)
    actions = [json.loads(line) for line in (table / "_delta_log" / f"{6:020}.json").read_text().splitlines()]
    assert {action["remove"]["dataChange"] for action in actions if "remove" in action} == {True}
    assert repair(table, remove_missing=True).status == "nothing_to_do"


@pytest.mark.parametrize("choice", LOST_VECTORS)
def test_a_lost_vector_is_treated_as_asked(table: Path, choice: str) -> None:
    enable_deletion_vectors(table)
    key = keys(table)[0]
    before, of_file = set(ids(table)), rows_of(table, key)
    mark_deleted(table, {key: [0, 1]})
    (vector,) = table.glob("deletion_vector_*.bin")
    vector.unlink()
    report = done(repair(table, remove_missing=True, lost_vectors=choice))
    assert report.plan is not None
    assert (report.plan["numMissingFiles"], report.plan["numLostDeletionVectors"]) == (0, 1)
    assert "1 file lost their deletion vector" in render_report(report.to_dict())
    if choice == "keep":
        assert report.status == "planned"
        return
    assert report.status == "committed"
    assert set(ids(table)) == (before if choice == "restore-rows" else before - of_file)
    assert repair(table).status == "nothing_to_do"


def test_a_file_in_a_hidden_directory_or_behind_the_listing_is_asked_for(table: Path) -> None:
    """What a listing does not show may be there all the same."""
    key = keys(table)[0]
    log = table / "_delta_log" / f"{6:020}.json"
    add = {"path": "_hidden/f.parquet", "size": 1, "modificationTime": 1, "dataChange": True}
    log.write_text(json.dumps({"add": {**add, "partitionValues": {"day": "2024-01-01"}}}) + "\n")
    (table / "_hidden").mkdir()
    (table / key).rename(table / "_hidden" / "f.parquet")
    report = done(repair(table))
    assert report.plan is not None
    assert [file["path"] for file in report.plan["files"]] == [key]


def test_where_no_file_is_there_nothing_is_removed(table: Path) -> None:
    for key in keys(table):
        (table / key).unlink()
    before = contents(table)
    assert "None of the 6 live files of version 5 is in the store" in refusal(
        repair(table, remove_missing=True)
    )
    assert contents(table) == before


def test_a_table_that_only_allows_appends_is_refused(table: Path) -> None:
    DeltaTable(str(table)).alter.set_table_properties({"delta.appendOnly": "true"})
    (table / keys(table)[0]).unlink()
    assert repair(table).status == "planned"
    assert "Set delta.appendOnly to false first" in refusal(repair(table, remove_missing=True))


def test_a_plan_that_was_not_approved_is_refused(table: Path) -> None:
    first, second = keys(table)[:2]
    (table / first).unlink()
    digest = done(repair(table, dry_run=True, remove_missing=True)).plan["digest"]  # type: ignore[index]
    (table / second).unlink()
    said = refusal(repair(table, remove_missing=True, approved_digest=digest))
    assert "was approved, but since then the table or the request has changed" in said


def test_a_retry_repairs_once(table: Path) -> None:
    (table / keys(table)[0]).unlink()
    work = TransactionId("task", 1)
    tries = [done(repair(table, remove_missing=True, transaction=work)) for _ in range(2)]
    assert [(report.status, report.version) for report in tries] == [("committed", 6), ("already_done", 6)]
    assert "an earlier try committed version 6" in render_report(tries[1].to_dict())


def test_a_writer_who_changes_a_missing_file_meanwhile_wins(table: Path) -> None:
    key = keys(table)[0]
    (table / key).unlink()
    pending = [lambda: DeltaTable(str(table)).delete("day = '2024-01-01'")]
    opened = Table(str(table))

    def before(name: str, asked: str) -> None:
        if name == "put_if_absent" and pending:
            pending.pop()()

    opened.storage = FaultyStorage(opened.storage, before)
    spec = JobSpec("repair", str(table), "repairing", {"remove_missing": True})
    report = run_on(opened, spec, JobSite(runtime=Runtime(sleep=lambda seconds: None)), SilentProgress())
    assert report.error is not None
    assert (report.error.type, report.error.kind) == ("ConcurrentDelete", "conflict")
    assert Table(str(table)).history(1)[0]["operation"] != "FSCK"


@given(histories(), st.data(), st.sampled_from(LOST_VECTORS))
@examples(30)
def test_the_plan_removes_exactly_what_cannot_be_read(
    history: History, chance: st.DataObject, choice: str
) -> None:
    snapshot = history.snapshot()
    needed = sorted(history.versions[-1][1])
    absent = set(chance.draw(st.lists(st.sampled_from(needed), unique=True))) if needed else set()
    plan = plan_repair(snapshot, absent, 0, choice, NOW_MS)
    files = {key for key in history.live if key in absent}
    damaged = {
        row["key"]
        for row in snapshot.files(["key"]).to_pylist()
        if row["key"] in absent or _vector_of(history, row["key"]) in absent
    }
    assert {file.row["key"] for file in plan.damaged} == damaged
    assert plan.num_missing == len(files)
    assert len(plan.removes) == (len(files) if choice == "keep" else len(damaged))
    assert len(plan.adds) == (len(damaged - files) if choice == "restore-rows" else 0)
    assert all(add.deletionVector is None and add.dataChange for add in plan.adds)


def _vector_of(history: History, key: str) -> str | None:
    number = history.live[key]
    return None if number is None else vector_key(number)
