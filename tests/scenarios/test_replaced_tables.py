"""A table that is dropped and replaced while maintenance runs on it: the new table stays as it was made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.support.runs.maintenance_runs import (
    WatchedEngine,
    enable_deletion_vectors,
    keys,
    mark_deleted,
    run,
)
from tests.support.runs.vacuum_runs import NO_RETENTION, contents, plan_on
from tests.support.tables.small_tables import write_days
from tests.support.tables.vacuumable_tables import age, write_vacuumable

from delta_log import Table, errors
from delta_log.errors import DeltaLogError
from delta_log.log.file_names import commit_name
from delta_log.runtime import Runtime
from delta_log.testing import FaultyStorage
from delta_maintenance.contract import JobSpec
from delta_maintenance.errors import VacuumIncomplete
from delta_maintenance.health.document import health_of
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.log_upkeep.log_cleanup import clean_up, plan_log_cleanup
from delta_maintenance.progress import SilentProgress
from delta_maintenance.vacuum.execution import execute_plan

NEW = (2, 4, 8)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return write_vacuumable(tmp_path / "table")


class Replacement:
    """Drops a table and writes another one in its place, when it is called first."""

    def __init__(self, table: Path, versions: int) -> None:
        self._table, self._versions = table, versions
        self.expected: dict[str, bytes] | None = None

    def __call__(self) -> None:
        if self.expected is not None:
            return
        shutil.rmtree(self._table)
        write_days(self._table, files=self._versions)
        self.expected = contents(self._table)


@pytest.mark.parametrize("versions", NEW)
def test_an_optimize_commits_nothing_to_the_new_table(tmp_path: Path, versions: int) -> None:
    table = tmp_path / "table"
    write_days(table)
    replace = Replacement(table, versions)
    with pytest.raises(errors.TableReplaced, match="version 5"):
        run(table, engine=WatchedEngine(lambda finished: replace() if finished == 2 else None))
    assert replace.expected is not None
    log = {name for name in contents(table) if name.startswith("_delta_log")}
    assert log == {name for name in replace.expected if name.startswith("_delta_log")}
    assert DeltaTable(str(table)).to_pyarrow_table().num_rows == 100 * versions


class Dropping(SilentProgress):
    """Drops a table when the work on it begins."""

    def __init__(self, table: Path) -> None:
        self._table = table

    def start(self, total_bins: int, total_bytes: int) -> None:
        shutil.rmtree(self._table)


@pytest.mark.parametrize("operation", ["optimize", "purge"])
@pytest.mark.parametrize("on_broken_source", ["fail", "skip"])
def test_a_rewrite_of_a_table_that_was_dropped_meanwhile_says_so(
    tmp_path: Path, operation: str, on_broken_source: str
) -> None:
    table = tmp_path / "table"
    write_days(table)
    if operation == "purge":
        enable_deletion_vectors(table)
        mark_deleted(table, {key: [0] for key in keys(table)})
    spec = JobSpec(operation, str(table), "run", {"on_broken_source": on_broken_source}, engine="local")
    report = run_job(spec, JobSite(), Dropping(table))
    assert report.error is not None
    assert (report.error.type, report.error.retryable) == ("TableDropped", False)
    assert f"{table} was dropped or moved while this ran" in (report.error.message or "")


def test_a_health_reading_of_a_table_that_was_dropped_meanwhile_says_so(table: Path) -> None:
    opened = Table(str(table))
    snapshots = 0

    def drop(name: str, key: str) -> None:
        nonlocal snapshots
        snapshots += name == "list_from"
        if snapshots == 2:
            shutil.rmtree(table, ignore_errors=True)

    opened.storage = FaultyStorage(opened.storage, drop)
    with pytest.raises(errors.TableDropped, match="dropped or moved"):
        health_of(opened, str(table), HealthOptions(), Runtime())


def test_a_table_that_was_not_there_is_not_called_dropped(tmp_path: Path) -> None:
    for operation in ("optimize", "vacuum", "checkpoint"):
        report = run_job(
            JobSpec(operation, str(tmp_path), "run", {}, engine="local"), JobSite(), SilentProgress()
        )
        assert report.error is not None
        assert report.error.type == "NotATable"


@pytest.mark.parametrize("versions", NEW)
@pytest.mark.parametrize("moment", ["start", "started", "deleted"])
def test_a_vacuum_neither_deletes_from_the_new_table_nor_commits_to_it(
    table: Path, versions: int, moment: str
) -> None:
    replace = Replacement(table, versions)
    start = f"_delta_log/{commit_name(7)}"

    def before(name: str, key: str) -> None:
        if moment == "start" and (name, key) == ("put_if_absent", start):
            replace()

    def after(name: str, key: str) -> None:
        if moment == "started" and (name, key) == ("put_if_absent", start.replace(".json", ".crc")):
            replace()
        if moment == "deleted" and name == "delete":
            replace()

    storage = Table(str(table)).storage
    planned = plan_on(storage, Runtime().now_ms(), **NO_RETENTION)
    with pytest.raises((errors.TableReplaced, VacuumIncomplete), match="was deleted or made anew"):
        execute_plan(FaultyStorage(storage, before, after), planned, SilentProgress(), Runtime(), {})
    assert contents(table) == replace.expected


@pytest.mark.parametrize("versions", NEW)
def test_a_log_cleanup_deletes_nothing_of_the_new_log(table: Path, versions: int) -> None:
    opened = Table(str(table))
    DeltaTable(str(table)).create_checkpoint()
    age(table)
    snapshot, replace = opened.snapshot(), Replacement(table, versions)
    plan = plan_log_cleanup(opened.storage, snapshot, Runtime().now_ms(), SilentProgress())
    assert not plan.is_empty
    replace()
    with pytest.raises(DeltaLogError, match="was deleted or made anew"):
        clean_up(opened.storage, snapshot, plan, Runtime(), SilentProgress())
    assert contents(table) == replace.expected


@pytest.mark.parametrize("moment", ["before", "after"])
def test_a_vacuum_that_ends_in_a_new_log_takes_its_commit_back(table: Path, moment: str) -> None:
    replace = Replacement(table, 4)
    end = f"_delta_log/{commit_name(8)}"

    def hook(name: str, key: str) -> None:
        if (name, key) == ("put_if_absent", end):
            replace()

    storage = Table(str(table)).storage
    planned = plan_on(storage, Runtime().now_ms(), **NO_RETENTION)
    with pytest.raises(errors.TableReplaced):
        execute_plan(FaultyStorage(storage, **{moment: hook}), planned, SilentProgress(), Runtime(), {})
    assert contents(table) == replace.expected
