"""Durations of properties, as Spark writes and reads them."""

from __future__ import annotations

import pytest

from delta_log.errors import InvalidProperty
from delta_log.table_config.properties import (
    deleted_file_retention_ms,
    interval_ms,
    log_retention_ms,
    transaction_retention_ms,
)

DAY_MS = 86_400_000


@pytest.mark.parametrize(
    ("text", "expected_ms"),
    [
        ("interval 7 days", 7 * DAY_MS),
        ("interval 1 week", 7 * DAY_MS),
        ("30 days", 30 * DAY_MS),
        ("INTERVAL 1 Day 12 Hours", 36 * 3_600_000),
        ("interval 90 minutes 5 seconds 7 milliseconds", 5_405_007),
        ("interval 1999 microseconds", 1),
        ("interval 0 hours", 0),
    ],
)
def test_a_duration_is_so_many_milliseconds(text: str, expected_ms: int) -> None:
    assert interval_ms({"p": text}, "p") == expected_ms
    assert interval_ms({}, "p") is None


@pytest.mark.parametrize(
    "text", ["", "interval", "interval 1 month", "7", "interval -1 days", "interval days 1", "P7D"]
)
def test_what_is_no_fixed_duration_is_named(text: str) -> None:
    with pytest.raises(InvalidProperty, match=f"table property p is '{text}'.*SET TBLPROPERTIES"):
        interval_ms({"p": text}, "p")


DAY_MS_OF_RETENTION = 86_400_000


def test_a_table_without_properties_has_the_defaults_of_the_protocol() -> None:
    assert deleted_file_retention_ms({}) == 7 * DAY_MS_OF_RETENTION
    assert log_retention_ms({}) == 30 * DAY_MS_OF_RETENTION
    assert transaction_retention_ms({}) is None


def test_a_table_may_set_each_retention_and_zero_is_one() -> None:
    properties = {
        "delta.deletedFileRetentionDuration": "interval 0 hours",
        "delta.logRetentionDuration": "interval 2 days",
        "delta.setTransactionRetentionDuration": "interval 1 week",
    }
    assert deleted_file_retention_ms(properties) == 0
    assert log_retention_ms(properties) == 2 * DAY_MS_OF_RETENTION
    assert transaction_retention_ms(properties) == 7 * DAY_MS_OF_RETENTION


def test_a_retention_that_is_no_duration_is_refused() -> None:
    with pytest.raises(InvalidProperty):
        log_retention_ms({"delta.logRetentionDuration": "a month or so"})
