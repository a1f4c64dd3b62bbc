"""A Spark driver that ends without a report, and settings that Spark's launcher refuses."""

from __future__ import annotations

import json
import logging
import signal
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.support.tables.small_tables import write_days

from airflow_delta.operators.reporting.failure import airflow_exception
from airflow_delta.runners.job_output import JobProgress
from airflow_delta.runners.job_runner import JobCannotStart, JobLost
from airflow_delta.runners.spark_submit import SparkSubmitRunner
from delta_log import Table
from delta_maintenance.contract import JobSpec

pytestmark = [pytest.mark.slow, pytest.mark.spark]


def runner(monkeypatch: pytest.MonkeyPatch, **conf: str) -> SparkSubmitRunner:
    connection = {"conn_type": "spark", "host": "local[1]"}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", json.dumps(connection))
    settings: dict[str, Any] = {"spark_conf": conf, "storage_options": {}, "spark_binary": None}
    return SparkSubmitRunner("spark_default", log=logging.getLogger("job"), **settings)


def kill_driver(progress: JobProgress) -> None:
    """Kills the driver's Python as soon as it starts Spark."""
    if "starting Spark" not in progress.message:
        return
    for process in psutil.Process().children(recursive=True):
        # Others end meanwhile.
        with suppress(psutil.NoSuchProcess, psutil.ZombieProcess):
            if "python" in process.name() and any("run_job.py" in part for part in process.cmdline()):
                process.send_signal(signal.SIGKILL)


def test_a_killed_driver_is_told_and_may_be_tried_again(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write_days(tmp_path)
    before = Table(str(tmp_path)).snapshot().version
    with caplog.at_level("INFO", logger="job"), pytest.raises(JobLost) as caught:
        runner(monkeypatch).run(
            JobSpec("optimize", str(tmp_path), "run", engine="spark"), kill_driver, "5e" * 32
        )
    assert "The Spark driver was ended by SIGKILL before it could report" in str(caught.value)
    assert not isinstance(airflow_exception(caught.value), AirflowFailException)
    assert Table(str(tmp_path)).snapshot().version == before
    shown = "\n".join(caplog.messages) + str(caught.value)
    for noise in ("INFO SparkContext", "NativeCodeLoader", "incubator modules", ".scala:"):
        assert noise not in shown


def test_a_setting_that_spark_refuses_is_final(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spark = runner(monkeypatch, **{"spark.executor.memory": "much"})
    with pytest.raises(
        JobCannotStart, match=r"Executor memory must be a positive number\. Correct"
    ) as caught:
        spark.run(JobSpec("optimize", str(tmp_path), "run", engine="spark"), lambda _: None, "5e" * 32)
    assert isinstance(airflow_exception(caught.value), AirflowFailException)
