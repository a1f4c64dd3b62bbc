from __future__ import annotations

from datetime import datetime
from zoneinfo import ZoneInfo

import pytest

from delta_maintenance.fleet.policy.calendar import FreezeDay, Window, is_frozen, next_free_moment
from delta_maintenance.units import DAY_MS, HOUR_MS

BERLIN = ZoneInfo("Europe/Berlin")


def ms(text: str) -> int:
    return int(datetime.fromisoformat(text).replace(tzinfo=BERLIN).timestamp() * 1000)


@pytest.mark.parametrize(("day", "hours"), [("2027-03-27", 7), ("2026-10-24", 9), ("2026-06-01", 8)])
def test_a_window_over_midnight_follows_the_clock_on_the_wall(day: str, hours: int) -> None:
    first, last = Window.of("22:00-06:00 Europe/Berlin").opening(ms(f"{day}T23:30")) or (0, 0)
    assert (first, last - first) == (ms(f"{day}T22:00"), hours * HOUR_MS)


def test_an_opening_that_the_clocks_leave_out_is_passed_over() -> None:
    window = Window.of("02:30-03:00 Europe/Berlin")
    assert window.next_opening(ms("2027-03-27T04:00")) == ms("2027-03-29T02:30")


def test_the_last_closing_is_the_end_of_the_opening_before() -> None:
    window = Window.of("22:00-06:00 Europe/Berlin")
    assert window.last_closing(ms("2026-06-01T22:00")) == ms("2026-06-01T06:00")
    assert Window.of("always").last_closing(5 * DAY_MS) == 5 * DAY_MS


@pytest.mark.parametrize(
    ("moment", "frozen"),
    [
        ("2026-05-28T23:00", False),
        ("2026-05-29T00:00", True),
        ("2026-05-30T23:59", True),
        ("2026-05-31T00:00", False),
    ],
)
def test_a_freeze_of_two_days_begins_on_the_last_workday(moment: str, frozen: bool) -> None:
    assert is_frozen(FreezeDay.of("last-workday"), 2 * DAY_MS, ms(moment), BERLIN) == frozen


def test_the_next_moment_is_after_the_freeze() -> None:
    window = Window.of("22:00-06:00 Europe/Berlin")
    freezes = ((FreezeDay.of("last-workday"), 2 * DAY_MS),)
    assert next_free_moment(window, freezes, ms("2026-05-29T23:00")) == ms("2026-05-31T00:00")
