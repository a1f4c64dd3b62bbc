"""What the tasks of a fleet share: the store of the fleet's memory, the place where jobs run, and a log for progress."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from msgspec.structs import replace

from airflow_delta.fleet.policy_file import policy_from
from airflow_delta.hooks.delta_table import DeltaTableHook
from airflow_delta.operators.arguments import CheckedArguments
from airflow_delta.operators.reporting.failure import raise_for_error, with_connection
from airflow_delta.runners.job_runner import TaskLog
from delta_log.printable import printable
from delta_maintenance.errors import error_report
from delta_maintenance.process.fast_start import convert_without_pandas

if TYPE_CHECKING:
    from airflow.sdk import Context

    from delta_maintenance.fleet.account.night import Night
    from delta_maintenance.fleet.account.report import FleetReport
    from delta_maintenance.fleet.account.store import FleetStore
    from delta_maintenance.fleet.policy.reading import WrittenPolicy
    from delta_maintenance.job import JobSite
    from delta_maintenance.progress import ProgressReporter

#: The XCom with the id of the night, of the task that has decided.
NIGHT_KEY = "night"


def document_of(report: FleetReport) -> dict[str, Any]:
    """A report as Airflow keeps it: of lists and dictionaries, without tuples."""
    return dict(msgspec.json.decode(msgspec.json.encode(report)))


class TaskKilled(BaseException):
    """Airflow ends the task. Passes through code that handles every Exception."""


class LogStream:
    """A stream of text that is written to a task's log."""

    def __init__(self, log: TaskLog) -> None:
        self._log = log

    def write(self, text: str, /) -> int:
        for line in text.splitlines():
            if line.strip():
                self._log.info("%s", printable(line))
        return len(text)

    def flush(self) -> None:
        """The log needs none."""


class FleetTask(CheckedArguments):
    """Base of the tasks of a fleet; goes before Airflow's base class."""

    state: str
    delta_conn_id: str | None
    _is_at_work: bool = False

    @property
    def hook(self) -> DeltaTableHook:
        return DeltaTableHook(self.value_of("delta_conn_id"))

    def written_policy(self) -> WrittenPolicy:
        """
        :raises InvalidRequest: there is no such policy.
        """
        task: Any = self
        return policy_from(self.value_of("policy"), task.dag.fileloc)

    def site(self, addresses: Iterable[str]) -> JobSite:
        """
        :param addresses: addresses, names and patterns of tables.
        :raises AirflowFailException: the connection cannot open one of them.
        """
        from delta_maintenance.job import JobSite

        return JobSite(self.hook.options_for(addresses))

    def progress(self) -> ProgressReporter:
        from delta_maintenance.progress import HumanProgress

        task: Any = self
        return HumanProgress(LogStream(task.log), interval_seconds=30)

    def store(self) -> FleetStore:
        """The memory of the fleet.

        :raises AirflowFailException: it lies outside of the allowed roots.
        """
        from delta_maintenance.fleet.account.store import FleetStore

        state, hook = self.value_of("state"), self.hook
        hook.require_allowed(state)
        return FleetStore.open(state, hook.storage_options)

    def decided_night(self, context: Context, store: FleetStore) -> Night:
        """The night that an earlier task of this run has decided.

        :raises AirflowFailException: it has decided nothing.
        """
        task_id = self.value_of("decided_by")
        run_id = context["ti"].xcom_pull(task_ids=task_id, key=NIGHT_KEY)
        if not isinstance(run_id, str):
            raise AirflowFailException(
                f"The task {task_id} of this run has decided nothing, so there is nothing to go on with. Its log says why; clear it."
            )
        return store.night(run_id)

    def tell(self, text: str) -> None:
        """Write lines to the task's log."""
        task: Any = self
        LogStream(task.log).write(text)

    @contextmanager
    def at_work(self) -> Iterator[None]:
        """A part of the task that :meth:`on_kill` interrupts, and whose errors become Airflow's.

        :raises AirflowFailException: another try would fail, too.
        :raises AirflowException: another try may succeed.
        """
        self.check_all()
        # The process of the task does nothing else, and pandas would be a third of the memory that reading takes.
        convert_without_pandas()
        self._is_at_work = True
        try:
            yield
        except AirflowException:
            raise
        except Exception as error:  # noqa: BLE001 - it becomes Airflow's, and fails the task
            told = error_report(error)
            told = replace(told, message=with_connection(told.message, self.value_of("delta_conn_id")))
            raise_for_error(told, "fleet", self.state)
        finally:
            self._is_at_work = False

    def on_kill(self) -> None:
        """Airflow calls it from a signal's handler, while the task is at work. What is done so far is in the store."""
        if self._is_at_work:
            raise TaskKilled("Airflow ends the task.")
