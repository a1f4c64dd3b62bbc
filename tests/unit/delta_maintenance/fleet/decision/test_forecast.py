from __future__ import annotations

from delta_maintenance.fleet.decision.forecast import learned_cost
from delta_maintenance.fleet.history import Cost, PastRun


def past_run(expected: float, measured: float) -> PastRun:
    return PastRun(
        operation="checkpoint",
        started_ms=0,
        status="succeeded",
        forecast=Cost(requests=expected),
        by_log=Cost(requests=expected),
        outcome=Cost(requests=measured),
    )


def test_runs_with_forecasts_near_zero_are_not_learned_from() -> None:
    runs = (past_run(1, 3), past_run(5e-324, 1), past_run(5e-324, 2))
    by_log = Cost(requests=12)
    assert learned_cost(by_log, runs) == learned_cost(by_log, runs[:1]) == Cost(requests=24)
