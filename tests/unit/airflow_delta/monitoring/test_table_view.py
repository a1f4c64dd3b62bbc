from __future__ import annotations

import json

from tests.support.records import HOSTILE, HOUR_MS, NOW_MS, failure, health, health_document, run

from airflow_delta.monitoring.answers import RunView, TableView
from airflow_delta.monitoring.table_view import (
    MAX_VERSIONS,
    NOTES,
    feature_note,
    run_view,
    safe,
    table_view,
    writer_of,
)
from delta_log.table_config.features import FEATURES

SIZE = {"files_before": 422, "files_after": 12, "bytes_before": 900, "bytes_after": 800}


def test_a_table_has_its_newest_reading_its_readings_over_time_and_its_runs_newest_first() -> None:
    records = [
        health("t", "critical", at_ms=NOW_MS - HOUR_MS, numFiles=500),
        run("t", at_ms=NOW_MS - 60_000, number=2, table_size=SIZE, started_ms=1_000, finished_ms=3_500),
        health("t", "attention", number=3),
    ]
    view = table_view("t", [*records, failure("t", at_ms=NOW_MS - 2 * HOUR_MS)])
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
    view = table_view("t", [run("t", "nothing_to_do")])
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


def commit(
    version: int, operation: str | None = "WRITE", engine: str | None = "delta-rs:py-1.6.6"
) -> dict[str, object]:
    return {"version": version, "timestamp": NOW_MS + version, "operation": operation, "engineInfo": engine}


def test_the_versions_of_all_readings_make_one_list_marked_by_writer_and_operation() -> None:
    ours = commit(3, "OPTIMIZE", "airflow-provider-delta/0.1.0")
    records = [
        health("t", at_ms=NOW_MS - HOUR_MS, commits=[commit(1), commit(0, None, None)]),
        health("t", number=2, commits=[ours, commit(2, engine="Apache-Spark/4.0 Delta-Lake/4.0"), commit(1)]),
    ]
    found = table_view("t", records)["versions"]
    assert [(one["version"], one["writer"], one["is_maintenance"]) for one in found] == [
        (3, "airflow-provider-delta", True),
        (2, "Spark", False),
        (1, "delta-rs", False),
        (0, None, False),
    ]


def test_versions_of_a_hostile_log_are_shown_as_text_and_not_endless() -> None:
    readings = [
        health(
            "t",
            at_ms=NOW_MS + hour,
            commits=[
                5,
                {"version": "x"},
                *(commit(12 * hour + one, HOSTILE[2], HOSTILE[0]) for one in range(12)),
            ],
        )
        for hour in range(20)
    ]
    found = table_view("t", readings)["versions"]
    assert len(found) == MAX_VERSIONS
    assert "\u202e" not in json.dumps(found, ensure_ascii=False)
    assert len(writer_of("x" * 500)) == 40


def test_every_feature_says_what_it_means_for_maintenance() -> None:
    for name, feature in FEATURES.items():
        note = feature_note(name)
        assert note["note"].endswith("."), name
        assert (name in NOTES) == (not feature.refused), name
        assert bool(note["refused"]) == bool(feature.refused), name
    assert feature_note("later")["refused"]
    assert {one["name"] for one in table_view("t", [health("t")])["features"]} == {"deletionVectors"}


def test_the_newest_dry_run_is_the_latest_plan() -> None:
    records = [
        run("t", "planned", at_ms=NOW_MS - HOUR_MS, number=1),
        run("t", "planned", at_ms=NOW_MS, number=2, plan={"numBins": 3}),
        run("t", "committed", at_ms=NOW_MS + 1, number=3),
    ]
    plan = table_view("t", records)["plan"]
    assert (plan["run"]["number"], plan["lines"]) == (2, ["It did this."])


def test_a_run_says_what_it_left_and_what_it_took_over() -> None:
    selection = {"left": {"large_enough": {"files": 40, "bytes": 9}, "hot": {"files": 0, "bytes": 0}}}
    done = run("t", selection=selection, earlier_tries={"bins": 2, "files": 9, "bytes": 9})
    (line,) = table_view("t", [done])["runs"]
    assert (line["left_by_reason"], line["taken_over_bins"]) == ({"large_enough": 40}, 2)
