"""The examples of rewriting files do on a real Airflow what they say."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from tests.support.runs.maintenance_runs import enable_deletion_vectors, keys, mark_deleted

from delta_log import Table
from live_airflow import LiveAirflow

pytestmark = [pytest.mark.slow, pytest.mark.airflow]

WriteTable = Callable[[str], Path]


def report_of(airflow: LiveAirflow, dag_id: str, task_id: str, **conf: Any) -> dict[str, object]:
    airflow.wait_for_dag(dag_id)
    run_id = airflow.trigger(dag_id, conf=conf)
    assert airflow.wait_for_run(dag_id, run_id) == "success", airflow.story(dag_id, run_id)
    report: dict[str, object] = airflow.xcom(dag_id, run_id, task_id)
    return report


def test_the_example_of_a_purge_rewrites_what_is_deleted_above_the_ratio(
    airflow: LiveAirflow, tmp_path: Path
) -> None:
    table = tmp_path / "events"
    for number in range(2):
        rows = pa.table({"id": range(20 * number, 20 * number + 20)})
        deltalake.write_deltalake(str(table), rows, mode="append")
    enable_deletion_vectors(table)
    many, few = keys(table)
    mark_deleted(table, {many: range(10), few: [0]})
    before = Table(str(table)).snapshot()
    rows_before = sorted(before.to_arrow().column("id").to_pylist())
    report = report_of(airflow, "purge_by_dv_ratio", "purge", table=str(table))
    assert (report["operation"], report["status"], report["version"]) == (
        "purge",
        "committed",
        before.version + 1,
    )
    after = Table(str(table)).snapshot()
    assert few in keys(table)
    assert many not in keys(table)
    assert sorted(after.to_arrow().column("id").to_pylist()) == rows_before
    assert report_of(airflow, "purge_by_dv_ratio", "purge", table=str(table))["status"] == "nothing_to_do"


def test_the_example_of_one_partition_leaves_the_others_alone(airflow: LiveAirflow, tmp_path: Path) -> None:
    table = tmp_path / "events"
    for number in range(3):
        rows = pa.table({"id": [2 * number, 2 * number + 1], "day": ["2026-01-30", "2026-01-31"]})
        deltalake.write_deltalake(str(table), rows, partition_by=["day"], mode="append")
    report = report_of(airflow, "optimize_one_partition", "optimize", table=str(table), day="2026-01-30")
    assert report["metrics"] is not None
    assert [key.partition("/")[0] for key in keys(table)] == ["day=2026-01-30", *["day=2026-01-31"] * 3]
    assert sorted(deltalake.DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist()) == list(range(6))


def test_the_example_of_a_form_does_what_was_chosen_below_its_root(
    airflow: LiveAirflow, allowed_root: Path, tmp_path: Path
) -> None:
    dag_id = "adhoc_maintenance"
    table = allowed_root / "events"
    for number in range(3):
        deltalake.write_deltalake(str(table), pa.table({"id": [number]}), mode="append")
    assert report_of(airflow, dag_id, "optimize", table=str(table))["status"] == "planned"
    (planned,) = airflow.call("GET", f"/api/v2/dags/{dag_id}/dagRuns")["dag_runs"]
    rendered = airflow.task(dag_id, planned["dag_run_id"], "optimize")["rendered_fields"]
    assert rendered["dry_run"] == "True", "Rendered Templates shows the argument under its name"
    report = report_of(airflow, dag_id, "optimize", table=str(table), dry_run=False)
    assert (report["status"], len(keys(table))) == ("committed", 1)
    # The form's pattern lets the name of this link through; the connection looks at where it leads to.
    (tmp_path / "another").mkdir()
    (allowed_root / "way_out").symlink_to(tmp_path / "another")
    run_id = airflow.trigger(dag_id, conf={"table": str(allowed_root / "way_out"), "operation": "checkpoint"})
    assert airflow.wait_for_run(dag_id, run_id) == "failed"
    log = "\n".join(airflow.task_log(dag_id, run_id, "checkpoint", 1))
    assert "outside of the allowed roots of connection 'sales'" in log
    assert airflow.task(dag_id, run_id, "optimize")["state"] == "skipped"
