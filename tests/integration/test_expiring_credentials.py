"""Jobs that outlive their credentials: sessions of seconds are renewed, and a key that is revoked ends the job.

Each job runs in the worker, and with executors on a Spark cluster, which assume the role by themselves.

Sessions are real ones of the S3 server. The shortest that it gives lasts a quarter of an hour, so a proxy says that they end sooner,
and refuses what was signed later. It judges by the time of the signature: a busy machine may take long to deliver a request.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.proxy import Answer, Proxy, Request, proxied, s3_error
from tests.support.servers.s3 import S3Server
from tests.support.servers.spark_standalone import SparkCluster
from tests.support.tables.small_tables import write_days

from airflow_delta.runners.job_runner import JobRunner
from airflow_delta.runners.local import LocalJobRunner
from airflow_delta.runners.spark_submit import SparkSubmitRunner
from delta_log import Table
from delta_maintenance.contract import JobReport, JobSpec

pytestmark = pytest.mark.slow

#: How long a session lasts. A job that meets two ends of them takes twice as long at least.
_SECONDS = int(os.environ.get("SESSION_SECONDS", "12"))
_LOG = logging.getLogger(__name__)

Optimize = Callable[[str, dict[str, Any]], JobReport]


class ShortSessions:
    """A token service whose sessions last for seconds, before a store that knows these sessions only.

    The job waits at its first read of a data file and at its first write of one, until all sessions have ended.
    """

    def __init__(self, server: S3Server) -> None:
        self._server = server
        self._lock = threading.Lock()
        self.ends: dict[str, float] = {}
        self.refused: list[Request] = []
        self.waits: list[str] = []

    def __call__(self, request: Request) -> Answer | None:
        signature = request.headers.get("authorization", "")
        if "/sts/aws4_request" in signature:
            return self._session()
        key = signature.partition("Credential=")[2].partition("/")[0]
        signed = datetime.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if signed.timestamp() > self.ends.get(key, 0):
            self.refused.append(request)
            return s3_error(400, "ExpiredToken")
        is_data = request.path.endswith(".parquet") and "_delta_log" not in request.path
        with self._lock:
            is_first = is_data and request.method in ("GET", "PUT") and request.method not in self.waits
            if is_first:
                self.waits.append(request.method)
        if is_first:
            time.sleep(max(0.0, max(self.ends.values()) + 1 - time.time()))
        return None

    def _session(self) -> Answer:
        session = self._server.session(*self._server.everything_in("*"))
        end = int(time.time()) + _SECONDS
        self.ends[session["key"]] = end
        credentials = {
            "AccessKeyId": session["key"],
            "SecretAccessKey": session["secret"],
            "SessionToken": session["token"],
            "Expiration": datetime.fromtimestamp(end, UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        }
        members = "".join(f"<{name}>{value}</{name}>" for name, value in credentials.items())
        body = (
            '<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>'
            f"<Credentials>{members}</Credentials></AssumeRoleResult></AssumeRoleResponse>"
        )
        return Answer(200, body.encode(), {"Content-Type": "text/xml"})


@pytest.fixture
def table(s3_server: S3Server, s3_bucket: str, tmp_path: Path) -> str:
    """The address of a table with two bins."""
    write_days(tmp_path / "t", files=4)
    s3_server.put_tree(tmp_path / "t", f"{s3_bucket}/t")
    return f"s3://{s3_bucket}/t"


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    s3_server.wait_for_roles()
    with proxied(s3_server.endpoint) as proxy:
        yield proxy


@pytest.fixture(params=["local", pytest.param("spark", marks=pytest.mark.spark)])
def optimize(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Optimize:
    """Runs OPTIMIZE of a table with storage options, in a process of the worker or on a cluster."""
    engine = request.param
    if engine == "spark":
        cluster: SparkCluster = request.getfixturevalue("spark_cluster")
        connection = {"conn_type": "spark", "host": cluster.master}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_LAKE", json.dumps(connection))

    def run(table: str, options: dict[str, Any]) -> JobReport:
        runner: JobRunner = LocalJobRunner(options, _LOG)
        if engine == "spark":
            runner = SparkSubmitRunner(
                "spark_lake",
                spark_conf=SparkCluster.conf,
                spark_binary=None,
                storage_options=options,
                log=_LOG,
            )
        report = runner.run(JobSpec("optimize", table, "run", engine=engine), lambda _: None, "0" * 64)
        assert report.engine in (engine, None), "a job that fails does not name it"
        return report

    return run


def ids(table: str, server: S3Server) -> list[int]:
    found = Table(table, server.storage_options).snapshot().to_arrow()
    return sorted(found.column("id").to_pylist())


def test_a_job_renews_sessions_that_end_while_it_reads_and_while_it_writes(
    optimize: Optimize, s3_server: S3Server, table: str, proxy: Proxy
) -> None:
    before = ids(table, s3_server)
    sessions = proxy.rule = ShortSessions(s3_server)
    role = {
        "role_arn": "arn:aws:iam::123456789012:role/lake",
        "renew_before_seconds": _SECONDS // 2,
        "sts_endpoint_url": proxy.endpoint,
    }
    options = {**s3_server.storage_options, "endpoint_url": proxy.endpoint, "assume_role": role}
    report = optimize(table, options)
    assert (report.status, report.error) == ("committed", None)
    assert sessions.waits == ["GET", "PUT"], "the job outlived its sessions twice"
    assert sessions.refused == []
    assert Table(table, s3_server.storage_options).snapshot().num_files == 2
    assert ids(table, s3_server) == before


def test_a_job_whose_key_is_revoked_leaves_the_table_as_it_was(
    optimize: Optimize, s3_server: S3Server, table: str, proxy: Proxy
) -> None:
    before, version = ids(table, s3_server), Table(table, s3_server.storage_options).snapshot().version
    written: list[str] = []

    def revoke_after_the_first_file(request: Request) -> Answer | None:
        if written:
            return s3_error(403, "InvalidAccessKeyId")
        if request.method == "PUT" and request.path.endswith(".parquet"):
            written.append(request.path)
        return None

    proxy.rule = revoke_after_the_first_file
    report = optimize(table, {**s3_server.storage_options, "endpoint_url": proxy.endpoint})
    assert written
    assert report.error is not None
    assert (report.error.type, report.error.retryable) == ("AccessDenied", False)
    assert "the store does not know the access key" in report.error.message
    assert s3_server.key[-4:] in report.error.message
    assert s3_server.secret not in report.error.message
    assert Table(table, s3_server.storage_options).snapshot().version == version
    assert ids(table, s3_server) == before
    # With a new key the next run does all of it.
    assert optimize(table, s3_server.storage_options).status == "committed"
    assert Table(table, s3_server.storage_options).snapshot().num_files == 2
    assert ids(table, s3_server) == before
