from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.support.records import HOSTILE, health, health_document
from tests.support.runs.metrics_backend import Recorder
from tests.support.tables.written_log import add, write_log

from airflow_delta.monitoring.fleet import row_of
from airflow_delta.monitoring.record import table_id
from airflow_delta.operators import DeltaOptimizeOperator, DeltaTableHealthOperator
from airflow_delta.operators.reporting.table_stats import (
    FACTS,
    MAX_LABEL,
    gauge_failure,
    gauge_health,
    gauge_report,
    health_gauges,
    report_gauges,
    table_label,
)
from delta_maintenance.contract import ErrorReport, JobReport

MakeContext = Callable[..., dict[str, Any]]
SendMetricsTo = Callable[[Any], None]
TABLE = "s3://lake/sales/events"
TAGS = {"table": "s3/lake/sales/events", "table_id": table_id(TABLE)}


@pytest.fixture
def recorder(send_metrics_to: SendMetricsTo) -> Recorder:
    made = Recorder()
    send_metrics_to(made)
    return made


def test_a_reading_sends_the_figures_of_the_page_with_the_table_as_a_tag(
    make_context: MakeContext, recorder: Recorder
) -> None:
    gauge_health(make_context(), health_document(f"{TABLE}/", "attention"))  # type: ignore[arg-type]
    assert {tuple(sorted(tags.items())) for *_, tags in recorder.sent} == {tuple(sorted(TAGS.items()))}
    row = row_of(TABLE, [health(TABLE, "attention")], [])
    sent = recorder.gauges()
    assert {name: sent.pop(f"delta.table.{name}") for name in FACTS} == {name: row[name] for name in FACTS}
    assert sent.pop("delta.table.health_timestamp_seconds") > 1_700_000_000
    assert sent == {"delta.table.status": 2, "delta.table.findings": 1, "delta.table.health_failed": 0}


def test_the_worse_the_status_the_greater_its_number() -> None:
    numbers = [
        health_gauges(health_document(TABLE, status), 0)["status"]
        for status in ("healthy", "unsupported", "attention", "critical")
    ]
    assert numbers == [0, 1, 2, 3]
    assert "status" not in health_gauges(health_document(TABLE, "of a later release"), 0)


def test_a_figure_that_is_missing_or_no_number_is_not_sent() -> None:
    document = health_document(TABLE, sizeInBytes=None, numFiles=True, log="gone", optimize={})
    assert set(health_gauges(document, 0)) == {
        "status",
        "findings",
        "deleted_rows_ratio",
        "reclaimable_bytes",
        "health_failed",
        "health_timestamp_seconds",
    }


def test_a_run_sends_the_size_that_it_left_and_when_it_ended_well() -> None:
    size = {"files_before": 422, "files_after": 6, "bytes_before": 1200, "bytes_after": 900}
    report = JobReport("optimize", TABLE, "committed", table_size=size)
    assert report_gauges(report, 1_800_000_000.5) == {
        "num_files": 6,
        "size_bytes": 900,
        "optimize_failed": 0,
        "optimize_timestamp_seconds": 1_800_000_000,
    }
    nothing = JobReport("vacuum", TABLE, "nothing_to_do")
    assert report_gauges(nothing, 9) == {"vacuum_failed": 0, "vacuum_timestamp_seconds": 9}
    assert report_gauges(JobReport("vacuum", TABLE, "planned"), 9) == {}


def test_a_failure_is_sent_with_and_without_a_report(make_context: MakeContext, recorder: Recorder) -> None:
    report = JobReport("optimize", TABLE, "failed", error=ErrorReport("E", "away"))
    gauge_report(make_context(), report)  # type: ignore[arg-type]
    gauge_failure(make_context(), "vacuum", TABLE)  # type: ignore[arg-type]
    assert recorder.gauges() == {"delta.table.optimize_failed": 1, "delta.table.vacuum_failed": 1}


def test_plain_statsd_has_the_table_in_the_name(
    make_context: MakeContext, recorder: Recorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    gauge_failure(make_context(), "vacuum", TABLE)  # type: ignore[arg-type]
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED", "True")
    gauge_failure(make_context(), "vacuum", TABLE)  # type: ignore[arg-type]
    name = f"delta.table.vacuum_failed.s3_lake_sales_events.{table_id(TABLE)}"
    assert [(stat, tags) for _, stat, _, tags in recorder.sent] == [
        (name, {}),
        ("delta.table.vacuum_failed", TAGS),
    ]


@pytest.mark.parametrize("limit", ["0", "2", ""])
def test_of_a_mapped_task_no_more_tables_are_told_than_the_setting_allows(
    make_context: MakeContext, recorder: Recorder, monkeypatch: pytest.MonkeyPatch, limit: str
) -> None:
    if limit:
        monkeypatch.setenv("AIRFLOW__DELTA__TABLE_METRICS_LIMIT", limit)
    for index in range(1_010):
        gauge_failure(make_context(map_index=index), "vacuum", f"{TABLE}-{index}")  # type: ignore[arg-type]
    assert len({tags["table"] for *_, tags in recorder.sent}) == int(limit or 1_000)


@pytest.mark.parametrize("name", [*HOSTILE, "größe", "a,b=c:d|g#e", ".." * 200])
@pytest.mark.parametrize("has_tags", [True, False])
def test_airflow_takes_the_name_of_any_table(
    make_context: MakeContext,
    send_metrics_to: SendMetricsTo,
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    has_tags: bool,
) -> None:
    """With the checks of Airflow's own client, which drops what it does not take."""
    from airflow.sdk._shared.observability.metrics.statsd_logger import SafeStatsdLogger

    class Wire:
        def gauge(self, stat: str, *_: object) -> None:
            lines.append(stat)

    lines: list[str] = []
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_ON", "True")
    monkeypatch.setenv("AIRFLOW__METRICS__STATSD_INFLUXDB_ENABLED", str(has_tags))
    send_metrics_to(
        SafeStatsdLogger(Wire(), influxdb_tags_enabled=has_tags, statsd_influxdb_enabled=has_tags)
    )
    table = f"abfss://lake@account.dfs.core.windows.net/{name}"
    gauge_health(make_context(), health_document(table))  # type: ignore[arg-type]
    assert len(lines) == len(health_gauges(health_document(table), 0))
    for line in lines:
        parts = line.split("," if has_tags else ".")
        assert len(parts) == (3 if has_tags else 5), line
        assert parts[-1].endswith(table_id(table))


def test_a_long_address_keeps_its_end() -> None:
    label = table_label(f"s3://lake/{'x' * 500}/events")
    assert (len(label), label[:4], label[-8:]) == (MAX_LABEL, "...x", "x/events")


def test_metrics_that_fail_do_not_fail_the_task(
    make_context: MakeContext, send_metrics_to: SendMetricsTo, caplog: pytest.LogCaptureFixture
) -> None:
    send_metrics_to(Recorder(ConnectionError("no agent")))
    with caplog.at_level(logging.WARNING):
        gauge_failure(make_context(), "vacuum", TABLE)  # type: ignore[arg-type]
    assert "could not be sent" in caplog.text


def test_operators_send_them(tmp_path: Path, make_context: MakeContext, recorder: Recorder) -> None:
    write_log(tmp_path / "t", [add(f"{number}.parquet", 100) for number in range(5)])

    def run(operator: Any) -> None:
        type(operator).execute.__wrapped__(operator, make_context())

    run(DeltaTableHealthOperator(task_id="health", table=str(tmp_path / "t"), small_files=4))
    assert recorder.gauges()["delta.table.num_files"] == 5
    for name, operator in (("health", DeltaTableHealthOperator), ("optimize", DeltaOptimizeOperator)):
        with pytest.raises(Exception, match="is not a Delta table"):
            run(operator(task_id=name, table=str(tmp_path / "absent")))
        assert recorder.gauges()[f"delta.table.{name}_failed"] == 1
