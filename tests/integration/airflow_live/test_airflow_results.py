"""What a real Airflow makes of reports: events and assets of many tables, names of mapped tasks, approved plans, links."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from tests.support.runs.approvals import answer, planned
from tests.support.runs.maintenance_runs import keys
from tests.support.tables.small_tables import write_days

from airflow_delta.links import TableLink, TablePageLink
from airflow_delta.monitoring.record import table_id
from live_airflow import LiveAirflow

pytestmark = [pytest.mark.slow, pytest.mark.airflow]

WriteTable = Callable[[str], Path]
MANY = "maintain_many_tables"


def instances(airflow: LiveAirflow, run_id: str, task_id: str, dag_id: str = MANY) -> dict[str, str]:
    """The state of each instance of a mapped task, by the name that the UI shows."""
    path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances/{task_id}/listMapped"
    found = airflow.call("GET", path)["task_instances"]
    return {str(one["rendered_map_index"]): str(one["state"]) for one in found}


def events(airflow: LiveAirflow, dag_id: str) -> list[dict[str, Any]]:
    """The events of a DAG's tasks."""
    found = airflow.call("GET", f"/api/v2/assets/events?source_dag_id={dag_id}&limit=100")["asset_events"]
    return list(found)


def test_a_table_that_fails_stops_no_other_and_all_share_one_asset(
    airflow: LiveAirflow, write_table: WriteTable, tmp_path: Path
) -> None:
    airflow.wait_for_dag(MANY)
    airflow.add_pool("delta_maintenance", slots=2)
    sound = [str(write_table(name)) for name in ("events", "orders")]
    absent = str(tmp_path / "absent")
    run_id = airflow.trigger(MANY, conf={"tables": [sound[0], absent, sound[1]]})
    assert airflow.wait_for_run(MANY, run_id) == "failed", airflow.story(MANY, run_id)
    done = dict.fromkeys(sound, "success")
    assert instances(airflow, run_id, "maintain.optimize") == {**done, absent: "failed"}
    checkpoints = sorted(instances(airflow, run_id, "maintain.checkpoint").values())
    assert checkpoints == ["success", "success", "upstream_failed"]
    assert instances(airflow, run_id, "maintain.health") == {**done, absent: "failed"}
    assert all(len(keys(Path(table))) == 2 for table in sound), "one file for each partition"
    told = "\n".join(airflow.task_log(MANY, run_id, "summary", 1))
    assert f"1 tables failed: {absent}" in told
    found = events(airflow, MANY)
    commits = [event["extra"]["table"] for event in found if event["extra"]["status"] == "committed"]
    assert sorted(commits) == sorted(sound)
    assert {event["name"] for event in found} == {"delta-maintenance:nightly"}
    assets = airflow.call("GET", "/api/v2/assets?only_active=false&name_pattern=delta-maintenance:&limit=100")
    names = [asset["name"] for asset in assets["assets"]]
    assert [name for name in names if any(table in name for table in sound)] == []


def test_only_a_table_that_needs_it_is_optimized(
    airflow: LiveAirflow, write_table: WriteTable, tmp_path: Path
) -> None:
    dag_id = "maintain_what_is_needed"
    airflow.wait_for_dag(dag_id)
    needy, sound = write_table("needy"), tmp_path / "sound"
    write_days(sound, files=2, days=2)
    run_id = airflow.trigger(dag_id, conf={"tables": [str(needy), str(sound)]})
    assert airflow.wait_for_run(dag_id, run_id) == "success", airflow.story(dag_id, run_id)
    assert instances(airflow, run_id, "health", dag_id) == {str(needy): "success", str(sound): "success"}
    assert instances(airflow, run_id, "optimize", dag_id) == {str(needy): "success"}
    assert len(keys(needy)) == 2


def test_an_approved_rewrite_is_carried_out_and_no_other(
    airflow: LiveAirflow, write_table: WriteTable
) -> None:
    dag_id = "optimize_with_approval"
    table = write_table("approved_rewrite")
    run_id = planned(airflow, dag_id, table)
    assert len(keys(table)) == 6
    answer(airflow, dag_id, run_id, "Approve", table)
    assert airflow.wait_for_run(dag_id, run_id) == "success", airflow.story(dag_id, run_id)
    assert len(keys(table)) == 2


def test_a_commit_wakes_the_consumers_of_the_data_only_if_asked_for_and_the_table_has_its_link(
    airflow: LiveAirflow, write_table: WriteTable, told_table: Path
) -> None:
    dag_id = "emits_data"
    airflow.wait_for_dag("after_data")
    for emits, expected in (("false", set()), ("true", {"data of a test"})):
        write_table(str(told_table))
        run_id = airflow.trigger(dag_id, conf={"emits": emits})
        assert airflow.wait_for_run(dag_id, run_id) == "success", airflow.story(dag_id, run_id)
        names = {event["name"] for event in events(airflow, dag_id)}
        assert names - {f"delta-maintenance:{told_table}"} == expected
    path = f"/api/v2/dags/{dag_id}/dagRuns/{quote(run_id, safe='')}/taskInstances/optimize/links"
    links = airflow.call("GET", path)["extra_links"]
    kept = airflow.call("GET", path.removesuffix("links") + "xcomEntries")["xcom_entries"]
    assert {entry["key"] for entry in kept} == {
        "return_value",
        TableLink().xcom_key,
        TablePageLink().xcom_key,
    }
    assert links == {
        "Table": f"https://catalog.example.org/?uri={quote(str(told_table), safe='')}",
        "Delta tables": f"/plugin/delta-tables?table={table_id(str(told_table))}",
        "Spark application": None,
    }
