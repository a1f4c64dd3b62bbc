"""The last task of a fleet's run: accounts for what was done, and says what a person has to look at."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseOperator
from airflow.sdk.configuration import conf
from airflow.sdk.exceptions import AirflowFailException

from airflow_delta.assets import shared_maintenance_asset
from airflow_delta.fleet.arguments import ASSET, DECIDED_BY, STATE
from airflow_delta.fleet.fleet_task import FleetTask, document_of
from airflow_delta.monitoring.fleets.record import keep
from airflow_delta.operators.arguments import DELTA_CONN_ID, by_attribute
from airflow_delta.operators.reporting.fleet_stats import gauge_fleet
from delta_log.printable import printable

if TYPE_CHECKING:
    from airflow.sdk import Context

    from delta_maintenance.fleet.account.report import FleetReport
    from delta_maintenance.fleet.account.view import FleetView


class DeltaFleetAccountOperator(FleetTask, BaseOperator):
    """Writes what came of a run to the fleet's memory, and reports it.

    The XCom is the report. The task fails, after that, if a table failed or could not be read that did not in the run before; otherwise
    it emits one event of the asset ``delta-maintenance:<asset>``.

    The state store of this asset has what the page *Delta tables* shows of the run, and Airflow's metrics get its figures.

    :param decided_by: id of the task that has decided what this run does.
    :param asset: name of the asset.
    :param state: directory in which the fleet keeps its memory. (templated)
    :param delta_conn_id: connection with the credentials of the stores; default: the identity of the machine. (templated)
    """

    arguments = by_attribute(
        DECIDED_BY,
        ASSET,
        STATE,
        DELTA_CONN_ID,
    )
    template_fields = ("state", "delta_conn_id")
    ui_color = "#e3f4f7"
    #: The report, once the task has made it, and the run table by table.
    report: FleetReport | None = None
    view: FleetView | None = None

    def __init__(
        self,
        *,
        decided_by: str,
        state: str,
        asset: str = "fleet",
        delta_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.decided_by = decided_by
        self.asset = asset
        self.state = state
        self.delta_conn_id = delta_conn_id
        self.check_known()
        self.outlets = [*self.outlets, shared_maintenance_asset(asset)]

    def execute(self, context: Context) -> dict[str, Any]:
        with self.at_work():
            report = self.report = self._accounted(context)
        document = document_of(report)
        if report.has_news:
            context["ti"].xcom_push(key="return_value", value=document)
            raise AirflowFailException(_problem(report))
        event = context["outlet_events"][shared_maintenance_asset(self.asset)]
        event.extra = {"run_id": report.run_id, "figures": document["figures"]}
        return document

    def _accounted(self, context: Context) -> FleetReport:
        # Imported here, since they load pyarrow, and a DAG file imports this module.
        from delta_maintenance.fleet.account.report import report_of
        from delta_maintenance.fleet.account.view import view_of
        from delta_maintenance.fleet.policy.reading import read_policy
        from delta_maintenance.fleet.run import account_for
        from delta_maintenance.fleet.text import render_report

        store = self.store()
        night = account_for(self.decided_night(context, store), store, self.site([]), self.progress())
        report = report_of(night)
        self.tell(render_report(report))
        view = self.view = view_of(night, read_policy(night.policy, night.source))
        self.tell("\n".join(f"ALERT: {one.why}" for one in view.alerts))
        gauge_fleet(view, self.asset)
        self._keep_for_page(context, view)
        return report

    def _keep_for_page(self, context: Context, view: FleetView) -> None:
        """A night that cannot be kept for the page is logged, and does not fail the task: the memory of the fleet has it."""
        try:
            if conf.getboolean("delta", "monitoring", fallback=True):
                keep(context["asset_state_store"][shared_maintenance_asset(self.asset)], view)
        except Exception:
            self.log.warning("The page Delta tables does not learn of this run.", exc_info=True)


def _problem(report: FleetReport) -> str:
    new = [f"{trouble.table}: {trouble.message}" for trouble in report.troubles if trouble.is_new]
    more = f"; and {len(new) - 20} more" if len(new) > 20 else ""
    return printable(f"New failures, {len(new)} in all. {'; '.join(new[:20])}{more}")
