"""A table that is dropped and made anew while maintenance runs on it: the new one stays as it was made."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from deltalake import DeltaTable
from tests.support.runs.maintenance_runs import WatchedEngine, run
from tests.support.runs.vacuum_runs import age
from tests.support.tables.small_tables import write_days

from delta_log import Table, errors
from delta_log.errors import DeltaLogError
from delta_log.log.file_names import commit_name
from delta_log.runtime import Runtime
from delta_log.testing import FaultyStorage
from delta_maintenance.errors import VacuumIncomplete
from delta_maintenance.log_upkeep.log_cleanup import clean_up, plan_log_cleanup
from delta_maintenance.progress import SilentProgress
from delta_maintenance.vacuum.candidates import find_candidates
from delta_maintenance.vacuum.execution import execute_plan
from delta_maintenance.vacuum.options import VacuumOptions

NEW = (2, 4, 8)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Versions 0 to 6; six files are not needed any more. A month old."""
    path = tmp_path / "table"
    write_days(path)
    DeltaTable(str(path)).optimize.compact()
    age(path)
    return path


def contents(table: Path) -> dict[str, bytes]:
    return {str(path.relative_to(table)): path.read_bytes() for path in table.rglob("*") if path.is_file()}


class Replacement:
    """Drops a table and makes another one in its place, once."""

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

    opened = Table(str(table))
    storage, snapshot = opened.storage, opened.snapshot()
    found = find_candidates(
        storage,
        opened.storage_at,
        snapshot,
        VacuumOptions(retain_hours=0, retention_check=False),
        Runtime().now_ms(),
        SilentProgress(),
    )
    with pytest.raises((errors.TableReplaced, VacuumIncomplete), match="was deleted or made anew"):
        execute_plan(FaultyStorage(storage, before, after), found, SilentProgress(), Runtime(), {})
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

    opened = Table(str(table))
    options = VacuumOptions(retain_hours=0, retention_check=False)
    storage, now_ms = opened.storage, Runtime().now_ms()
    found = find_candidates(storage, opened.storage_at, opened.snapshot(), options, now_ms, SilentProgress())
    with pytest.raises(errors.TableReplaced):
        execute_plan(FaultyStorage(storage, **{moment: hook}), found, SilentProgress(), Runtime(), {})
    assert contents(table) == replace.expected
