"""Why a policy does with a table what it does."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from delta_maintenance.fleet.decision.decide import FleetState, decide
from delta_maintenance.fleet.decision.document import Postponed, WorkUnit
from delta_maintenance.fleet.facts import SurveyedTable
from delta_maintenance.fleet.policy.reading import WrittenPolicy
from delta_maintenance.fleet.policy.settings import SETTINGS, settings_of
from delta_maintenance.fleet.policy.spelling import spelled


class ExplainedSetting(Struct, frozen=True):
    """One setting of a table.

    :param name: its path in the policy, such as ``healthy.small_files``.
    :param value: its value, as a policy would write it; ``None``: it has none.
    :param origin: place that set it.
    """

    name: str
    value: str | None
    origin: str


class Explanation(Struct, frozen=True):
    """What a policy makes of one table, as if the table were alone: the budget of a night is shared with others.

    :param unit: work that would be done now; ``None``: none.
    :param postponed: what would not be done now, with reasons.
    :param unhealthy_since_ms: when a run found it unhealthy first; ``None``: it is healthy, or no run has seen it.
    """

    table: str
    version: int
    settings: tuple[ExplainedSetting, ...]
    unit: WorkUnit | None
    postponed: tuple[Postponed, ...]
    reports: int
    unhealthy_since_ms: int | None


def explain(written: WrittenPolicy, table: SurveyedTable, state: FleetState) -> Explanation:
    """
    :param state: state of the fleet; the tables in it do not count.
    :raises InvalidRequest: a property of the table contradicts the policy.
    """
    settings = settings_of(written, table.table, table.properties)
    decision = decide(written, FleetState([table], state.history, state.now_ms, state.approved))
    history = state.history.of(table.table, state.now_ms)
    values: dict[str, Any] = {row.name: getattr(settings, row.name) for row in SETTINGS}
    return Explanation(
        table=table.table,
        version=table.facts.version,
        settings=tuple(
            ExplainedSetting(".".join(row.path), spelled(values[row.name]), settings.origins[row.name])
            for row in SETTINGS
        ),
        unit=decision.units[0] if decision.units else None,
        postponed=decision.postponed,
        reports=history.reports,
        unhealthy_since_ms=history.unhealthy_since_ms,
    )
