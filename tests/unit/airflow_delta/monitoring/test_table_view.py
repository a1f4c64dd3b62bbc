from __future__ import annotations

import json

from tests.support.records import HOSTILE, HOUR_MS, NOW_MS, failure, health, health_document, run

from airflow_delta.monitoring.answers import RunView, TableView
from airflow_delta.monitoring.table_view import run_view, safe, table_view

SIZE = {"files_before": 422, "files_after": 12, "bytes_before": 900, "bytes_after": 800}


def test_a_table_has_its_newest_reading_its_readings_over_time_and_its_runs_newest_first() -> None:
    records = [
        health("t", "critical", at_ms=NOW_MS - HOUR_MS, numFiles=500),
        run("t", at_ms=NOW_MS - 60_000, number=2, table_size=SIZE, started_ms=1_000, finished_ms=3_500),
        health("t", "attention", number=3),
    ]
    view = table_view("t", records, [failure("t", at_ms=NOW_MS - 2 * HOUR_MS)])
    TableView(**view)
    assert view["health"]["facts"] == health_document("t", "attention")["facts"]
    assert view["health"]["findings"] == health_document("t", "attention")["findings"]
    assert [point["num_files"] for point in view["trend"]] == [500, 422]
    assert [(line["status"], line["duration_ms"]) for line in view["runs"]] == [
        ("committed", 2_500),
        ("failed", None),
    ]
    assert view["runs"][0]["table_size"] == SIZE
    assert view["runs"][0]["summary"] == "It did this."
    assert view["runs"][1]["error"] == "The store is away."


def test_a_table_without_a_reading_has_runs_only() -> None:
    view = table_view("t", [run("t", "nothing_to_do")], [])
    TableView(**view)
    assert (view["health"], view["trend"], view["row"]["status"]) == (None, [], "unknown")


def test_a_run_has_the_readings_around_it_and_its_report() -> None:
    done = run(
        "t", number=5, dropped_bins=2, dropped=[{"bin": "x", "version": 74}], metrics={"numRemovedFiles": 410}
    )
    around = [
        health("t", at_ms=NOW_MS - 2 * HOUR_MS, numFiles=1),
        health("t", at_ms=NOW_MS - HOUR_MS, numFiles=2),
        done,
        health("t", at_ms=NOW_MS + HOUR_MS, numFiles=3),
        health("t", at_ms=NOW_MS + 2 * HOUR_MS, numFiles=4),
    ]
    view = run_view(done, around)
    RunView(**view)
    assert (view["health_before"]["num_files"], view["health_after"]["num_files"]) == (2, 3)
    assert view["report"]["dropped"] == [{"bin": "x", "version": 74}]
    assert view["lines"] == ["It did this."]
    assert run_view(done, [])["health_before"] is None


def test_values_are_passed_on_without_controls_and_within_bounds() -> None:
    deep: list[object] = []
    for _ in range(50):
        deep = [deep]
    value = safe(
        {text: [text] for text in HOSTILE} | {"deep": deep, "long": list(range(1_000)), "odd": float("inf")}
    )
    assert all(
        name.isprintable() and value[name][0].isprintable()
        for name in value
        if name not in ("deep", "long", "odd")
    )
    assert len(value["long"]) == 200
    assert value["odd"] is None
    json.dumps(value, allow_nan=False)
