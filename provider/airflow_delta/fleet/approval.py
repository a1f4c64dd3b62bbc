"""The task of a fleet's run that asks a person about deletions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk.exceptions import AirflowSkipException

from airflow_delta.fleet.arguments import DECIDED_BY, STATE
from airflow_delta.fleet.fleet_task import FleetTask
from airflow_delta.operators.arguments import DELTA_CONN_ID, by_attribute
from delta_log.printable import printable
from delta_maintenance.units import counted, format_bytes

if TYPE_CHECKING:
    from airflow.sdk import Context

    from delta_maintenance.fleet.account.night import Night
    from delta_maintenance.fleet.decision.document import Postponed

_MAX_NAMED = 200


class DeltaFleetApprovalOperator(FleetTask, ApprovalOperator):
    """Asks a person to approve the deletions that wait for it. It is skipped where none waits.

    What is approved is written to the fleet's memory. The next run of the fleet does it, if it comes within 7 days. Where it is rejected, or
    nobody answers in time, nothing is written, and the next run asks again.

    :param decided_by: id of the task that has decided what this run does.
    :param state: directory in which the fleet keeps its memory. (templated)
    :param delta_conn_id: connection with the credentials of the stores; default: the identity of the machine. (templated)
    """

    arguments = by_attribute(DECIDED_BY, STATE, DELTA_CONN_ID)
    template_fields = ("state", "delta_conn_id")
    ui_color = "#e3f4f7"

    def __init__(
        self, *, decided_by: str, state: str, delta_conn_id: str | None = None, **kwargs: Any
    ) -> None:
        super().__init__(
            subject="Approve the deletions of the fleet?", defaults=ApprovalOperator.REJECT, **kwargs
        )
        self.decided_by = decided_by
        self.state = state
        self.delta_conn_id = delta_conn_id
        self.check_known()

    def execute(self, context: Context) -> Any:
        with self.at_work():
            night = self.decided_night(context, self.store())
        waiting = waiting_deletions(night)
        if not waiting:
            raise AirflowSkipException("No deletion waits for a person.")
        self.subject = f"Approve deletions on {counted(len(waiting), 'table')}?"
        self.body = printable_body(night, waiting)
        return super().execute(context)

    def execute_complete(self, context: Context, event: dict[str, Any]) -> Any:
        answer = super().execute_complete(context, event)
        if self.APPROVE in answer["chosen_options"]:
            with self.at_work():
                self._record(context, answer)
        return answer

    def _record(self, context: Context, answer: Any) -> None:
        from delta_log.runtime import Runtime
        from delta_maintenance.fleet.account.approvals import Approval, ApprovalFolder

        store, runtime = self.store(), Runtime()
        waiting = waiting_deletions(self.decided_night(context, store))
        person = answer.get("responded_by_user") or {}
        approval = Approval(
            runtime.now_ms(),
            {one.table: one.operations for one in waiting},
            by=str(person.get("name") or ""),
        )
        ApprovalFolder(store.storage).add(approval, runtime.new_id())
        self.tell(f"approved: {counted(len(waiting), 'table')}; the next run deletes their files")


def waiting_deletions(night: Night) -> list[Postponed]:
    """What waits for a person, with one member for each table."""
    from msgspec.structs import replace

    found: dict[str, Postponed] = {}
    for one in night.decision.postponed:
        if one.reason == "approval":
            before = found[one.table].operations if one.table in found else ()
            found[one.table] = replace(one, operations=(*before, *one.operations))
    return list(found.values())


def printable_body(night: Night, waiting: Sequence[Postponed]) -> str:
    """The text that a person reads before the answer, in Markdown."""
    return "\n".join(_body_lines(night, waiting))


def _body_lines(night: Night, waiting: Sequence[Postponed]) -> Iterator[str]:
    from delta_maintenance.fleet.facts import SurveyedTable

    facts = {table.table: table.facts for table in night.tables if isinstance(table, SurveyedTable)}
    yield "The next run of the fleet deletes what these tables no longer need by then:"
    yield ""
    for one in waiting[:_MAX_NAMED]:
        removed, log = facts[one.table].removed.reclaimable, facts[one.table].log
        sizes = {
            "vacuum": f"VACUUM, {removed.files:,} files, {format_bytes(removed.size_bytes)}",
            "cleanup-log": f"CLEANUP-LOG, {log.expired.files:,} files of the log",
        }
        told = "; ".join(sizes.get(name, name.upper()) for name in one.operations)
        yield f"* `{printable(one.table)}`: {told}"
    if len(waiting) > _MAX_NAMED:
        yield f"* and {len(waiting) - _MAX_NAMED:,} more tables"
