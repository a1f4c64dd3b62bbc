"""What was approved holds for one run of each operation, and for some days."""

from __future__ import annotations

from delta_log.testing import MemoryStorage
from delta_maintenance.fleet.account.approvals import (
    APPROVED_DAYS,
    Approval,
    ApprovalFolder,
    not_used_up,
)
from delta_maintenance.fleet.history import Cost, FleetHistory, PastRun, TableHistory
from delta_maintenance.units import DAY_MS

NOW_MS = 100 * DAY_MS
BOTH = Approval(NOW_MS, {"/lake/a": ("cleanup-log", "vacuum")}, by="Ada")


def history(operation: str, started_ms: int, status: str) -> FleetHistory:
    run = PastRun(operation, started_ms, status, Cost())
    return FleetHistory({"/lake/a": TableHistory(0, runs=(run,))})


def test_an_approval_is_kept_for_some_days() -> None:
    folder = ApprovalFolder(MemoryStorage())
    folder.add(BOTH, "first")
    assert folder.valid(NOW_MS) == [BOTH]
    assert folder.valid(NOW_MS + APPROVED_DAYS * DAY_MS) == [BOTH]
    assert folder.valid(NOW_MS + APPROVED_DAYS * DAY_MS + 1000) == []


def test_another_file_is_no_approval() -> None:
    storage = MemoryStorage()
    storage.put("approvals/19700411T000000Z-odd.json", b"{")
    assert ApprovalFolder(storage).valid(NOW_MS) == []


def test_a_run_that_ends_well_uses_an_approval_up() -> None:
    assert not_used_up([BOTH], FleetHistory()) == {"/lake/a": ("cleanup-log", "vacuum")}
    assert not_used_up([BOTH], history("vacuum", NOW_MS, "committed")) == {"/lake/a": ("cleanup-log",)}


def test_a_run_that_fails_or_came_before_does_not() -> None:
    for found in (history("vacuum", NOW_MS, "failed"), history("vacuum", NOW_MS - 1, "committed")):
        assert not_used_up([BOTH], found) == {"/lake/a": ("cleanup-log", "vacuum")}


def test_a_second_approval_of_the_same_adds_nothing() -> None:
    assert not_used_up([BOTH, BOTH], FleetHistory()) == {"/lake/a": ("cleanup-log", "vacuum")}
