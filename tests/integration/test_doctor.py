"""The doctor on real servers: what it finds where a right, a condition, Spark or a library is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import venv
from pathlib import Path
from typing import Any

import pytest
from tests.support.environment.prerequisites import require
from tests.support.servers.proxy import Without, only, proxied
from tests.support.servers.s3 import S3Server
from tests.support.servers.spark_standalone import SparkCluster
from tests.support.tables.small_tables import write_days


def doctor(*arguments: str, code: int, **environment: str) -> dict[str, dict[str, Any]]:
    """The checks of ``delta-maintenance doctor``, by name."""
    done = subprocess.run(
        [str(Path(sys.executable).with_name("delta-maintenance")), "doctor", "--json", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    assert done.returncode == code, done.stdout + done.stderr
    return {check["name"]: check for check in json.loads(done.stdout)["checks"]}


def failures(checks: dict[str, dict[str, Any]]) -> set[str]:
    return {name for name, check in checks.items() if check["status"] in ("failure", "warning")}


@pytest.fixture
def table(s3_server: S3Server, s3_bucket: str, tmp_path: Path) -> str:
    write_days(tmp_path / "t", files=2)
    s3_server.file_system().put(str(tmp_path / "t"), f"{s3_bucket}/t", recursive=True)
    return f"s3://{s3_bucket}/t"


def test_all_is_well_on_an_object_store_and_nothing_is_left(s3_server: S3Server, table: str) -> None:
    before = s3_server.file_system().find(table)
    checks = doctor("--table", table, "--storage-options", json.dumps(s3_server.storage_options), code=0)
    assert failures(checks) == set()
    assert checks["table"]["message"] == "version 1, 2 files"
    system = s3_server.file_system()
    system.invalidate_cache()
    assert system.find(table) == before


ALL = frozenset({"ListBucket", "GetObject", "PutObject", "DeleteObject"})


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
    assert right in checks[check]["message"] + checks[check]["remedy"]
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


@pytest.mark.spark
@pytest.mark.usefixtures("java")
def test_a_spark_that_is_down_is_told() -> None:
    checks = doctor("--spark", "--master", "spark://127.0.0.1:1", code=1)
    assert checks["spark.answer"]["status"] == "failure"
    assert checks["spark.machines"]["status"] == "skipped"


@pytest.mark.spark
def test_a_cluster_with_this_python_is_well(spark_cluster: SparkCluster) -> None:
    checks = doctor(
        "--spark", "--master", spark_cluster.master, code=0, **python_of_executors(sys.executable)
    )
    assert failures(checks) == set()
    assert len(checks["spark.machines"]["facts"]) > 1


@pytest.mark.spark
def test_executors_whose_python_has_no_library_are_named(spark_cluster: SparkCluster, tmp_path: Path) -> None:
    venv.create(tmp_path / "bare", symlinks=True)
    bare = tmp_path / "bare" / "bin" / "python"
    checks = doctor("--spark", "--master", spark_cluster.master, code=1, **python_of_executors(str(bare)))
    assert failures(checks) == {"spark.machines"}
    assert "pyroaring" in checks["spark.machines"]["message"]


def python_of_executors(python: str) -> dict[str, str]:
    return {"PYSPARK_PYTHON": python, "PYSPARK_DRIVER_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1"}
