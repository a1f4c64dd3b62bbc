import pytest

from delta_log.errors import InvalidProperty
from delta_log.table_config.retention import (
    deleted_file_retention_ms,
    log_retention_ms,
    transaction_retention_ms,
)

DAY_MS = 86_400_000


def test_a_table_without_properties_has_the_defaults_of_the_protocol() -> None:
    assert deleted_file_retention_ms({}) == 7 * DAY_MS
    assert log_retention_ms({}) == 30 * DAY_MS
    assert transaction_retention_ms({}) is None


def test_a_table_may_set_each_retention_and_zero_is_one() -> None:
    properties = {
        "delta.deletedFileRetentionDuration": "interval 0 hours",
        "delta.logRetentionDuration": "interval 2 days",
        "delta.setTransactionRetentionDuration": "interval 1 week",
    }
    assert deleted_file_retention_ms(properties) == 0
    assert log_retention_ms(properties) == 2 * DAY_MS
    assert transaction_retention_ms(properties) == 7 * DAY_MS


def test_a_retention_that_is_no_duration_is_refused() -> None:
    with pytest.raises(InvalidProperty):
        log_retention_ms({"delta.logRetentionDuration": "a month or so"})
