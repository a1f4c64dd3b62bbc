"""What cannot work fails at once, says why in the task log, is not tried again, and writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.support.tables.small_tables import contents, with_unknown_feature

from live_airflow import LiveAirflow

pytestmark = [pytest.mark.slow, pytest.mark.airflow]

WriteTable = Callable[[str], Path]

SECRET = "wJalrXUtnFEMI"


def with_files_but_no_log(directory: Path) -> Path:
    directory.mkdir()
    (directory / "data.csv").write_text("1,2,3\n")
    return directory


@pytest.fixture
def tables(tmp_path: Path, write_table: WriteTable) -> dict[str, Path]:
    return {
        "good": write_table("good"),
        "not_a_table": with_files_but_no_log(tmp_path / "not_a_table"),
        "missing": tmp_path / "missing",
        "unsupported": with_unknown_feature(write_table("unsupported")),
    }


@pytest.mark.parametrize(
    ("table", "conf", "message"),
    [
        ("not_a_table", {}, "NotATable"),
        ("missing", {}, "NotATable"),
        ("unsupported", {}, "timeTravelToTheFuture"),
        ("good", {"where": "id = 1"}, "InvalidRequest"),
        ("good", {"where": "part ="}, "InvalidRequest"),
        ("good", {"delta_conn_id": "nowhere"}, "There is no Airflow connection 'nowhere'"),
        ("good", {"delta_conn_id": "no_storage"}, "has type 'postgres'"),
        (
            "good",
            {"delta_conn_id": "aws_lake", "table": "abfss://c@a.dfs.core.windows.net/t"},
            "is for s3:// addresses",
        ),
        ("good", {"engine": "spark", "spark_conn_id": "nowhere"}, "There is no Airflow connection 'nowhere'"),
        ("good", {"engine": "spark", "spark_conn_id": "no_master"}, "which no Spark knows"),
        ("good", {"engine": "warp"}, "engine: 'warp' is not one of"),
        ("good", {"full": ""}, "full: '' is neither true nor false"),
        ("good", {"delta_conn_id": "sales"}, "outside of the allowed roots of connection 'sales'"),
        ("good", {"table": f"s3://AKIAKEY:{SECRET}@lake/t"}, "s3://***@lake/t carries credentials"),
    ],
)
def test_bad_input_fails_at_once_and_writes_nothing(
    airflow: LiveAirflow, tables: dict[str, Path], table: str, conf: dict[str, str], message: str
) -> None:
    path = tables[table]
    before = contents(path)
    run_id = airflow.trigger("optimize", conf={"table": str(path), **conf})
    assert airflow.wait_for_run("optimize", run_id) == "failed"
    task = airflow.task("optimize", run_id, "optimize")
    assert task["try_number"] == 1, "trying again would not help"
    log = "\n".join(airflow.task_log("optimize", run_id, "optimize", 1))
    assert message in log
    # Neither in the log nor among the rendered fields that Airflow keeps.
    assert SECRET not in log + json.dumps(task)
    assert contents(path) == before


def test_a_spark_submit_that_is_not_there_is_not_tried_again(
    airflow: LiveAirflow, tables: dict[str, Path]
) -> None:
    dag_id = "no_spark_submit"
    airflow.wait_for_dag(dag_id)
    run_id = airflow.trigger(dag_id, conf={"table": str(tables["good"]), "engine": "spark"})
    assert airflow.wait_for_run(dag_id, run_id) == "failed"
    assert airflow.task(dag_id, run_id, "optimize")["try_number"] == 1
    assert "'/no/such/spark-submit' is not on" in "\n".join(airflow.task_log(dag_id, run_id, "optimize", 1))


def test_a_spark_that_ends_without_a_word_is_tried_again_and_its_output_shown(
    airflow: LiveAirflow, tables: dict[str, Path]
) -> None:
    before = contents(tables["good"])
    dag_id = "broken_spark_submit"
    airflow.wait_for_dag(dag_id)
    run_id = airflow.trigger(dag_id, conf={"table": str(tables["good"]), "engine": "spark"})
    assert airflow.wait_for_run(dag_id, run_id) == "failed"
    assert airflow.task(dag_id, run_id, "optimize")["try_number"] == 3
    log = "\n".join(airflow.task_log(dag_id, run_id, "optimize", 1))
    assert "spark-submit ended with exit code 1 and without a report" in log
    assert "the cluster is on fire" in log
    assert contents(tables["good"]) == before
