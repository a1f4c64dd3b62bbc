"""A notifier for tables that need attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseNotifier

from airflow_delta.monitoring.fleet import objects, shown, text
from airflow_delta.monitoring.record import STATUS_NUMBERS
from airflow_delta.notifications.memory import Memory
from airflow_delta.notifications.sending import Send, as_list, send

if TYPE_CHECKING:
    from airflow.sdk import Context

_MEMORY = Memory("attention")


class DeltaTableAttentionNotifier(BaseNotifier):
    """Sends when a reading finds that a table has become worse: for ``on_success_callback`` of ``DeltaTableHealthOperator``.

    It sends once for each step, from healthy to attention or from attention to critical, and not again while the table stays so.

    :param notifiers: senders: a notifier of a provider, another function of the context, or a list of these. Their templates
        have ``delta`` with ``table``, ``name``, ``page``, ``status``, ``findings``, ``recommendations`` (texts) and ``text``.
    :param at_least: the status from which on it sends.
    """

    def __init__(
        self,
        notifiers: Send | Sequence[Send],
        *,
        at_least: Literal["unsupported", "attention", "critical"] = "attention",
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.notifiers = as_list(notifiers)
        if not STATUS_NUMBERS.get(at_least):
            raise ValueError(f"at_least: {at_least!r} is not one of unsupported, attention, critical.")
        self.at_least = at_least

    def notify(self, context: Context) -> None:
        """
        :raises TypeError: the task reads no health.
        """
        document = getattr(context["ti"].task, "document", None)
        if not isinstance(document, Mapping):
            raise TypeError(
                "DeltaTableAttentionNotifier has no reading of health to decide by. It belongs into on_success_callback of a "
                "DeltaTableHealthOperator."
            )
        table, status = str(document["table"]), str(document.get("status"))
        rank, before = STATUS_NUMBERS.get(status, 0), _MEMORY.recall(context, table)
        if rank != before:
            _MEMORY.keep(context, table, rank)
        if rank <= before or rank < STATUS_NUMBERS[self.at_least]:
            self.log.info("Nothing is sent: the status is %s, and was no better before.", shown(status))
            return
        findings = [text(one, "message") or "" for one in objects(document.get("findings"))]
        advice = [
            f"{text(one, 'operation')}: {text(one, 'why')}"
            for one in objects(document.get("recommendations"))
        ]
        lines = [f"{shown(table)}: {shown(status)}", *findings, *(f"Recommended: {one}" for one in advice)]
        send(
            self.notifiers,
            context,
            table,
            status=shown(status),
            findings=findings,
            recommendations=advice,
            text="\n".join(lines),
        )
