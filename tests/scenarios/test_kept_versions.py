"""Versions that a table or a request keeps stay readable: VACUUM leaves their files, log cleanup their log."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples
from tests.support.runs.maintenance_runs import enable_deletion_vectors, keys, mark_deleted
from tests.support.runs.vacuum_runs import NO_RETENTION, done, files_below, plan_on, refusal, run_vacuum
from tests.support.tables.aged_logs import RUNTIME, aged_logs, readable_states, snapshot_of
from tests.support.tables.small_tables import write_days
from tests.support.tables.vacuum_histories import NOW_MS, History, histories

from delta_log import Table
from delta_log.errors import InvalidProperty, VersionNotFound
from delta_log.table_config.kept_versions import KEEP_LAST, KEEP_VERSIONS, KeptVersions
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.log_upkeep.log_cleanup import clean_up, plan_log_cleanup
from delta_maintenance.progress import SilentProgress
from delta_maintenance.text.report import render_report


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Versions 0 to 5 append, 6 compacts, 7 allows vectors, and 8 to 10 delete rows by vectors."""
    path = tmp_path / "t"
    write_days(path, files=6, rows=10)
    DeltaTable(str(path)).optimize.compact()
    enable_deletion_vectors(path)
    for row in range(3):
        mark_deleted(path, {keys(path)[0]: range(row + 1)})
    return path


def _rows(table: Path, version: int) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = Table(str(table)).snapshot(version).to_arrow().sort_by("id").to_pylist()
    return rows


def _set(table: Path, **properties: str) -> int:
    names = {"keep_versions": KEEP_VERSIONS, "keep_last": KEEP_LAST}
    DeltaTable(str(table)).alter.set_table_properties(
        {names[name]: value for name, value in properties.items()}, raise_if_not_exists=False
    )
    return Table(str(table)).snapshot().version


@pytest.mark.parametrize("mode", [{}, {"lite": True}])
def test_named_versions_can_be_read_after_a_vacuum_without_retention(
    table: Path, mode: dict[str, Any]
) -> None:
    named = [2, 9]
    before = {version: _rows(table, version) for version in (*named, Table(str(table)).snapshot().version)}
    report = done(run_vacuum(table, keep_versions=named, **mode, **NO_RETENTION))
    assert report.plan is not None
    assert report.plan["keptVersions"] == named
    assert report.plan["numFilesOfKeptVersions"] > 0
    assert "stay for version 2, version 9 alone" in render_report(report.to_dict())
    assert {version: _rows(table, version) for version in before} == before
    assert DeltaTable(str(table), version=2).to_pyarrow_table().num_rows == len(before[2])
    # The next lite vacuum finds what is no longer kept.
    left = files_below(table)
    done(run_vacuum(table, lite=True, **NO_RETENTION))
    gone = left - files_below(table)
    assert len(gone) == report.plan["numFilesOfKeptVersions"]


def test_the_last_versions_can_be_read(table: Path) -> None:
    latest = Table(str(table)).snapshot().version
    before = {version: _rows(table, version) for version in range(latest - 3, latest + 1)}
    report = done(run_vacuum(table, keep_last=4, **NO_RETENTION))
    assert report.metrics["numDeletedFiles"] > 0
    assert "the last 4 versions" in render_report(report.to_dict())
    assert {version: _rows(table, version) for version in before} == before


def test_the_properties_of_a_table_name_versions(table: Path) -> None:
    _set(table, keep_versions="year-end=2, 9", keep_last="2")
    before = {version: _rows(table, version) for version in (2, 9)}
    report = done(run_vacuum(table, **NO_RETENTION))
    assert report.plan is not None
    assert (report.plan["keptVersions"], report.plan["numKeptLastVersions"]) == ([2, 9], 2)
    assert not [warning for warning in report.plan["warnings"] if "keepVersions" in warning]
    assert {version: _rows(table, version) for version in before} == before


def test_a_restore_leaves_the_names_of_versions(table: Path) -> None:
    _set(table, keep_versions="2")
    done(run_job(JobSpec("restore", str(table), "run", {"to_version": 1}), JobSite(), SilentProgress()))
    assert Table(str(table)).snapshot().properties[KEEP_VERSIONS] == "2"


def test_a_version_that_only_a_request_keeps_is_warned_of(table: Path) -> None:
    report = done(run_vacuum(table, dry_run=True, keep_versions=[2], **NO_RETENTION))
    assert report.plan is not None
    assert any("delta-maintenance.keepVersions" in warning for warning in report.plan["warnings"])


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_version_that_is_gone_refuses_the_vacuum(table: Path, dry_run: bool) -> None:
    before = files_below(table)
    said = refusal(run_vacuum(table, dry_run=dry_run, keep_versions=[99], **NO_RETENTION))
    assert "Version 99 is to be kept, and the log holds versions 0 to" in said
    assert files_below(table) == before


@pytest.mark.parametrize("value", ["last", "2,-1", "a=", "1.5", "4=b"])
def test_a_property_without_versions_refuses_vacuum_and_cleanup(table: Path, value: str) -> None:
    _set(table, keep_versions=value)
    for report in (run_vacuum(table, **NO_RETENTION), _cleanup(table)):
        assert "The table property delta-maintenance.keepVersions is" in refusal(report)


def _cleanup(table: Path) -> JobReport:
    return run_job(JobSpec("cleanup-log", str(table), "run", {}), JobSite(), SilentProgress())


def test_properties_are_read() -> None:
    assert KeptVersions.of({}) == KeptVersions()
    assert KeptVersions.of({KEEP_VERSIONS: " 3, a=b=17 ,", KEEP_LAST: "5"}) == KeptVersions(
        frozenset({3, 17}), 5
    )
    kept = KeptVersions(frozenset({7}), 3) | KeptVersions(frozenset({9}), 2)
    assert (kept.named, kept.num_last, kept.oldest(20), kept.oldest(8)) == (frozenset({7, 9}), 3, 7, 6)
    with pytest.raises(InvalidProperty):
        KeptVersions.of({KEEP_LAST: "0"})


@given(st.data(), st.integers(0, 9), st.integers(1, 9))
@examples(15)
def test_log_cleanup_leaves_the_log_of_kept_versions(
    chance: st.DataObject, named: int, num_last: int
) -> None:
    properties = {KEEP_VERSIONS: f"name={named}", KEEP_LAST: str(num_last)}
    storage = chance.draw(aged_logs(properties=properties))
    latest = snapshot_of(storage).version
    before = readable_states(storage)
    plan = plan_log_cleanup(storage, snapshot_of(storage), NOW_MS, SilentProgress())
    clean_up(storage, snapshot_of(storage), plan, RUNTIME, SilentProgress())
    after = readable_states(storage)
    oldest = min(named, max(0, latest - num_last + 1))
    assert after == {version: before[version] for version in after}
    assert {version for version in before if version >= oldest} <= set(after)


@given(histories(), st.data())
@examples(30)
def test_exactly_the_files_of_kept_versions_stay_besides(history: History, chance: st.DataObject) -> None:
    latest = len(history.versions) - 1
    named = chance.draw(st.sets(st.integers(0, latest), max_size=2))
    num_last = chance.draw(st.integers(1, 4))
    versions = {
        version
        for version in (*named, *range(max(0, latest - num_last + 1), latest + 1))
        if _is_there(history, version)
    }
    options: dict[str, Any] = {"keep_versions": sorted(named & versions) or None, "keep_last": num_last}
    without = plan_on(history.storage, retain_hours=0.0, retention_check=False)
    planned = plan_on(history.storage, retain_hours=0.0, retention_check=False, **options)
    needed = {key for version in versions for key in history.versions[version][1]}
    found, kept = (set(plan.plan.candidates.column("key").to_pylist()) for plan in (without, planned))
    assert kept == found - needed


def _is_there(history: History, version: int) -> bool:
    try:
        snapshot_of(history.storage, version)
    except VersionNotFound:
        return False
    return True
