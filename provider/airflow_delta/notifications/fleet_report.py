"""A notifier that sends the report of a fleet's run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal, get_args

from airflow.sdk import BaseNotifier

from airflow_delta.notifications.sending import Send, as_list, send_all

if TYPE_CHECKING:
    from airflow.sdk import Context

When = Literal["always", "news", "alerts"]
_WHEN: tuple[When, ...] = get_args(When)


class DeltaFleetReportNotifier(BaseNotifier):
    """Sends the report of a fleet's run: for both ``on_success_callback`` and ``on_failure_callback`` of the task ``account``.

    :param notifiers: senders: a notifier of a provider, another function of the context, or a list of these. Their templates
        have ``delta`` with ``report`` (the XCom's members), ``alerts`` (texts), ``subject`` (one line), ``text`` and ``markdown``.
    :param when: ``always``, or ``news``: only where something failed that did not fail before, or ``alerts``: also where tables are
        unhealthy longer than ``within``, or the window took more than its budget. A run without a report is always told.
    """

    def __init__(self, notifiers: Send | Sequence[Send], *, when: When = "always", **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.notifiers = as_list(notifiers)
        if when not in _WHEN:
            raise ValueError(f"when: {when!r} is not one of {', '.join(_WHEN)}.")
        self.when = when

    def notify(self, context: Context) -> None:
        task = context["ti"].task
        report, view = getattr(task, "report", None), getattr(task, "view", None)
        if report is None or view is None:
            said = self._without_report(context)
        elif (self.when == "news" and not report.has_news) or (self.when == "alerts" and not view.alerts):
            self.log.info("Nothing is sent: there is no %s.", self.when)
            return
        else:
            said = _members(report, [one.why for one in view.alerts])
        send_all(self.notifiers, context, said)

    @staticmethod
    def _without_report(context: Context) -> dict[str, Any]:
        """What is sent if the task failed before there was a report."""
        text = f"The fleet has no report. {context.get('exception') or 'The task was killed.'}"
        return {"report": {}, "alerts": [text], "subject": "Fleet: no report", "text": text, "markdown": text}


def _members(report: Any, alerts: list[str]) -> dict[str, Any]:
    # Imported here, since they load much, and a DAG file imports this module.
    from msgspec import to_builtins

    from delta_maintenance.fleet.text import render_markdown, render_report

    figures, new = report.figures, sum(trouble.is_new for trouble in report.troubles)
    told = "".join(f"ALERT: {one}\n" for one in alerts)
    subject = f"Fleet: {figures.num_unhealthy:,} of {figures.num_tables:,} tables unhealthy, {figures.num_done:,} operations done"
    return {
        "report": to_builtins(report),
        "subject": f"{subject}, {new:,} new failures" if new else subject,
        "alerts": alerts,
        "text": told + render_report(report),
        "markdown": render_markdown(report) + "".join(f"\n**Alert:** {one}\n" for one in alerts),
    }
