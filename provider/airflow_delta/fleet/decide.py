"""The first task of a fleet's run: surveys all tables and decides what the run does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator

from airflow_delta.assets import shared_maintenance_asset
from airflow_delta.fleet.arguments import ASSET, POLICY, STATE
from airflow_delta.fleet.fleet_task import NIGHT_KEY, FleetTask
from airflow_delta.fleet.work_groups import work_groups
from airflow_delta.monitoring.fleets.record import HOLDS
from airflow_delta.operators.arguments import DELTA_CONN_ID, by_attribute

if TYPE_CHECKING:
    from airflow.sdk import Context

    from delta_maintenance.fleet.account.night import Night
    from delta_maintenance.fleet.decision.holds import Hold


class DeltaFleetDecideOperator(FleetTask, BaseOperator):
    """Surveys the tables of a policy, and decides what this run does. It changes no table.

    The XCom has a member for each task that is to be mapped: the arguments of
    :class:`~airflow_delta.fleet.maintain.DeltaFleetMaintainOperator`. Facts and decision are a file in the fleet's memory.

    :param policy: path of the policy's file, absolute or beside the DAG file, or the policy's members as a dictionary. (templated)
    :param state: directory in which the fleet keeps its memory. (templated)
    :param asset: name of the asset in whose state store the page *Delta tables* writes which tables are paused, or known to be broken.
    :param delta_conn_id: connection with the credentials of the stores; default: the identity of the machine. (templated)
    """

    arguments = by_attribute(POLICY, STATE, ASSET, DELTA_CONN_ID)
    template_fields = ("policy", "state", "delta_conn_id")
    template_fields_renderers: ClassVar[dict[str, str]] = {"policy": "json"}
    ui_color = "#e3f4f7"

    def __init__(
        self,
        *,
        policy: str | Mapping[str, Any],
        state: str,
        asset: str = "fleet",
        delta_conn_id: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.policy = policy
        self.state = state
        self.asset = asset
        self.delta_conn_id = delta_conn_id
        self.check_known()
        self.inlets = [*self.inlets, shared_maintenance_asset(asset)]

    def execute(self, context: Context) -> list[dict[str, Any]]:
        with self.at_work():
            night = self._begun(context)
        context["ti"].xcom_push(key=NIGHT_KEY, value=night.run_id)
        return mapped_arguments(night)

    def _begun(self, context: Context) -> Night:
        # Imported here, since they load pyarrow, and a DAG file imports this module.
        from delta_maintenance.fleet.account.report import report_of
        from delta_maintenance.fleet.run import FleetNight
        from delta_maintenance.fleet.text import render_report

        written, instance = self.written_policy(), context["ti"]
        hook = self.hook
        hook.require_allowed(self.value_of("state"))
        fleet = FleetNight(
            written,
            self.value_of("state"),
            self.site(written.policy.tables.include),
            self.progress(),
            hook.allowed_roots,
            owner=f"of {instance.dag_id}, {instance.run_id}",
            holds=self._holds(context),
        )
        night = fleet.begin()
        self.tell(render_report(report_of(night, is_planned=True)))
        return night

    def _holds(self, context: Context) -> tuple[Hold, ...]:
        """What persons have said on the page.

        :raises InvalidRequest: it cannot be read: a table that was paused must not be changed because of that.
        """
        from delta_maintenance.fleet.decision.holds import read_holds

        asset = shared_maintenance_asset(self.asset)
        place = f"the key {HOLDS} of the state store of the asset {asset.name}"
        return read_holds(context["asset_state_store"][asset].get(HOLDS), place)


def mapped_arguments(night: Night) -> list[dict[str, Any]]:
    """The arguments of each mapped task."""
    units = night.decision.units
    groups = work_groups([unit.cost.worker_seconds for unit in units], night.decision.at_once)
    return [
        {
            NIGHT_KEY: night.run_id,
            "units": list(group),
            "title": _title([units[number].table for number in group]),
        }
        for group in groups
    ]


def _title(tables: Sequence[str]) -> str:
    more = len(tables) - 1
    return f"{tables[0]} and {more} more" if more else tables[0]
