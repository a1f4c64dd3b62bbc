"""The operator that does what is due for one table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException
from msgspec.structs import replace

from airflow_delta.assets import MAINTENANCE_ALIAS, maintenance_asset
from airflow_delta.fleet.arguments import POLICY
from airflow_delta.fleet.fleet_task import document_of
from airflow_delta.fleet.fleet_work import WORK_ARGUMENTS, FleetWorkOperator
from airflow_delta.links import TableLink, TablePageLink, leading_links
from airflow_delta.monitoring.record import table_id
from airflow_delta.operators.arguments import TABLE, by_attribute
from delta_log.printable import printable

if TYPE_CHECKING:
    from airflow.sdk import Context

    from delta_maintenance.fleet.account.report import FleetReport


class DeltaMaintenanceOperator(FleetWorkOperator):
    """Does what is due for one Delta table by a policy: a fleet of one table, in one task. It also takes the arguments of
    :class:`~airflow_delta.fleet.fleet_work.FleetWorkOperator`. ``state`` has a directory for each table below it.

    What a fleet promises holds here, too: unless the policy says otherwise, the first three runs only report, and deletions need a
    policy with ``trust: {deletions: auto}``, since nobody is asked. The XCom is the report of the run.

    An operation that fails is tried again by a later run, when the policy's ``failures`` say so, and not by a retry of this one.

    :param table: address of the table: an absolute path, a URI such as ``s3://lake/events``, or a name in a catalog,
        ``glue://sales.events`` or ``uc://prod.sales.events``. (templated)
    :param policy: path of the policy's file, absolute or beside the DAG file, or the policy's members as a dictionary; its ``tables``
        do not count. (templated)
    """

    arguments = by_attribute(TABLE, POLICY, *WORK_ARGUMENTS)
    template_fields = ("table", "policy", *FleetWorkOperator.template_fields)
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **FleetWorkOperator.template_fields_renderers,
        "policy": "json",
    }
    operator_extra_links = (*FleetWorkOperator.operator_extra_links, TableLink(), TablePageLink())
    # A night that is interrupted is accounted for, and another one decides anew. So the task keeps its slot.
    _deferrable = False

    def __init__(self, *, table: str, policy: str | Mapping[str, Any], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.policy = policy
        self.check_known()
        self.outlets = [*self.outlets, MAINTENANCE_ALIAS]

    def execute(self, context: Context) -> dict[str, Any]:
        with leading_links(self):
            with self.at_work():
                report = self._maintained(context)
            document = document_of(report)
            if report.troubles:
                context["ti"].xcom_push(key="return_value", value=document)
                raise AirflowFailException(printable("; ".join(one.message for one in report.troubles)))
            if report.done:
                extra = {"table": self.table, "run_id": report.run_id, "figures": document["figures"]}
                context["outlet_events"][MAINTENANCE_ALIAS].add(maintenance_asset(self.table), extra=extra)
            return document

    def _maintained(self, context: Context) -> FleetReport:
        # Imported here, since they load pyarrow, and a DAG file imports this module.
        from delta_maintenance.fleet.policy.document import Tables
        from delta_maintenance.fleet.run import FleetNight
        from delta_maintenance.fleet.text import render_report

        written, hook, instance = self.written_policy(), self.hook, context["ti"]
        only = replace(written.policy, tables=Tables(include=(self.table,)))
        state = f"{self.value_of('state').rstrip('/')}/{table_id(self.table)}"
        hook.require_allowed(state)
        fleet = FleetNight(
            replace(written, policy=only),
            state,
            self.site([self.table]),
            self.progress(),
            hook.allowed_roots,
            owner=f"of {instance.dag_id}, {instance.run_id}",
        )
        report = fleet.run((), self.fleet_job(), run=self.job_runner(context))
        self.tell(render_report(report))
        return report
