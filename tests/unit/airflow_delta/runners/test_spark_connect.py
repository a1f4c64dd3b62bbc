"""Which connections name a Spark Connect server, at which address, and what runs there."""

from __future__ import annotations

import json
import logging
import os
import subprocess
import sys
from typing import Any

import pytest

from airflow_delta.runners.job_runner import JobCannotStart
from airflow_delta.runners.spark_connect import ConnectJobRunner, SparkConnectRunner, remote_of
from airflow_delta.runners.spark_runner import SparkChoice
from airflow_delta.runners.spark_submit import SparkSubmitRunner

LOG = logging.getLogger("connect")


#: Prepares, then cancels, and prints the modules that only the second has imported.
_CANCELS = """
import sys
from airflow_delta.runners.job_runner import JobLost
from airflow_delta.runners.spark_connect import SparkConnectRunner
from delta_maintenance.engine.connect.detached_rewrite import DetachedRewrite
runner = SparkConnectRunner("connect")
runner.prepare()
known = set(sys.modules)
try:
    runner.cancel(DetachedRewrite.named("0" * 32, "me").to_dict())
except JobLost:
    print("lost", *(name for name in sys.modules if name not in known and name.split(".")[0] in ("grpc", "google", "pyspark")))
"""


def test_a_task_that_is_killed_cancels_without_importing_a_part_of_the_client() -> None:
    """The handler of the signal would find it half imported, if the task was about to import it."""
    connection = {"conn_type": "spark", "host": "sc://127.0.0.1", "port": 1}
    done = subprocess.run(
        [sys.executable, "-c", _CANCELS],
        env={**os.environ, "AIRFLOW_CONN_CONNECT": json.dumps(connection)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split("\n")[-2] == "lost"


@pytest.fixture
def connect(monkeypatch: pytest.MonkeyPatch) -> Any:
    def connection(**members: Any) -> None:
        monkeypatch.setenv("AIRFLOW_CONN_CONNECT", json.dumps(members))

    return connection


@pytest.mark.parametrize(
    ("members", "remote"),
    [
        ({"conn_type": "spark", "host": "sc://host", "port": 15002}, "sc://host:15002/"),
        ({"conn_type": "spark_connect", "host": "host"}, "sc://host/"),
        (
            {
                "conn_type": "spark_connect",
                "host": "host",
                "login": "me",
                "password": "t=k",
                "extra": {"use_ssl": True},
            },
            "sc://host/;user_id=me;token=t%3Dk;use_ssl=True",
        ),
        (
            {"conn_type": "spark", "host": "sc://host", "extra": {"token": "t/k;", "user_id": "me"}},
            "sc://host/;token=t%2Fk%3B;user_id=me",
        ),
        (
            {"conn_type": "spark_connect", "host": "host", "password": "one", "extra": {"token": "two"}},
            "sc://host/;token=one",
        ),
    ],
)
def test_the_address_of_a_connection(connect: Any, members: dict[str, Any], remote: str) -> None:
    connect(**members)
    assert remote_of("connect") == remote


@pytest.mark.parametrize(
    ("members", "why"),
    [
        ({"conn_type": "spark_connect"}, "names no host"),
        ({"conn_type": "spark", "host": "sc://"}, "names no host"),
        ({"conn_type": "spark", "host": "sc://host/path"}, "cannot be used"),
    ],
)
def test_a_connection_that_names_no_server_is_refused(
    connect: Any, members: dict[str, Any], why: str
) -> None:
    connect(**members)
    with pytest.raises(JobCannotStart, match=why):
        remote_of("connect")


def test_the_runner_follows_from_the_connection_and_the_operation(
    connect: Any, caplog: pytest.LogCaptureFixture
) -> None:
    connect(conn_type="spark", host="sc://host")
    with caplog.at_level("INFO", logger="connect"):
        for operation in ("optimize", "purge"):
            runner = SparkChoice(operation, "connect", spark_conf={"a": "b"}).runner({}, LOG)
            assert isinstance(runner, SparkConnectRunner)
    assert "The Spark properties a are left out" in caplog.text
    assert isinstance(SparkChoice("vacuum", "connect").runner({}, LOG), ConnectJobRunner)
    connect(conn_type="spark", host="local[2]")
    assert isinstance(SparkChoice("optimize", "connect").runner({}, LOG), SparkSubmitRunner)


def test_a_runner_is_made_again_from_its_names_alone(connect: Any) -> None:
    connect(conn_type="spark_connect", host="host", password="hunter2")
    name, arguments = SparkConnectRunner("connect", "lake").serialize()
    assert name == "airflow_delta.runners.spark_connect.SparkConnectRunner"
    assert arguments == {"spark_conn_id": "connect", "delta_conn_id": "lake"}
