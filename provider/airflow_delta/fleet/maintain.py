"""The mapped task of a fleet's run: does the work on some tables, one after the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowException, AirflowFailException

from airflow_delta.fleet.arguments import UnitNumbers
from airflow_delta.fleet.fleet_task import NIGHT_KEY
from airflow_delta.fleet.fleet_work import WORK_ARGUMENTS, FleetWorkOperator
from airflow_delta.operators.arguments import by_attribute
from airflow_delta.submitted_job import submitted_job
from delta_log.printable import printable
from delta_maintenance.options import Option, Text
from delta_maintenance.units import counted

if TYPE_CHECKING:
    from airflow.sdk import Context

    from delta_maintenance.fleet.account.night import Outcome, UnitResult


class DeltaFleetMaintainOperator(FleetWorkOperator):
    """Does the work of a decision on some tables, one after the other, in the process of the task; large rewrites run on Spark. It also
    takes the arguments of :class:`~airflow_delta.fleet.fleet_work.FleetWorkOperator`.

    What comes of each operation is written to the fleet's memory at once. Another try of the task goes on with what is not done. The
    task fails when all its tables had their turn, if one of them failed.

    :param night: id of the night that was decided. (templated)
    :param units: numbers of the units within the decision.
    :param title: name of the mapped task, for people.
    :param deferrable: switch to give up the worker slot while a rewrite runs on a cluster; default:
        ``[operators] default_deferrable``.
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
        *WORK_ARGUMENTS,
    )
    template_fields = (NIGHT_KEY, *FleetWorkOperator.template_fields)

    def __init__(
        self,
        *,
        night: str,
        units: Sequence[int],
        title: str | None = None,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.night = night
        self.units = units
        self.title = title
        self._deferrable = deferrable
        self.check_known()

    def execute(self, context: Context) -> dict[str, int]:
        with self.at_work():
            results = self._done(context)
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

    def _done(self, context: Context) -> list[UnitResult]:
        # Imported here, since they load pyarrow, and a DAG file imports this module.
        from delta_maintenance.fleet.run import FleetRunner, last_moment, unit_run

        store = self.store()
        night, numbers = store.night(self.value_of(NIGHT_KEY)), self.value_of("units")
        if night.is_finished:
            raise AirflowFailException(
                f"The night {night.run_id} is accounted for already, so nothing of it is done any more. Run the DAG again."
            )
        site = self.site(night.decision.units[number].table for number in numbers)
        # A job that an earlier process of this task has submitted is gone on with, also where the window has closed since.
        job = submitted_job(context)
        runner = FleetRunner(
            night,
            store,
            self.fleet_job(),
            site,
            self.progress(),
            self.job_runner(context),
            goes_on=None if job is None else job.run_id,
        )
        begun = [n for n in numbers if job is not None and job.run_id.startswith(unit_run(night, n))]
        others = [number for number in numbers if number not in begun]
        return [*runner.run(None, begun), *runner.run(last_moment(night.decision, None), others)]


def _failure(failed: Sequence[Outcome]) -> Exception:
    """What the task raises. Where each table was refused, another try would fail, too."""
    told = "; ".join(f"{one.table}: {one.run.operation.upper()}: {one.run.message}" for one in failed[:20])
    problem = printable(f"{counted(len(failed), 'operation')} failed. {told}")
    is_final = all(one.run.kind == "refused" for one in failed)
    return AirflowFailException(problem) if is_final else AirflowException(problem)
