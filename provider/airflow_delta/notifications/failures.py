"""A notifier for maintenance that fails again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from airflow.sdk import BaseNotifier

from airflow_delta.monitoring.fleet import shown
from airflow_delta.notifications.memory import Memory
from airflow_delta.notifications.sending import Send, as_list, send

if TYPE_CHECKING:
    from airflow.sdk import Context

_MEMORY = Memory("failures")


class DeltaMaintenanceFailureNotifier(BaseNotifier):
    """Sends when a task has failed for a table several times in succession: for ``on_failure_callback`` of our operators.

    Runs of the DAG are counted, not the tries of a run. After the third failure it sends again after the sixth, and so on. A run that
    ends well ends the count.

    :param notifiers: senders: a notifier of a provider, another function of the context, or a list of these. Their templates
        have ``delta`` with ``table``, ``name``, ``page``, ``operation``, ``failures`` (how many), ``error`` and ``text``.
    :param times: number of failures after which it sends.
    """

    def __init__(self, notifiers: Send | Sequence[Send], *, times: int = 3, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.notifiers = as_list(notifiers)
        if times < 1:
            raise ValueError(f"times: {times} is not 1 or more.")
        self.times = times

    def notify(self, context: Context) -> None:
        """
        :raises TypeError: the task is none of our operators.
        """
        task = context["ti"].task
        table, operation = getattr(task, "table", None), getattr(task, "operation", None)
        if not isinstance(table, str):
            # Airflow's DAG processor notifies of tasks that were killed. It does not know the arguments of a mapped one.
            raise TypeError(
                "DeltaMaintenanceFailureNotifier does not know the table of this task. It belongs into on_failure_callback of an "
                "operator of this provider; an instance of a mapped task that was killed is not counted."
            )
        failures = _MEMORY.recall(context, table) + 1
        _MEMORY.keep(context, table, failures)
        if failures % self.times:
            self.log.info("Nothing is sent: %d of %d failures.", failures % self.times, self.times)
            return
        name = getattr(operation, "name", "maintenance")
        error = shown(str(context.get("exception") or "The task was killed."))
        send(
            self.notifiers,
            context,
            table,
            operation=name,
            failures=failures,
            error=error,
            text=f"{name} of {shown(table)} has failed {failures} times in succession.\n{error}",
        )


def forget_failures(context: Context, task: Any) -> None:
    """End the count of a table's failures, since a run has ended well.

    :param task: the operator that ran. Nothing is asked unless one of its callbacks counts.
    """
    counts = any(isinstance(one, DeltaMaintenanceFailureNotifier) for one in task.on_failure_callback or ())
    if counts and _MEMORY.recall(context, task.table):
        _MEMORY.keep(context, task.table, 0)
