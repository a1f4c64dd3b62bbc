from __future__ import annotations

from tests.support.fleet.nights import MONDAY_EVENING_MS
from tests.support.fleet.table_figures import TableFigures

from delta_maintenance.fleet.decision.forecast import forecast_cost
from delta_maintenance.fleet.facts import SurveyedTable
from delta_maintenance.fleet.history import Cost, PastRun
from delta_maintenance.health.diagnosis import Advice


def past_run(expected: float, measured: float) -> PastRun:
    return PastRun(
        operation="checkpoint",
        started_ms=0,
        status="succeeded",
        forecast=Cost(requests=expected),
        outcome=Cost(requests=measured),
    )


def test_runs_with_forecasts_near_zero_are_not_learned_from() -> None:
    table = TableFigures().surveyed("s3://lake/0", MONDAY_EVENING_MS)
    assert isinstance(table, SurveyedTable)
    runs = (past_run(1, 3), past_run(5e-324, 1), past_run(5e-324, 2))
    costs = [
        forecast_cost(Advice("checkpoint", {}, (), "", {}), table.facts, earlier)
        for earlier in (runs[:1], runs)
    ]
    assert costs[0] == costs[1]
    assert costs[0].requests > 0
