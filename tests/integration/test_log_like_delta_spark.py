"""The log by ours and by delta-spark: times of the history, empty commits, and partition values that cannot be read."""

from __future__ import annotations

import os
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.runs.maintenance_runs import keys, run
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_log.log.file_names import commit_key

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

_HOUR_MS = 3_600_000


def test_the_history_of_a_copied_table_has_the_times_of_delta_spark(
    tmp_path: Path, delta_spark_session: SparkSession
) -> None:
    table = tmp_path / "table"
    write_days(table)
    now_ms = 1_780_000_000_000
    for version, hours in enumerate((1, 5, 3, 4, 4, 9)):
        moment = (now_ms + hours * _HOUR_MS) * 1_000_000
        os.utime(table / commit_key(version), ns=(moment, moment))
    history = delta_spark_session.sql(f"DESCRIBE HISTORY delta.`{table}`")
    rows = history.selectExpr("version", "unix_millis(timestamp) AS ms").collect()
    assert {row.version: row.ms for row in rows} == {
        entry["version"]: entry["timestamp"] for entry in Table(str(table)).history()
    }


def test_an_empty_commit_is_a_version_without_changes_to_delta_spark_too(
    tmp_path: Path, delta_spark_session: SparkSession
) -> None:
    table = tmp_path / "table"
    write_days(table)
    (table / commit_key(6)).write_bytes(b"")
    old = datetime(2026, 1, 1, tzinfo=timezone.utc).timestamp()
    os.utime(table / commit_key(6), (old, old))
    read = delta_spark_session.read.format("delta")
    rows = read.load(str(table)).count()
    assert rows == Table(str(table)).snapshot().to_arrow().num_rows
    assert run(table).status == "committed"
    assert read.load(str(table)).count() == rows


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        ("integer", " 1", 1),
        ("date", "__HIVE_DEFAULT_PARTITION__", None),
        ("decimal(10,2)", "-2.-25", None),
        ("timestamp", "2024-01-01T00:00:00.123456789Z", "2024-01-01 00:00:00.123456"),
    ],
)
def test_rows_of_a_value_that_cannot_be_read_stay_what_they_are_to_delta_spark(
    tmp_path: Path, delta_spark_session: SparkSession, kind: str, value: str, read: object
) -> None:
    table = tmp_path / "table"
    write_days(table, days=1)
    for commit in (table / "_delta_log").glob("*.json"):
        text = commit.read_text().replace('"day":"2024-01-01"', f'"day":"{value}"')
        commit.write_text(
            text.replace('\\"day\\",\\"type\\":\\"date\\"', f'\\"day\\",\\"type\\":\\"{kind}\\"')
        )

    def rows() -> list[Any]:
        frame = delta_spark_session.read.format("delta").load(str(table))
        return sorted(frame.selectExpr("CAST(day AS STRING)", "id").collect(), key=str)

    before = rows()
    assert {None if day is None else str(day) for day, _ in before} == {None if read is None else str(read)}
    assert run(table).status == "committed"
    assert len(keys(table)) == 1
    assert rows() == before
