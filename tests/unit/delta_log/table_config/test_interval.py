"""Spellings of interval types, and literals of partition values."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_log.table_config.interval import (
    DAY_TIME,
    YEAR_MONTH,
    IntervalType,
    interval_literal,
    interval_type,
    parse_interval,
)

DAY, HOUR = 86_400_000_000, 3_600_000_000


@pytest.mark.parametrize(
    ("spelling", "kind"),
    [
        ("interval year to month", YEAR_MONTH),
        ("interval year", YEAR_MONTH),
        ("interval month", YEAR_MONTH),
        ("interval day to second", DAY_TIME),
        ("interval hour to minute", DAY_TIME),
        ("interval second", DAY_TIME),
        ("interval month to day", None),
        ("interval month to year", None),
        ("interval second to day", None),
        ("interval day to day", None),
        ("interval", None),
        ("INTERVAL YEAR", None),
        ("interval  year", None),
    ],
)
def test_a_spelling_names_one_of_two_types(spelling: str, kind: IntervalType | None) -> None:
    assert interval_type(spelling) is kind


@pytest.mark.parametrize(
    ("text", "kind", "value"),
    [
        ("INTERVAL '1-6' YEAR TO MONTH", YEAR_MONTH, 18),
        ("INTERVAL '-1-6' YEAR TO MONTH", YEAR_MONTH, -18),
        ("INTERVAL -'1-6' YEAR TO MONTH", YEAR_MONTH, -18),
        ("INTERVAL '2' YEAR", YEAR_MONTH, 24),
        ("INTERVAL '7 12:34:56.123456' DAY TO SECOND", DAY_TIME, 7 * DAY + 45_296_123_456),
        ("INTERVAL '-0 00:00:00.000001' DAY TO SECOND", DAY_TIME, -1),
        ("INTERVAL '25:30' HOUR TO MINUTE", DAY_TIME, 25 * HOUR + HOUR // 2),
        ("interval '3' day", DAY_TIME, 3 * DAY),
    ],
)
def test_literals_are_read(text: str, kind: IntervalType, value: int) -> None:
    assert parse_interval(text, kind) == value


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("18", YEAR_MONTH),
        ("INTERVAL '1-6' YEAR", YEAR_MONTH),
        ("INTERVAL '1' DAY", YEAR_MONTH),
        ("INTERVAL '1-6-2' YEAR TO MONTH", YEAR_MONTH),
        ("INTERVAL '1.5' MONTH", YEAR_MONTH),
        ("INTERVAL '..' MONTH", YEAR_MONTH),
        ("INTERVAL '178956970-8' YEAR TO MONTH", YEAR_MONTH),
        ("INTERVAL '0.0000001' SECOND", DAY_TIME),
        ("INTERVAL '106751992 00:00:00' DAY TO SECOND", DAY_TIME),
    ],
)
def test_other_texts_are_refused(text: str, kind: IntervalType) -> None:
    with pytest.raises(ValueError, match="it |its "):
        parse_interval(text, kind)


@given(st.data())
def test_the_canonical_text_stands_for_its_value(data: st.DataObject) -> None:
    kind = data.draw(st.sampled_from([YEAR_MONTH, DAY_TIME]))
    value = data.draw(st.integers(-(1 << kind.bits - 1), (1 << kind.bits - 1) - 1))
    assert parse_interval(interval_literal(value, kind), kind) == value
