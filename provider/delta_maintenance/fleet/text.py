"""Policies, decisions and nights of a fleet as text for people."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from delta_log.printable import printable_lines
from delta_maintenance.fleet.account.comparison import NightDifference
from delta_maintenance.fleet.account.report import FleetReport
from delta_maintenance.fleet.decision.document import Postponed, Spending, WorkUnit
from delta_maintenance.fleet.decision.explanation import Explanation
from delta_maintenance.fleet.history import Cost, NightFigures
from delta_maintenance.units import counted, format_bytes, format_duration, format_time

_TIME = "%Y-%m-%d %H:%M UTC"
#: A text for people names as many tables of one kind.
_MAX_LINES = 20


def render_report(report: FleetReport) -> str:
    """A night, as the command line prints it."""
    return printable_lines(_report_lines(report))


def _report_lines(report: FleetReport) -> Iterator[str]:
    figures = report.figures
    yield (
        f"{counted(figures.num_tables, 'table')}: {figures.num_unhealthy:,} unhealthy, {figures.num_unread:,} could not be read; "
        f"{counted(figures.num_files, 'file')}, {format_bytes(figures.size_bytes)}, {format_bytes(figures.reclaimable_bytes)} reclaimable"
    )
    if report.is_planned:
        yield f"would do {counted(len(report.planned), 'table')}:"
        yield from _shortened([_unit_line(unit) for unit in report.planned])
    else:
        yield from _done_lines(report)
    for trouble in report.troubles:
        yield f"{'FAILED' if trouble.is_new else 'still failing'}: {trouble.table}: {trouble.message}"
    yield from _section("waiting for a person", [_postponed_line(one) for one in report.waiting])
    yield from _section("over the budget", [_postponed_line(one) for one in report.over_budget])
    yield from _section("not begun, or interrupted", [f"{one.table}: {one.why}" for one in report.not_begun])
    yield from _section(
        "announced deletions",
        [f"{table}: {', '.join(names).upper()}" for table, names in report.announced.items()],
    )
    if report.skipped:
        yield "not done: " + ", ".join(f"{number:,} {reason}" for reason, number in report.skipped.items())
    for one in report.budget:
        if one.limit is not None:
            yield f"budget: {_spending(one)}"
    yield from _section(
        "unhealthy longest",
        [f"{one.table}, since {format_time(one.since_ms, _TIME)}" for one in report.worst],
    )


def _done_lines(report: FleetReport) -> Iterator[str]:
    took = format_duration(report.measured_seconds)
    forecast = format_duration(report.forecast_seconds)
    yield (
        f"done: {counted(len(report.done), 'operation')} in {took} (forecast {forecast}); {counted(report.saved_files, 'file')} less, "
        f"{format_bytes(report.saved_bytes)} freed"
    )
    yield from _shortened(
        [
            f"  {outcome.table}: {outcome.run.operation.upper()} {outcome.run.status.replace('_', ' ')}"
            for outcome in report.done
        ]
    )
    if report.not_worth_it:
        yield f"not worth it: {counted(report.not_worth_it, 'operation')} cost more than a month saves"


def _unit_line(unit: WorkUnit) -> str:
    what = "; ".join(f"{work.operation.upper()}: {work.why}" for work in unit.operations)
    return f"  {unit.table}: {what} Cost: {_cost(unit.cost)}."


def _postponed_line(one: Postponed) -> str:
    what = f" {', '.join(one.operations).upper()}:" if one.operations else ""
    owner = f" ({one.owner})" if one.owner else ""
    return f"{one.table}{owner}:{what} {one.why}"


def _section(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield f"{title}:"
        yield from _shortened([f"  {line}" for line in lines])


def _shortened(lines: Sequence[str]) -> Iterator[str]:
    yield from lines[:_MAX_LINES]
    if len(lines) > _MAX_LINES:
        yield f"  … and {len(lines) - _MAX_LINES:,} more; --json names them"


def _cost(cost: Cost) -> str:
    return f"{format_bytes(cost.read_bytes)}, {format_duration(cost.worker_seconds)} of a processor, {cost.requests:,.0f} requests"


def _spending(one: Spending) -> str:
    show = format_bytes if one.resource == "read" else "{:,.4g}".format
    assert one.limit is not None
    return (
        f"{one.resource.replace('_', ' ')} {show(one.spent + one.planned)} of {show(one.limit)}"
        f" ({(one.spent + one.planned) / one.limit:.0%})"
    )


def render_explanation(found: Explanation) -> str:
    """What a policy makes of one table."""
    return printable_lines(_explanation_lines(found))


def _explanation_lines(found: Explanation) -> Iterator[str]:
    yield f"{found.table}, version {found.version}"
    width = max(len(one.name) for one in found.settings)
    for one in found.settings:
        yield f"  {one.name:<{width}}  {one.value or '-':<22}  {one.origin}"
    is_healthy = any(one.reason == "healthy" for one in found.postponed)
    if found.unhealthy_since_ms is not None and not is_healthy:
        yield f"unhealthy since {format_time(found.unhealthy_since_ms, _TIME)}"
    if found.unit is not None:
        yield f"due now, score {found.unit.score:.1f} (value {found.unit.value:.4g}, cost {found.unit.price:.4g}):"
        for work in found.unit.operations:
            yield f"  {work.operation.upper()}: {work.why} {_cost(work.cost)}"
    for left in found.postponed:
        what = f"{', '.join(left.operations).upper()}: " if left.operations else ""
        then = "" if left.next_ms is None else f" Next: {format_time(left.next_ms, _TIME)}."
        yield f"not now: {what}{left.reason.replace('_', ' ')}. {left.why}{then}"


def render_differences(nights: Sequence[NightDifference]) -> str:
    """What a new policy would have done otherwise."""
    return printable_lines(_difference_lines(nights))


def _difference_lines(nights: Sequence[NightDifference]) -> Iterator[str]:
    if not nights:
        yield "no night was recorded in this time"
        return
    old, new = Cost(), Cost()
    for night in nights:
        old, new = old.plus(night.old_cost), new.plus(night.new_cost)
        lines = [f"  - {table}: {', '.join(names).upper()}" for table, names in night.only_old.items()]
        lines += [f"  + {table}: {', '.join(names).upper()}" for table, names in night.only_new.items()]
        if lines:
            yield f"{format_time(night.started_ms, _TIME)}: {night.num_old:,} tables, {night.num_new:,} by the new policy"
            yield from _shortened(lines)
    yield f"{counted(len(nights), 'night')}, old: {_cost(old)}"
    yield f"{counted(len(nights), 'night')}, new: {_cost(new)}"


# -- Markdown --------------------------------------------------------------------------------------------------------


def render_markdown(report: FleetReport) -> str:
    """A night as a message: a heading, a table of figures, and what a person has to look at."""
    return "\n".join(_markdown_lines(report)) + "\n"


def _markdown_lines(report: FleetReport) -> Iterator[str]:
    started = format_time(report.started_ms, _TIME)
    yield f"## Fleet, {started}"
    yield ""
    yield "| tables | unhealthy | unread | done | failed | files less | freed |"
    yield "|---|---|---|---|---|---|---|"
    figures = report.figures
    yield (
        f"| {figures.num_tables:,} | {figures.num_unhealthy:,} | {figures.num_unread:,} | {figures.num_done:,} | "
        f"{figures.num_failed:,} | {report.saved_files:,} | {format_bytes(report.saved_bytes)} |"
    )
    new = [trouble for trouble in report.troubles if trouble.is_new]
    yield from _list("New failures", [f"`{one.table}`: {one.message}" for one in new])
    yield from _list("Waiting for a person", [_postponed_line(one) for one in report.waiting])
    yield from _list("Over the budget", [_postponed_line(one) for one in report.over_budget])
    yield from _list(
        "Unhealthy longest",
        [f"`{one.table}`, since {format_time(one.since_ms, _TIME)}" for one in report.worst],
    )
    yield from _list(
        "Trend", [_trend_line(one) for one in report.trend[-7:]] if len(report.trend) > 1 else []
    )


def _list(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield ""
        yield f"**{title}**"
        yield ""
        yield from (f"- {line}" for line in lines[:_MAX_LINES])
        if len(lines) > _MAX_LINES:
            yield f"- … and {len(lines) - _MAX_LINES:,} more"


def _trend_line(one: NightFigures) -> str:
    return (
        f"{format_time(one.started_ms, _TIME)}: {one.num_unhealthy:,} unhealthy of {one.num_tables:,}, "
        f"{counted(one.num_files, 'file')}, {format_bytes(one.reclaimable_bytes)} reclaimable"
    )
