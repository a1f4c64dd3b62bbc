from __future__ import annotations

import pytest
from tests.support.records import failure, health, run

from airflow_delta.monitoring.record import Record, table_id
from airflow_delta.monitoring.record_header import RecordHeader, key_of, read_key

TABLE = "s3://lake/events"


@pytest.mark.parametrize(
    ("record", "operation", "has_failed", "figures"),
    [
        (health(TABLE), "health", False, (422, 416)),
        (health(TABLE, numFiles=None, optimize=None), "health", False, (None, None)),
        (run(TABLE), "optimize", False, (None, None)),
        (failure(TABLE), "optimize", True, (None, None)),
    ],
)
def test_a_key_says_what_a_record_is_about(
    record: Record, operation: str, has_failed: bool, figures: tuple[int | None, int | None]
) -> None:
    assert read_key(key_of(record, 3)) == RecordHeader(3, table_id(TABLE), operation, has_failed, *figures)


@pytest.mark.parametrize("key", ["", "delta_record.", "delta_record.1.s3://lake.optimize..", "delta_run"])
def test_a_key_of_another_form_names_no_table(key: str) -> None:
    assert read_key(key).table == ""
