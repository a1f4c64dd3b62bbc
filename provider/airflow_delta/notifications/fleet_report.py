"""A notifier that sends the report of a fleet's run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Literal

from airflow.sdk import BaseNotifier

from airflow_delta.notifications.sending import Send, as_list, send_all

if TYPE_CHECKING:
    from airflow.sdk import Context

_WHEN = ("always", "news")


class DeltaFleetReportNotifier(BaseNotifier):
    """Sends the report of a fleet's run: for both ``on_success_callback`` and ``on_failure_callback`` of the task ``account``.

    :param notifiers: senders: a notifier of a provider, another function of the context, or a list of these. Their templates
        have ``delta`` with ``report`` (the XCom's members), ``subject`` (one line), ``text`` and ``markdown``.
    :param when: ``always``, or ``news``: only where something failed that did not fail before.
    """

    def __init__(
        self, notifiers: Send | Sequence[Send], *, when: Literal["always", "news"] = "always", **kwargs: Any
    ) -> None:
        super().__init__(**kwargs)
        self.notifiers = as_list(notifiers)
        if when not in _WHEN:
            raise ValueError(f"when: {when!r} is not one of {', '.join(_WHEN)}.")
        self.when = when

    def notify(self, context: Context) -> None:
        report = getattr(context["ti"].task, "report", None)
        if report is None:
            said = self._without_report(context)
        elif self.when == "news" and not report.has_news:
            self.log.info("Nothing is sent: nothing is new.")
            return
        else:
            said = _members(report)
        send_all(self.notifiers, context, said)

    @staticmethod
    def _without_report(context: Context) -> dict[str, Any]:
        """What is sent if the task failed before there was a report."""
        text = f"The fleet has no report. {context.get('exception') or 'The task was killed.'}"
        return {"report": {}, "subject": "Fleet: no report", "text": text, "markdown": text}


def _members(report: Any) -> dict[str, Any]:
    # Imported here, since they load much, and a DAG file imports this module.
    from msgspec import to_builtins

    from delta_maintenance.fleet.text import render_markdown, render_report

    figures, new = report.figures, sum(trouble.is_new for trouble in report.troubles)
    subject = f"Fleet: {figures.num_unhealthy:,} of {figures.num_tables:,} tables unhealthy, {figures.num_done:,} operations done"
    return {
        "report": to_builtins(report),
        "subject": f"{subject}, {new:,} new failures" if new else subject,
        "text": render_report(report),
        "markdown": render_markdown(report),
    }
