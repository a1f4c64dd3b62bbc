"""Why work that is due is not done now. Pure.

The checks stand in the order in which a person would want to know of them; the first that applies is told.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from msgspec import Struct

from delta_maintenance.fleet.decision.document import Postponed, Reason, Work
from delta_maintenance.fleet.decision.due import DELETIONS, is_own
from delta_maintenance.fleet.decision.holds import Hold, hold_for
from delta_maintenance.fleet.facts import SurveyedTable
from delta_maintenance.fleet.history import TableHistory
from delta_maintenance.fleet.policy.calendar import is_frozen, next_free_moment
from delta_maintenance.fleet.policy.document import Freeze, Policy
from delta_maintenance.fleet.policy.settings import Settings
from delta_maintenance.units import DAY_MS, counted, format_duration, format_time

AUTO_COMPACT = "delta.autoOptimize.autoCompact"
_OTHERS_RUNS_COUNT_MS = 7 * DAY_MS
_LONGEST_RETRY_MS = 7 * DAY_MS
_TIME = "%Y-%m-%d %H:%M UTC"


class Situation(Struct, frozen=True):
    """What a check knows of one table.

    :param approved: operations that a person has approved for this run.
    :param holds: what persons have said of tables since the policy was written.
    :param night_since_ms: runs since this moment belong to the same night; ``None``: each run is a night.
    """

    table: SurveyedTable
    settings: Settings
    history: TableHistory
    policy: Policy
    now_ms: int
    approved: Collection[str] = ()
    holds: Sequence[Hold] = ()
    night_since_ms: int | None = None

    @property
    def deadline_ms(self) -> int:
        """The moment by which the table is to be worked on: ``within`` after it began to wait."""
        since_ms = self.history.waiting_since_ms
        return (self.now_ms if since_ms is None else since_ms) + self.settings.within_ms

    def postponed(
        self, reason: Reason, why: str, operations: tuple[str, ...], next_ms: int | None = None
    ) -> Postponed:
        return Postponed(self.table.table, reason, why, operations, next_ms, owner=self.settings.owner)


_Check = Callable[[Situation], tuple[Reason, str, int | None] | None]


def why_not_now(situation: Situation, operations: tuple[str, ...]) -> Postponed | None:
    """The reason why a table is left alone in this run; ``None``: it may be worked on."""
    for check in _CHECKS:
        found = check(situation)
        if found is not None:
            reason, why, next_ms = found
            return situation.postponed(reason, why, operations, next_ms)
    return None


def known_broken(policy: Policy, holds: Sequence[Hold], table: str, now_ms: int) -> str | None:
    """Why a table is known to be broken, by the policy or by a person; ``None``: it is not."""
    found = policy.known_broken.get(table)
    if found is not None and format_time(now_ms, "%Y-%m-%d") <= found.until.isoformat():
        return f"{found.why}, until {found.until}."
    acknowledged = hold_for(holds, "acknowledge", table, now_ms)
    return None if acknowledged is None else acknowledged.told


def _known_broken(of: Situation) -> tuple[Reason, str, int | None] | None:
    why = known_broken(of.policy, of.holds, of.table.table, of.now_ms)
    return None if why is None else ("known_broken", why, None)


def _paused(of: Situation) -> tuple[Reason, str, int | None] | None:
    found = hold_for(of.holds, "pause", of.table.table, of.now_ms)
    return None if found is None else ("paused", found.told, None)


def _disabled(of: Situation) -> tuple[Reason, str, int | None] | None:
    if of.settings.enabled:
        return None
    return "disabled", f"enabled is false ({of.settings.origins['enabled']}).", None


def _reported(of: Situation) -> tuple[Reason, str, int | None] | None:
    settings, reports = of.settings, of.history.reports
    if settings.new_table == "auto":
        return None
    if reports < settings.after_reports:
        more = counted(settings.after_reports - reports, "more report")
        return "reported", f"A new table is changed after {more} ({settings.origins['after_reports']}).", None
    if settings.then == "report":
        return "reported", f"The policy only reports it ({settings.origins['then']}).", None
    return None


def _other_maintainer(of: Situation) -> tuple[Reason, str, int | None] | None:
    if of.settings.other_maintainer == "maintain":
        return None
    if (of.table.properties.get(AUTO_COMPACT) or "false").lower() not in ("false", ""):
        return "other_maintainer", f"The table's writers compact it themselves ({AUTO_COMPACT}).", None
    for name in ("optimize", "purge", "vacuum"):
        run = of.table.facts.last_runs.get(name)
        if run is None or is_own(run.engine):
            continue
        ran_ms = _seen_by_us(of, run.timestamp_ms)
        until_ms = ran_ms + _OTHERS_RUNS_COUNT_MS
        if of.now_ms < until_ms:
            who, when = run.engine or "A program without a name", format_time(ran_ms, _TIME)
            return "other_maintainer", f"{who} ran {name.upper()} at {when}.", until_ms
    return None


def _seen_by_us(of: Situation, timestamp_ms: int) -> int:
    """The time of a commit. The clock of its writer may be ahead, and it was made before it was read."""
    return min(timestamp_ms, of.table.facts.measured_ms)


def _frozen(of: Situation) -> tuple[Reason, str, int | None] | None:
    freezes = freezes_of(of.policy)
    for freeze in freezes:
        if is_frozen(freeze.on, freeze.length, of.now_ms, of.settings.window.zone):
            return "frozen", f"{freeze.why}.", _next_moment(of)
    return None


def freezes_of(policy: Policy) -> tuple[Freeze, ...]:
    return () if policy.disruption is None else policy.disruption.freeze


def _next_moment(of: Situation) -> int | None:
    freezes = tuple((one.on, int(one.length)) for one in freezes_of(of.policy))
    return next_free_moment(of.settings.window, freezes, of.now_ms)


def _outside_window(of: Situation) -> tuple[Reason, str, int | None] | None:
    window = of.settings.window
    if window.opening(of.now_ms) is not None:
        return None
    return (
        "outside_window",
        f"The window is {window.text} ({of.settings.origins['window']}).",
        _next_moment(of),
    )


def _quiet(of: Situation) -> tuple[Reason, str, int | None] | None:
    """A table that is never quiet is worked on when its time is up. OPTIMIZE itself leaves single partitions alone that were written to."""
    if of.table.partition_columns or of.now_ms >= of.deadline_ms:
        return None
    times = (one.timestamp_ms for one in of.table.facts.commits if not is_own(one.engine))
    newest = _seen_by_us(of, max(times, default=0))
    free_ms = newest + of.settings.quiet_ms
    if of.now_ms >= free_ms:
        return None
    ago = format_duration(max(of.now_ms - newest, 0) / 1000)
    return (
        "quiet",
        f"It was written to {ago} ago, and its writers are left alone for {_of(of.settings.quiet_ms)}.",
        min(free_ms, of.deadline_ms),
    )


def _of(period_ms: int) -> str:
    return format_duration(period_ms / 1000)


_CHECKS: tuple[_Check, ...] = (
    _known_broken,
    _paused,
    _disabled,
    _reported,
    _other_maintainer,
    _frozen,
    _outside_window,
    _quiet,
)


# -- single operations -----------------------------------------------------------------------------------------------


def why_not_operation(of: Situation, work: Work) -> Postponed | None:
    """The reason why one operation is left out; ``None``: it may be done."""
    found = _after_failures(of, work)
    if found is None and work.operation in DELETIONS:
        found = _careful_deletion(of, work)
    if found is None:
        return None
    reason, why, next_ms = found
    return of.postponed(reason, why, (work.operation,), next_ms)


def _after_failures(of: Situation, work: Work) -> tuple[Reason, str, int | None] | None:
    failed = [run for run in of.history.failures(work.operation) if run.kind != "conflict"]
    if not failed:
        return None
    last, settings = failed[-1], of.settings
    has_changed = last.version is not None and of.table.facts.version > last.version
    if len(failed) >= settings.stop_after and not has_changed:
        times = counted(len(failed), "time")
        return "stopped", f"{work.operation.upper()} failed {times} on this version: {last.message}", None
    wait_ms = min(settings.retry_ms * 2 ** (len(failed) - 1), _LONGEST_RETRY_MS)
    next_ms = last.started_ms + wait_ms
    if of.now_ms < next_ms:
        return "failed_before", f"{work.operation.upper()} failed: {last.message}", next_ms
    return None


def _careful_deletion(of: Situation, work: Work) -> tuple[Reason, str, int | None] | None:
    settings = of.settings
    if settings.deletions == "never":
        return "report_only", f"Deletions are only reported ({settings.origins['deletions']}).", None
    if work.operation == "vacuum" and of.table.facts.removed.looks is None:
        return "not_measured", "The store did not say which of the removed files are still there.", None
    announced_ms = of.history.announced.get(work.operation)
    if announced_ms is None or is_of_night(announced_ms, of.night_since_ms):
        return "announced", f"{work.operation.upper()} is announced by this report.", None
    if settings.deletions == "approve" and work.operation not in of.approved:
        return (
            "approval",
            f"{work.operation.upper()} waits for a person ({settings.origins['deletions']}).",
            None,
        )
    return None


def is_of_night(moment_ms: int, night_since_ms: int | None) -> bool:
    """Whether a run at an earlier moment belongs to the night that is being decided.

    :param night_since_ms: see :class:`Situation`.
    """
    return night_since_ms is not None and moment_ms >= night_since_ms
