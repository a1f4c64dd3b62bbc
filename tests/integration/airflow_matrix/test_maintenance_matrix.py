"""Operators, ways of running and situations on a real Airflow: nothing is lost, done twice, or left at work.

The cells of a situation run side by side. ``./dev test slow`` runs a pairwise selection of them, ``./dev test-matrix`` all.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from pathlib import Path
from typing import Any
from urllib.parse import quote

import psutil  # type: ignore[import-untyped]
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake
from tests.support.environment.patience import PATIENCE_SECONDS
from tests.support.runs.maintenance_matrix import (
    CELLS_AT_ONCE,
    Cell,
    all_cells,
    cells_of,
    cells_of_run,
)
from tests.support.runs.maintenance_runs import enable_deletion_vectors, keys, mark_deleted, remove_files
from tests.support.servers.gate import Gate
from tests.support.servers.matrix_places import Places
from tests.support.tables.small_tables import contents, with_unknown_feature
from tests.support.tables.vacuumable_tables import old_file

from delta_log import Table
from live_airflow import LiveAirflow

pytestmark = [pytest.mark.slow, pytest.mark.airflow, pytest.mark.spark]

CELLS = cells_of_run()
#: Airflow tells a task that it is killed when its process sends the next heartbeat.
_SECONDS_TO_END = 15
#: How long jobs are held up while their tasks are deferred.
_SECONDS_HELD = 60 if len(CELLS) == len(all_cells()) else 4
_TASK = "maintain"
#: Words of the keys that an operation changes first.
_FIRST_CHANGE = {"optimize": "part=", "purge": "part=", "vacuum": "part=", "checkpoint": ".checkpoint"}


@dataclass
class Case:
    """One cell at work: its table, and its DAG run."""

    airflow: LiveAirflow
    places: Places
    cell: Cell
    table: Path
    limit: str = ""
    run_id: str = ""
    version_before: int = 0
    orphans: int = 0
    #: For the table of results.
    remark: str = "yes"

    def __post_init__(self) -> None:
        for number in range(3):
            self._append(number)
        if self.cell.operation == "purge":
            enable_deletion_vectors(self.table)
        self.make_due()

    # -- the table ---------------------------------------------------------------------------------------

    def make_due(self) -> None:
        """Give the operation something to do."""
        if self.cell.operation == "purge":
            mark_deleted(self.table, {key: [0] for key in keys(self.table)})
        elif self.cell.operation == "vacuum":
            self.orphans += 1
            old_file(self.table / "part=x" / f"orphan-{self.orphans}.parquet")
        else:
            self._append(10 + self.version)
        self.version_before = self.version
        self.rows_before = self.rows()

    def _append(self, number: int) -> None:
        rows = pa.table({"id": range(10 * number, 10 * number + 10), "part": ["x", "y"] * 5})
        write_deltalake(str(self.table), rows, partition_by=["part"], mode="append")

    @property
    def version(self) -> int:
        return Table(str(self.table)).snapshot().version

    def rows(self) -> list[int]:
        """As another implementation reads them."""
        query = QueryBuilder().register("t", DeltaTable(str(self.table)))
        return sorted(pa.table(query.execute("select id from t"))["id"].to_pylist())

    @property
    def is_done(self) -> bool:
        """Whether there is nothing left of what was due."""
        files = Table(str(self.table)).snapshot().files().to_pylist()
        if self.cell.operation == "optimize":
            return len(files) == len({row["key"].partition("/")[0] for row in files})
        if self.cell.operation == "purge":
            return all(row["deletion_vector"] is None for row in files)
        if self.cell.operation == "vacuum":
            return not list(self.table.glob("part=x/orphan-*"))
        name = f"{self.version_before:020}.checkpoint.parquet"
        return (self.table / "_delta_log" / name).exists()

    @property
    def is_untouched(self) -> bool:
        if self.cell.operation in ("optimize", "purge"):
            return self.version == self.version_before
        if self.cell.operation == "vacuum":
            return len(list(self.table.glob("part=x/orphan-*"))) == self.orphans
        return not list(self.table.glob("_delta_log/*.checkpoint*"))

    @cached_property
    def gate(self) -> Gate:
        return Gate(self.table)

    def hold(self) -> None:
        self.gate.hold(_FIRST_CHANGE[self.cell.operation])

    # -- the run -----------------------------------------------------------------------------------------

    @property
    def dag_id(self) -> str:
        words = (self.cell.operation, self.cell.way.replace(" ", "_"), self.limit)
        return "_".join(filter(None, words))

    def start(self) -> None:
        self.run_id = self.airflow.trigger(self.dag_id, conf={"table": str(self.table)})

    def start_and_hold(self) -> None:
        """Start a run, and return when its job is held up, and the task is deferred if it will be."""
        self.hold()
        self.start()
        self.wait_until(self.gate.held)
        if self.cell.is_deferred:
            at_work = datetime.now(UTC)
            self.wait_until(lambda: self.task["state"] == "deferred")
            waited = (datetime.now(UTC) - at_work).total_seconds()
            self.remark = f"yes, deferred {waited:.0f} s after its job was at work"

    def wait_until(self, found: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not (value := found()):
            assert time.monotonic() < deadline, self.story
            # Some cases ask Airflow at the same time, and each answer costs its server.
            time.sleep(2)
        return value

    @property
    def task(self) -> dict[str, Any]:
        return self.airflow.task(self.dag_id, self.run_id, _TASK)

    def ends(self, state: str) -> None:
        self.wait_until(lambda: self.airflow.run_state(self.dag_id, self.run_id) in ("success", "failed"))
        assert self.airflow.run_state(self.dag_id, self.run_id) == state, self.story

    @property
    def story(self) -> str:
        return self.airflow.story(self.dag_id, self.run_id)

    def log(self, try_number: int) -> str:
        return "\n".join(self.airflow.task_log(self.dag_id, self.run_id, _TASK, try_number))

    @property
    def report(self) -> dict[str, Any]:
        found: dict[str, Any] = self.airflow.xcom(self.dag_id, self.run_id, _TASK)
        return found

    def beside(self, name: str) -> Path:
        return self.table.with_name(f"{self.table.name}.{name}")

    def slots(self) -> list[int]:
        """The processes that have run the task."""
        try:
            return [int(line) for line in self.beside("slots").read_text().splitlines()]
        except FileNotFoundError:
            return []

    def set_state(self, state: str) -> None:
        run = f"/api/v2/dags/{self.dag_id}/dagRuns/{quote(self.run_id, safe='')}"
        self.airflow.call("PATCH", f"{run}/taskInstances/{_TASK}", {"new_state": state})

    def clear(self) -> None:
        body = {
            "dry_run": False,
            "dag_run_id": self.run_id,
            "task_ids": [_TASK],
            "only_failed": False,
            "reset_dag_runs": True,
        }
        self.airflow.call("POST", f"/api/v2/dags/{self.dag_id}/clearTaskInstances", body)

    # -- what must hold ----------------------------------------------------------------------------------

    def succeeds(self, *, tries: int | None = 1) -> None:
        """The run succeeds, what was due is done once, and all rows are there."""
        self.ends("success")
        assert self.is_done, self.story
        assert self.rows() == self.rows_before
        if self.cell.operation in ("optimize", "purge"):
            assert self.version == self.version_before + 1, "committed once"
            assert self.report["version"] == self.version
        if tries is not None:
            assert self.task["try_number"] == tries, self.story

    def leaves_nothing_at_work(self) -> None:
        """What was held up ends, and nothing happens when the gate is open."""
        began = time.monotonic()
        self.wait_until(lambda: not self.gate.held())
        self.remark = f"yes, at rest after {time.monotonic() - began:.0f} s"
        # A job that was only about to begin is ended a little later, or comes to the gate.
        time.sleep(_SECONDS_TO_END)
        self.wait_until(lambda: not self.gate.held())
        self.gate.release()
        time.sleep(5)
        assert self.is_untouched, self.story
        assert self.rows() == self.rows_before


MakeCase = Callable[..., Case]
Situation = Callable[[Case], None]


def run_cells(
    situation: str,
    make_case: MakeCase,
    results: dict[Cell, str],
    *phases: Situation | Callable[[], None],
    limit: str = "",
) -> None:
    """Run the cells of a situation, some at a time; fail with the stories of those that fail.

    :param phases: what is done with each case; the first of the next phase begins when the last of a phase has ended. One without a
        parameter is done once.
    """
    # By operation, so that those that run at the same time use different clusters.
    cells = sorted(cells_of(situation, CELLS))
    failures: dict[Cell, str] = {}
    for first in range(0, len(cells), CELLS_AT_ONCE):
        cases = _run_wave(cells[first : first + CELLS_AT_ONCE], make_case, failures, phases, limit)
        results |= {cell: case.remark for cell, case in cases.items()}
    results |= dict.fromkeys(failures, "**failed**")
    assert not failures, "\n\n".join(f"=== {cell}\n{text}" for cell, text in failures.items())


def _run_wave(
    cells: Sequence[Cell],
    make_case: MakeCase,
    failures: dict[Cell, str],
    phases: Sequence[Callable[..., None]],
    limit: str,
) -> dict[Cell, Case]:
    cases: dict[Cell, Case] = {}

    def attempt(cell: Cell, work: Callable[..., None]) -> None:
        if cell in failures:
            return
        try:
            if cell not in cases:
                cases[cell] = make_case(cell, limit)
            work(cases[cell])
        except Exception as error:
            failures[cell] = f"{type(error).__name__}: {error}"

    with ThreadPoolExecutor(CELLS_AT_ONCE) as pool:
        for phase in phases:
            if phase.__code__.co_argcount:
                list(pool.map(attempt, cells, [phase] * len(cells)))
            else:
                phase()
    for case in cases.values():
        case.gate.release()
    return cases


@pytest.fixture
def make_case(airflow: LiveAirflow, places: Places, tmp_path: Path) -> MakeCase:
    def make(cell: Cell, limit: str) -> Case:
        return Case(airflow, places, cell, tmp_path / f"{cell.operation} {cell.way}".replace(" ", "-"), limit)

    return make


def test_success_then_cleared(make_case: MakeCase, results: dict[Cell, str]) -> None:
    """A run succeeds. Then something is due again, and its task is cleared."""

    def cleared(case: Case) -> None:
        case.start()
        case.succeeds()
        case.make_due()
        assert not case.is_done
        case.clear()
        case.wait_until(lambda: case.task["try_number"] == 2)
        case.succeeds(tries=2)

    run_cells("success, then cleared", make_case, results, cleared)


def test_refusal(make_case: MakeCase, results: dict[Cell, str]) -> None:
    """A table with an unknown feature: refused at once, not tried again, nothing written."""

    def refused(case: Case) -> None:
        with_unknown_feature(case.table)
        before = contents(case.table)
        case.start()
        case.ends("failed")
        assert case.task["try_number"] == 1, case.story
        assert "timeTravelToTheFuture" in case.log(1), case.story
        assert contents(case.table) == before

    run_cells("refusal", make_case, results, refused)


def test_another_writer(make_case: MakeCase, results: dict[Cell, str]) -> None:
    """Another writer removes a partition while the job is at work: its rows stay away, and the rest is done."""

    def beside_a_writer(case: Case) -> None:
        case.start_and_hold()
        remove_files(case.table, "part=x/")
        rows = case.rows()
        assert len(rows) < len(case.rows_before)
        case.gate.release()
        case.ends("success")
        assert case.rows() == rows
        assert case.is_done, case.story
        if case.cell.operation in ("optimize", "purge"):
            assert case.report["dropped_bins"] == 1, case.report

    run_cells("another writer", make_case, results, beside_a_writer)


def test_outage(make_case: MakeCase, places: Places, results: dict[Cell, str]) -> None:
    """Where the job should run does not answer: the try fails, and the next one succeeds."""

    def meets_an_outage(case: Case) -> None:
        case.beside("not_yet").touch()
        case.start()
        case.wait_until(lambda: len(case.slots()) > 1 or case.task["state"] in ("failed", "success"))
        assert len(case.slots()) == 2, case.story

    def close() -> None:
        places.set_open(False)

    def open_() -> None:
        places.set_open(True)

    def second_try(case: Case) -> None:
        case.beside("not_yet").unlink()
        case.succeeds(tries=2)

    run_cells("outage", make_case, results, close, meets_an_outage, open_, second_try)


def test_marked_failed(make_case: MakeCase, results: dict[Cell, str]) -> None:
    def marked_failed(case: Case) -> None:
        case.start_and_hold()
        # The triggerer calls a trigger's on_kill only if it has begun to run it.
        time.sleep(3)
        case.set_state("failed")
        case.leaves_nothing_at_work()
        assert case.task["state"] == "failed", case.story

    run_cells("marked failed", make_case, results, marked_failed)


def test_worker_killed(make_case: MakeCase, results: dict[Cell, str]) -> None:
    """The process of the task is killed while it waits, or, of a deferred task, as soon as it goes on."""

    def killed(case: Case) -> None:
        if case.cell.is_deferred:
            case.beside("killed_slot").write_text("2")
            case.start()
        else:
            case.start_and_hold()
            held = case.gate.held()
            psutil.Process(case.slots()[-1]).kill()
            if case.cell.place in ("local", "client"):
                # The job has noticed that its task is gone.
                case.wait_until(lambda: not set(held) & set(case.gate.held()))
            case.wait_until(lambda: len(case.slots()) > 1)
            case.gate.release()
        case.succeeds(tries=2)

    run_cells("worker killed", make_case, results, killed)


def test_retry_after_commit(make_case: MakeCase, results: dict[Cell, str]) -> None:
    def killed_at_end(case: Case) -> None:
        case.beside("killed_at_end").touch()
        case.start()
        case.succeeds(tries=2)

    run_cells("retry after commit", make_case, results, killed_at_end)


def test_execution_timeout(make_case: MakeCase, results: dict[Cell, str]) -> None:
    def times_out(case: Case) -> None:
        case.hold()
        case.start()
        case.ends("failed")
        case.leaves_nothing_at_work()
        assert "execution_timeout" in case.story or "AirflowTaskTimeout" in case.story, case.story

    run_cells("execution timeout", make_case, results, times_out, limit="execution")


def test_dag_run_timeout(make_case: MakeCase, results: dict[Cell, str]) -> None:
    def times_out(case: Case) -> None:
        case.hold()
        case.start()
        case.ends("failed")
        assert case.task["state"] == "skipped", case.story
        case.leaves_nothing_at_work()

    run_cells("DAG-run timeout", make_case, results, times_out, limit="run")


def test_scheduler_restart(make_case: MakeCase, airflow: LiveAirflow, results: dict[Cell, str]) -> None:
    """The scheduler dies with its workers: deferred tasks go on, the others are tried again."""

    def hold(case: Case) -> None:
        case.start_and_hold()

    def restart() -> None:
        airflow.kill("scheduler")
        airflow.start_component("scheduler")

    def goes_on(case: Case) -> None:
        if not case.cell.is_deferred:
            case.wait_until(lambda: len(case.slots()) > 1)
        case.gate.release()
        case.succeeds(tries=1 if case.cell.is_deferred else 2)

    run_cells("scheduler restart", make_case, results, hold, restart, goes_on)


def test_triggerer_restart(make_case: MakeCase, airflow: LiveAirflow, results: dict[Cell, str]) -> None:
    """Deferred tasks hold no slot for as long as their jobs last, and the triggerer is killed meanwhile."""

    def hold(case: Case) -> None:
        case.start_and_hold()

    def restart() -> None:
        for is_restarted in (False, True):
            if is_restarted:
                airflow.kill("triggerer")
                airflow.start_component("triggerer")
            for _ in range(_SECONDS_HELD // 2):
                pool = airflow.call("GET", "/api/v2/pools/default_pool")
                assert (pool["running_slots"], pool["queued_slots"]) == (0, 0)
                time.sleep(1)

    def goes_on(case: Case) -> None:
        assert len(case.slots()) == 1
        case.gate.release()
        case.succeeds()

    run_cells("triggerer restart", make_case, results, hold, restart, goes_on)
