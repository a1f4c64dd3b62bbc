"""The mapped task of a fleet's run: does the work on some tables, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_delta.fleet.arguments import STATE, UnitNumbers
from airflow_delta.fleet.fleet_task import NIGHT_KEY, FleetTask
from airflow_delta.operators.arguments import DELTA_CONN_ID, by_attribute
from delta_log.printable import printable
from delta_maintenance.options import MEMORY_LIMIT, PARALLELISM, Option, Text
from delta_maintenance.units import counted

if TYPE_CHECKING:
    from airflow.sdk import Context

    from delta_maintenance.fleet.account.night import Outcome, UnitResult


class DeltaFleetMaintainOperator(FleetTask, BaseOperator):
    """Does the work of a decision on some tables, one after the other, in the process of the task.

    What comes of each operation is written to the fleet's memory at once. Another try of the task goes on with what is not done. The
    task fails when all its tables had their turn, if one of them failed.

    :param night: id of the night that was decided. (templated)
    :param units: numbers of the units within the decision.
    :param title: name of the mapped task, for people.
    :param state: directory in which the fleet keeps its memory. (templated)
    :param delta_conn_id: connection with the credentials of the stores; default: the identity of the machine. (templated)
    :param memory_limit: ceiling for the memory of a rewrite. (templated)
    :param parallelism: threads of a rewrite at a time; default: what the machine has. (templated)
    """

    arguments = by_attribute(
        Option(NIGHT_KEY, Text(), "id of the night that was decided", required=True),
        Option(
            "units",
            UnitNumbers(),
            "numbers of the units within the decision",
            required=True,
            templates="none",
        ),
        Option("title", Text(), "name of the mapped task, for people", templates="none"),
        STATE,
        DELTA_CONN_ID,
        MEMORY_LIMIT,
        PARALLELISM,
    )
    template_fields = (NIGHT_KEY, "state", "delta_conn_id", "memory_limit", "parallelism")
    ui_color = "#e3f4f7"

    def __init__(
        self,
        *,
        night: str,
        units: Sequence[int],
        state: str,
        title: str | None = None,
        delta_conn_id: str | None = None,
        memory_limit: int | str = "1GiB",
        parallelism: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.night = night
        self.units = units
        self.title = title
        self.state = state
        self.delta_conn_id = delta_conn_id
        self.memory_limit = memory_limit
        self.parallelism = parallelism
        self.check_known()

    def execute(self, context: Context) -> dict[str, int]:
        with self.at_work():
            results = self._done()
        outcomes = [outcome for result in results for outcome in result.outcomes]
        for result in results:
            if result.not_begun is not None:
                self.tell(f"{result.not_begun.table}: not begun. {result.not_begun.why}")
        failed = [outcome for outcome in outcomes if outcome.run.has_failed]
        if failed:
            raise _failure(failed)
        return {
            "done": len(outcomes),
            "not_begun": sum(result.not_begun is not None for result in results),
        }

    def _done(self) -> list[UnitResult]:
        # Imported here, since they load pyarrow, and a DAG file imports this module.
        from delta_maintenance.fleet.run import FleetJob, FleetRunner, last_moment

        store = self.store()
        night, numbers = store.night(self.value_of(NIGHT_KEY)), self.value_of("units")
        if night.is_finished:
            raise AirflowFailException(
                f"The night {night.run_id} is accounted for already, so nothing of it is done any more. Run the DAG again."
            )
        job = FleetJob(
            memory_limit_bytes=self.value_of("memory_limit"),
            parallelism=self.value_of("parallelism"),
            allowed_roots=self.hook.allowed_roots,
        )
        site = self.site(night.decision.units[number].table for number in numbers)
        runner = FleetRunner(night, store, job, site, self.progress())
        return runner.run(last_moment(night.decision, None), numbers)


def _failure(failed: Sequence[Outcome]) -> Exception:
    """What the task raises. Where each table was refused, another try would fail, too."""
    told = "; ".join(f"{one.table}: {one.run.operation.upper()}: {one.run.message}" for one in failed[:20])
    problem = printable(f"{counted(len(failed), 'operation')} failed. {told}")
    is_final = all(one.run.kind == "refused" for one in failed)
    return AirflowFailException(problem) if is_final else AirflowException(problem)
