"""The doctor on real servers: what it finds where a right, a condition, Spark or a library is missing."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException
from tests.support.environment.prerequisites import absent, require
from tests.support.servers.proxy import Without, only, proxied
from tests.support.servers.s3 import S3Server
from tests.support.servers.spark_standalone import SparkCluster
from tests.support.tables.small_tables import write_days

from airflow_delta.operators import DeltaDoctorOperator


def doctor(*arguments: str, code: int, **environment: str) -> dict[str, dict[str, Any]]:
    """The checks of ``delta-maintenance doctor``, by name.

    An embedded Spark in this process, started by another test, leaves its module path in ``PYTHONPATH``. The command would
    hand it to the executors, which then found every library.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(
        [str(Path(sys.executable).with_name("delta-maintenance")), "doctor", "--json", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**inherited, **environment},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def failures(checks: dict[str, dict[str, Any]]) -> set[str]:
    return {name for name, check in checks.items() if check["status"] in ("failure", "warning")}


@pytest.fixture
def table(s3_server: S3Server, s3_bucket: str, tmp_path: Path) -> str:
    write_days(tmp_path / "t", files=2)
    s3_server.put_tree(tmp_path / "t", f"{s3_bucket}/t")
    return f"s3://{s3_bucket}/t"


def test_all_is_well_on_an_object_store_and_nothing_is_left(s3_server: S3Server, table: str) -> None:
    place = f"{table.removeprefix('s3://')}/"
    before = s3_server.keys(place)
    checks = doctor("--table", table, "--storage-options", json.dumps(s3_server.storage_options), code=0)
    assert failures(checks) == set()
    assert checks["table"]["message"] == "version 1, 2 files"
    assert s3_server.keys(place) == before


ALL = frozenset({"ListBucket", "GetObject", "PutObject", "DeleteObject"})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("without", "check", "right"),
    [
        ("ListBucket", "store.list", "s3:ListBucket"),
        ("PutObject", "store.create", "s3:PutObject"),
        ("DeleteObject", "store.delete", "s3:DeleteObject"),
    ],
)
def test_a_right_that_is_missing_is_named(
    s3_server: S3Server, table: str, without: str, check: str, right: str
) -> None:
    s3_server.allow_anonymous(table.split("/")[2], *(ALL - {without}))
    options = json.dumps(s3_server.anonymous_options)
    checks = doctor(
        "--table", table, "--storage-options", options, code=0 if without == "DeleteObject" else 1
    )
    assert check in failures(checks)
    assert right in checks[check]["message"] + checks[check].get("remedy", "")
    assert failures(checks) <= {check}


def test_a_server_that_ignores_conditions_is_found(s3_server: S3Server, table: str) -> None:
    # A signature would cover the header.
    s3_server.allow_anonymous(table.split("/")[2], "*")
    with proxied(s3_server.endpoint) as proxy:
        proxy.rule = only(0, lambda request: "if-none-match" in request.headers, Without("If-None-Match"))
        options = {**s3_server.anonymous_options, "endpoint_url": proxy.endpoint}
        checks = doctor("--table", table, "--storage-options", json.dumps(options), code=1)
    assert failures(checks) == {"store.create"}
    assert "does not honour conditional writes" in checks["store.create"]["message"]


@pytest.fixture(scope="module")
def java() -> None:
    if "JAVA_HOME" not in os.environ:
        require("java", "to run Spark")


@pytest.mark.slow
@pytest.mark.spark
@pytest.mark.usefixtures("java")
def test_a_spark_that_is_down_is_told() -> None:
    checks = doctor("--spark", "--master", "spark://127.0.0.1:1", code=1)
    assert checks["spark.answer"]["status"] == "failure"
    assert checks["spark.machines"]["status"] == "skipped"


@pytest.mark.slow
@pytest.mark.spark
def test_executors_whose_python_has_no_library_are_named(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    bare = tmp_path / "bare" / "bin" / "python"
    checks = doctor("--spark", "--master", spark_cluster.master, code=1, **python_of_executors(str(bare)))
    assert failures(checks) == {"spark.machines"}
    assert "pyroaring" in checks["spark.machines"]["message"]


@pytest.fixture
def other_python() -> str:
    """A Python of another minor version; uv installs one where the machine has none."""
    uv = [sys.executable, "-m", "uv", "python"]
    minor = sys.version_info[1]
    named = [f"3.{minor + step}" for step in (1, -1)]
    versions = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(f"python{version}") for version in named]
    found += [str(path) for version in named for path in versions.glob(f"{version}.*/bin/python{version}")]
    for program in filter(None, found):
        if not subprocess.run([program, "-c", ""], capture_output=True, check=False).returncode:
            return program
    subprocess.run([*uv, "install", named[0]], capture_output=True, check=False)
    managed = subprocess.run(
        [*uv, "find", "--managed-python", named[0]], capture_output=True, text=True, check=False
    )
    return managed.stdout.strip() or absent(f"Python {named[0]}", "for executors that do not fit the driver")


@pytest.mark.slow
@pytest.mark.spark
def test_executors_whose_python_is_another_are_named_with_both_versions(
    spark_cluster: SparkCluster, other_python: str
) -> None:
    checks = doctor("--spark", "--master", spark_cluster.master, code=1, **python_of_executors(other_python))
    assert failures(checks) == {"spark.machines"}
    told = checks["spark.machines"]["message"]
    assert "PYTHON_VERSION_MISMATCH" in told
    assert f"3.{sys.version_info[1]}" in told


def examine_as_a_task(context: dict[str, Any], table: str, **arguments: Any) -> dict[str, dict[str, Any]]:
    operator = DeltaDoctorOperator(task_id="doctor", table=table, delta_conn_id="lake", **arguments)
    document = DeltaDoctorOperator.execute.__wrapped__(operator, context)  # type: ignore[attr-defined]
    return {check["name"]: check for check in document["checks"]}


def connect(monkeypatch: pytest.MonkeyPatch, server: S3Server, credentials: dict[str, str]) -> None:
    """The Airflow connection `lake`."""
    extra = {
        "endpoint_url": server.endpoint,
        "region_name": "us-east-1",
        **({"aws_session_token": credentials["token"]} if "token" in credentials else {}),
    }
    value = {
        "conn_type": "aws",
        "login": credentials["key"],
        "password": credentials["secret"],
        "extra": extra,
    }
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(value))


@pytest.mark.slow
def test_the_operator_fails_its_task_where_the_connection_lacks_a_right(
    s3_server: S3Server,
    table: str,
    make_context: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    bucket = table.split("/")[2]
    resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
    reading = {"Effect": "Allow", "Action": ["s3:ListBucket", "s3:GetObject"], "Resource": resources}
    session = s3_server.session(reading)
    connect(monkeypatch, s3_server, session)
    context, pushed = make_context(), {}
    context["ti"].xcom_push = lambda key, value: pushed.update({key: value})
    with pytest.raises(
        AirflowException, match=r"1 check failed. store.create: .*Grant s3:PutObject"
    ) as raised:
        examine_as_a_task(context, table)
    assert pushed["return_value"]["status"] == "failure"
    assert session["secret"] not in str(raised.value) + json.dumps(pushed)


@pytest.mark.slow
@pytest.mark.spark
def test_the_operator_examines_the_store_and_the_spark_of_its_connections(
    s3_server: S3Server,
    table: str,
    spark_cluster: SparkCluster,
    make_context: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect(monkeypatch, s3_server, {"key": s3_server.key, "secret": s3_server.secret})
    spark = {"conn_type": "spark", "host": spark_cluster.master}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_LAKE", json.dumps(spark))
    for name, value in python_of_executors(sys.executable).items():
        monkeypatch.setenv(name, value)
    checks = examine_as_a_task(
        make_context(), table, spark_conn_id="spark_lake", executor_credentials="ambient"
    )
    assert failures(checks) == set()
    assert checks["spark.answer"]["facts"]["master"] == spark_cluster.master
    assert len(checks["spark.machines"]["facts"]) > 1
    assert checks["spark.encryption"]["status"] == "ok"
    assert "identity of their machines" in checks["spark.encryption"]["message"]


def python_of_executors(python: str) -> dict[str, str]:
    return {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
