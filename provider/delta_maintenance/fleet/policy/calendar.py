"""Windows in which a fleet is maintained, and days on which it is left alone."""

from __future__ import annotations

import re
from datetime import date, datetime, time, timedelta, timezone, tzinfo
from functools import lru_cache
from typing import Any, ClassVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

_WINDOW = re.compile(r"(\d{1,2}):(\d{2})\s*-\s*(\d{1,2}):(\d{2})\s+(\S+)")
_WEEKDAYS = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
#: A search for the next open moment gives up here: a freeze may cover every day.
_MAX_DAYS_AHEAD = 400


def _local(moment_ms: int, zone: tzinfo) -> datetime:
    return datetime.fromtimestamp(moment_ms / 1000, tz=zone)


def _ms(moment: datetime) -> int:
    return int(moment.timestamp() * 1000)


class Window:
    """A time of each day: ``22:00-06:00 Europe/Berlin``, or ``always``.

    :ivar text: what the policy says.
    :ivar zone: time zone whose clock the times are of; UTC for ``always``.
    """

    schema: ClassVar[dict[str, Any]] = {
        "type": "string",
        "pattern": r"^(always|\d{1,2}:\d{2}\s*-\s*\d{1,2}:\d{2}\s+\S+)$",
    }

    def __init__(self, text: str, start: time | None, end: time | None, zone: tzinfo) -> None:
        self.text, self._start, self._end, self.zone = text, start, end, zone

    @classmethod
    def of(cls, value: Any) -> Window:
        if value == "always":
            return cls("always", None, None, timezone.utc)
        match = _WINDOW.fullmatch(value.strip()) if isinstance(value, str) else None
        if match is None:
            raise ValueError(f"{value!r} is not a window such as '22:00-06:00 Europe/Berlin', or always")
        try:
            start, end = time(int(match[1]), int(match[2])), time(int(match[3]), int(match[4]))
            zone = ZoneInfo(match[5])
        except ValueError:
            raise ValueError(
                f"{value!r} has a time that no clock shows; times are from 00:00 to 23:59"
            ) from None
        except (ZoneInfoNotFoundError, OSError):
            raise ValueError(
                f"{match[5]!r} is not a time zone known here; write a name such as Europe/Berlin, or UTC"
            ) from None
        if start == end:
            raise ValueError(f"{value!r} begins and ends at the same time; write always for the whole day")
        return cls(value.strip(), start, end, zone)

    @property
    def is_always(self) -> bool:
        return self._start is None

    def opening(self, now_ms: int) -> tuple[int, int] | None:
        """The beginning and the end of the opening that holds at a moment, in ms; ``None``: it is closed.

        What is always open has the day of UTC as its opening.
        """
        today = _local(now_ms, self.zone).date()
        for day in (today, today - timedelta(days=1)):
            first, last = self._on(day)
            if first <= now_ms < last:
                return first, last
        return None

    def next_opening(self, now_ms: int) -> int:
        """The first moment from `now_ms` on at which the window is open."""
        if self.opening(now_ms) is not None:
            return now_ms
        today = _local(now_ms, self.zone).date()
        # Where clocks are put forward, an opening may begin and end within the hour that is left out.
        coming = (self._on(today + timedelta(days=n)) for n in range(3))
        return min(first for first, last in coming if now_ms <= first < last)

    def last_closing(self, now_ms: int) -> int:
        """The end of the newest opening that is over at a moment."""
        today = _local(now_ms, self.zone).date()
        past = (self._on(today - timedelta(days=n))[1] for n in range(3))
        return max(last for last in past if last <= now_ms)

    def _on(self, day: date) -> tuple[int, int]:
        """The opening that begins on a day, by the clock on the wall of that day."""
        start, end = self._start or time(0), self._end or time(0)
        last_day = day if end > start else day + timedelta(days=1)
        return (
            _ms(datetime.combine(day, start, self.zone)),
            _ms(datetime.combine(last_day, end, self.zone)),
        )


class FreezeDay:
    """The days on which a freeze begins: ``last-workday`` or ``first-workday`` of a month, a weekday, a date ``2026-12-24``, or a day of
    each year ``12-24``."""

    schema: ClassVar[dict[str, Any]] = {
        "anyOf": [
            {"enum": ["last-workday", "first-workday", *_WEEKDAYS]},
            {"type": "string", "pattern": r"^(\d{4}-)?\d{2}-\d{2}$"},
        ]
    }

    def __init__(self, text: str) -> None:
        self.text = text

    @classmethod
    def of(cls, value: Any) -> FreezeDay:
        text = value.strip() if isinstance(value, str) else ""
        named = text in ("last-workday", "first-workday", *_WEEKDAYS)
        if not named and not _is_day(text):
            raise ValueError(
                f"{value!r} is not a day: write last-workday, first-workday, a weekday such as friday, a date such as "
                "2026-12-24, or 12-24 for every year"
            )
        return cls(text)

    def is_on(self, day: date) -> bool:
        if self.text in _WEEKDAYS:
            return day.weekday() == _WEEKDAYS.index(self.text)
        if self.text.endswith("-workday"):
            return day == _workday(day, is_last=self.text.startswith("last"))
        return day.isoformat().endswith(self.text)


def _is_day(text: str) -> bool:
    try:
        # A leap year, so that 02-29 is a day.
        date.fromisoformat(text if len(text) == 10 else f"2024-{text}")
    except ValueError:
        return False
    return re.fullmatch(r"(\d{4}-)?\d{2}-\d{2}", text) is not None


def _workday(day: date, *, is_last: bool) -> date:
    """The last, or the first, day of the month that is no Saturday or Sunday. Holidays are not known here."""
    following = (day.replace(day=28) + timedelta(days=4)).replace(day=1)
    found, step = (following - timedelta(days=1), -1) if is_last else (day.replace(day=1), 1)
    while found.weekday() >= 5:
        found += timedelta(days=step)
    return found


@lru_cache(maxsize=256)
def is_frozen(on: FreezeDay, period_ms: int, now_ms: int, zone: tzinfo) -> bool:
    """Whether a freeze of some length that begins at midnight of its days covers a moment."""
    today = _local(now_ms, zone).date()
    for back in range(period_ms // 86_400_000 + 2):
        day = today - timedelta(days=back)
        start_ms = _ms(datetime.combine(day, time(0), zone))
        if on.is_on(day) and start_ms <= now_ms < start_ms + period_ms:
            return True
    return False


@lru_cache(maxsize=256)
def next_free_moment(window: Window, freezes: tuple[tuple[FreezeDay, int], ...], now_ms: int) -> int | None:
    """The next moment at which a window is open and no freeze holds; ``None``: there is none within 400 days."""
    moment = window.next_opening(now_ms)
    for _ in range(_MAX_DAYS_AHEAD):
        if not any(is_frozen(on, period, moment, window.zone) for on, period in freezes):
            return moment
        tomorrow = _local(moment, window.zone).date() + timedelta(days=1)
        moment = window.next_opening(_ms(datetime.combine(tomorrow, time(0), window.zone)))
    return None
