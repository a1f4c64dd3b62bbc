"""Pauses and acknowledgements, and what the decision makes of them."""

from __future__ import annotations

from datetime import date
from typing import Any

import pytest
from tests.support.fleet.nights import MONDAY_EVENING_MS, decided, trusted
from tests.support.fleet.table_figures import TableFigures

from delta_log.errors import InvalidRequest
from delta_maintenance.contract import ErrorReport
from delta_maintenance.fleet.decision.holds import Hold, read_holds
from delta_maintenance.fleet.facts import UnreadTable
from delta_maintenance.units import DAY_MS

SMALL = TableFigures(num_small=500, small_bytes=1 << 30)


def reasons(*holds: Hold, now_ms: int = MONDAY_EVENING_MS) -> dict[str, str]:
    tables = [SMALL.surveyed(f"s3://lake/{name}", MONDAY_EVENING_MS) for name in ("gold/a", "raw/b")]
    decision = decided(trusted(), tables, now_ms, holds=holds)
    return {unit.table: "due" for unit in decision.units} | {
        one.table: one.reason for one in decision.postponed
    }


def test_a_table_a_pattern_and_a_fleet_can_be_paused() -> None:
    assert reasons() == {"s3://lake/gold/a": "due", "s3://lake/raw/b": "due"}
    assert reasons(Hold("pause", "s3://lake/gold/a", "audit"))["s3://lake/gold/a"] == "paused"
    assert reasons(Hold("pause", "s3://lake/raw/**", "audit")) == {
        "s3://lake/gold/a": "due",
        "s3://lake/raw/b": "paused",
    }
    assert set(reasons(Hold("pause", "**", "migration")).values()) == {"paused"}


def test_a_pause_holds_to_the_end_of_its_last_day() -> None:
    hold = Hold("pause", "**", "audit", date(2026, 6, 1))
    assert set(reasons(hold).values()) == {"paused"}
    assert set(reasons(hold, now_ms=MONDAY_EVENING_MS + DAY_MS).values()) == {"due"}


def test_a_table_whose_failures_are_acknowledged_is_known_to_be_broken() -> None:
    unread = UnreadTable("s3://lake/x", MONDAY_EVENING_MS, ErrorReport("NotATable", "It has no log."))
    hold = Hold("acknowledge", "s3://lake/x", "TICKET-17", date(2026, 7, 1))
    (found,) = decided(trusted(), [unread], holds=[hold]).postponed
    assert (found.reason, found.why) == ("known_broken", "TICKET-17, until 2026-07-01. It has no log.")
    assert set(reasons(Hold("acknowledge", "**", "TICKET-17")).values()) == {"known_broken"}


@pytest.mark.parametrize(
    "document",
    [
        7,
        {"holds": 7},
        {"holds": [{"kind": "stop", "match": "**", "why": "x"}]},
        {"holds": [{"kind": "pause", "match": "", "why": "x"}]},
        {"holds": [{"kind": "pause", "match": "**", "why": "x", "until": "tomorrow"}]},
        {"holds": [{"kind": "pause", "match": "**", "why": "x", "unti": "2026-01-01"}]},
    ],
)
def test_what_cannot_be_read_is_refused_since_a_table_may_be_paused_by_it(document: Any) -> None:
    with pytest.raises(InvalidRequest, match="in the store cannot be read: .*delete it"):
        read_holds(document, "the store")


def test_nothing_said_is_nothing_held() -> None:
    assert read_holds(None, "the store") == ()
