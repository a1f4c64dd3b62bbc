"""Tables on real servers, opened with Airflow's own connections: read through the hook, and rewritten by a job beside the task."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.support.connections import hook_of
from tests.support.environment.patience import PATIENCE_SECONDS
from tests.support.runs.maintenance_runs import RUN_KEY
from tests.support.servers.azure import AzureServer
from tests.support.servers.gcs import GcsServer
from tests.support.servers.google_identity import GoogleIdentity, running_google_identity
from tests.support.servers.openid import OpenIdProvider, running_openid_provider
from tests.support.servers.program import teller
from tests.support.servers.proxy import Proxy, only, proxied, s3_error
from tests.support.servers.s3 import MINIO, S3Server, running_minio
from tests.support.tables.small_tables import write_days

from airflow_delta.hooks.delta_table import DeltaTableHook
from airflow_delta.hooks.watched_store import watched_store
from airflow_delta.runners.local import LocalJobRunner
from airflow_delta.triggers import DeltaTableVersionTrigger
from delta_log import Table
from delta_log.errors import AccessDenied
from delta_log.storage.opening import open_storage
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.engine.spark.spark_engine import SparkEngine
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.tasks import tasks_of
from delta_maintenance.progress import SilentProgress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.slow

ROLE = "arn:aws:iam::123456789012:role/lake"


def optimize(hook: DeltaTableHook, table: str) -> JobReport:
    """What the operator runs with the local engine."""
    runner = LocalJobRunner(hook.storage_options, logging.getLogger(__name__))
    return runner.run(JobSpec("optimize", table, "run", engine="local"), lambda _: None, "0" * 64)


def copied(path: Path, uri: str, options: dict[str, Any]) -> str:
    """Copy a small table to a store; return its address there."""
    write_days(path)
    storage = open_storage(uri, options)
    for file in path.rglob("*"):
        if file.is_file():
            storage.put(file.relative_to(path).as_posix(), file.read_bytes())
    return uri


@pytest.fixture
def s3_table(s3_server: S3Server, s3_bucket: str, tmp_path: Path) -> str:
    return copied(tmp_path / "t", f"s3://{s3_bucket}/t", s3_server.storage_options)


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    """Before the S3 server and its token service; records requests."""
    s3_server.wait_for_roles()
    with proxied(s3_server.endpoint) as proxy:
        yield proxy


def aws_hook(
    monkeypatch: pytest.MonkeyPatch, server: S3Server, endpoint: str, role: dict[str, Any] | None = None
) -> DeltaTableHook:
    extra: dict[str, Any] = {"endpoint_url": endpoint, "region_name": "us-east-1"}
    if role is not None:
        extra |= {
            "role_arn": ROLE,
            "assume_role_kwargs": role,
            "service_config": {"sts": {"endpoint_url": endpoint}},
        }
    return hook_of(monkeypatch, "aws", extra, login=server.key, password=server.secret)


def test_an_aws_connection_with_keys(
    s3_server: S3Server, s3_table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = aws_hook(monkeypatch, s3_server, s3_server.endpoint)
    before = hook.get_table(s3_table).snapshot()
    report = optimize(hook, s3_table)
    assert (report.status, report.error) == ("committed", None)
    after = hook.get_table(s3_table).snapshot()
    assert after.version > before.version
    assert after.num_files < before.num_files


def test_an_aws_connection_with_a_wrong_key(
    s3_server: S3Server, s3_table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {"endpoint_url": s3_server.endpoint, "region_name": "us-east-1"}
    hook = hook_of(monkeypatch, "aws", extra, login=s3_server.key, password="not the secret")
    with pytest.raises(AccessDenied, match="secret key does not belong"):
        hook.get_table(s3_table).snapshot()
    error = optimize(hook, s3_table).error
    assert error is not None
    assert (error.type, error.retryable) == ("AccessDenied", False)
    assert "not the secret" not in error.message


def store_keys(proxy: Proxy) -> list[str]:
    """The access keys of the requests to the store, in order, each once."""
    signed = (request.headers.get("authorization", "") for request in proxy.requests)
    of_store = (text for text in signed if "/s3/aws4_request" in text)
    return list(dict.fromkeys(text.partition("Credential=")[2].partition("/")[0] for text in of_store))


def roles_assumed(proxy: Proxy) -> int:
    return len(
        [request for request in proxy.requests if "/sts/aws4_request" in request.headers["authorization"]]
    )


def test_an_aws_connection_with_a_role(
    s3_server: S3Server, s3_table: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = aws_hook(monkeypatch, s3_server, proxy.endpoint, {"DurationSeconds": 900, "ExternalId": "lake-1"})
    assert hook.get_table(s3_table).snapshot().version == 5
    report = optimize(hook, s3_table)
    assert (report.status, report.error) == ("committed", None)
    assert hook.get_table(s3_table).snapshot().version == 6
    # One session for each process and table, and the keys of the connection for no request to the store.
    assert s3_server.key not in store_keys(proxy)
    assert 1 <= len(store_keys(proxy)) <= roles_assumed(proxy)


def test_a_role_can_do_what_its_session_may_do(
    s3_server: S3Server, s3_table: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    reading = {"Effect": "Allow", "Action": ["s3:GetObject", "s3:ListBucket"], "Resource": ["arn:aws:s3:::*"]}
    policy = json.dumps({"Version": "2012-10-17", "Statement": [reading]})
    hook = aws_hook(monkeypatch, s3_server, proxy.endpoint, {"DurationSeconds": 900, "Policy": policy})
    assert hook.get_table(s3_table).snapshot().version == 5
    error = optimize(hook, s3_table).error
    assert error is not None
    assert (error.type, error.retryable) == ("AccessDenied", False)


def test_a_role_that_is_not_given_is_named(
    s3_server: S3Server, s3_table: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    extra = {
        "role_arn": ROLE,
        "region_name": "us-east-1",
        "endpoint_url": proxy.endpoint,
        "service_config": {"sts": {"endpoint_url": proxy.endpoint}},
    }
    hook = hook_of(monkeypatch, "aws", extra, login=s3_server.key, password="not the secret")
    with pytest.raises(AccessDenied, match=f"Role {ROLE} cannot be assumed \\(AccessDenied: ") as raised:
        hook.get_table(s3_table).snapshot()
    assert not raised.value.retryable
    assert store_keys(proxy) == []
    error = optimize(hook, s3_table).error
    assert error is not None
    assert (error.type, error.retryable) == ("AccessDenied", False)


def test_a_session_is_renewed_while_a_table_is_open(
    s3_server: S3Server, s3_table: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The shortest session that the server gives, renewed a second after its beginning.
    role = {
        "role_arn": ROLE,
        "duration_seconds": 900,
        "renew_before_seconds": 899,
        "sts_endpoint_url": proxy.endpoint,
    }
    options = {**s3_server.storage_options, "endpoint_url": proxy.endpoint, "assume_role": role}
    table = hook_of(monkeypatch, "delta", options).get_table(s3_table)
    deadline = time.monotonic() + PATIENCE_SECONDS
    while len(store_keys(proxy)) < 3 and time.monotonic() < deadline:
        assert table.snapshot().num_files
        time.sleep(0.2)
    assert len(store_keys(proxy)) >= 3
    assert s3_server.key not in store_keys(proxy)


@pytest.fixture(scope="module")
def openid() -> Iterator[OpenIdProvider]:
    with running_openid_provider() as provider:
        yield provider


@pytest.fixture(scope="module")
def s3_with_openid(
    openid: OpenIdProvider, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[S3Server]:
    program = MINIO.find(teller(request.config))
    with running_minio(program, tmp_path_factory.mktemp("minio"), openid.minio_environment) as server:
        server.wait_for_roles()
        yield server


def test_an_aws_connection_with_a_web_identity(
    s3_with_openid: S3Server, openid: OpenIdProvider, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = copied(tmp_path / "t", f"s3://{s3_with_openid.make_bucket()}/t", s3_with_openid.storage_options)
    token = tmp_path / "token"
    extra = {
        "endpoint_url": s3_with_openid.endpoint,
        "region_name": "us-east-1",
        "role_arn": openid.minio_role,
        "assume_role_method": "assume_role_with_web_identity",
        "assume_role_with_web_identity_federation": "file",
        "assume_role_with_web_identity_token_file": str(token),
        "service_config": {"sts": {"endpoint_url": s3_with_openid.endpoint}},
    }
    hook = hook_of(monkeypatch, "aws", extra)
    token.write_text(openid.token())
    report = optimize(hook, table)
    assert (report.status, report.error) == ("committed", None)
    token.write_text(openid.token(-3600))
    with pytest.raises(AccessDenied, match="cannot be assumed") as raised:
        hook.get_table(table).snapshot()
    assert token.read_text() not in str(raised.value)
    token.unlink()
    with pytest.raises(AccessDenied, match="must be on every machine"):
        hook.get_table(table).snapshot()


@pytest.mark.spark
def test_executors_assume_the_role_for_themselves(
    s3_server: S3Server, s3_table: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    options = aws_hook(monkeypatch, s3_server, proxy.endpoint, {"DurationSeconds": 900}).storage_options
    table = Table(s3_table, options)
    snapshot = table.snapshot()
    tasks = tasks_of(plan_optimize(snapshot, OptimizeOptions(), 0), snapshot, "run", table.uri)
    before = roles_assumed(proxy)
    done = list(SparkEngine(lambda: spark, options).run(tasks, SilentProgress(), RUN_KEY))
    assert len(done) == len(tasks) == 2
    # The driver's storage, and one of an executor's process at least.
    assert roles_assumed(proxy) - before >= 2
    assert s3_server.key not in store_keys(proxy)


def test_a_session_that_has_ended_says_so_and_may_be_tried_again(
    s3_server: S3Server, s3_table: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxy.rule = lambda _: s3_error(400, "ExpiredToken")
    hook = aws_hook(monkeypatch, s3_server, proxy.endpoint)
    error = optimize(hook, s3_table).error
    assert error is not None
    assert (error.type, error.retryable) == ("AccessDenied", True)
    assert "the credentials have expired" in error.message


@pytest.mark.usefixtures("settled_deferrals")
def test_a_sensor_goes_on_when_its_session_has_ended(
    s3_server: S3Server, s3_table: str, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    aws_hook(monkeypatch, s3_server, proxy.endpoint)
    watched_store.cache_clear()
    trigger = DeltaTableVersionTrigger(s3_table, "lake", 0.1, baseline=0, awaited={"version": 5})
    proxy.rule = only(1, lambda _: True, s3_error(400, "ExpiredToken"))

    async def events() -> list[Any]:
        return [event.payload async for event in trigger.run()]

    (event,) = asyncio.run(events())
    assert event["status"] != "refused"
    assert len(proxy.requests) > 1


def processes_with(secret: str, table: str) -> tuple[list[str], list[str]]:
    """The command lines of a job's processes that hold a secret: in themselves, and in their environment.

    A job leads a session of processes, and its own command line names its table.
    """
    commands: dict[int, tuple[str, bytes]] = {}
    for process in Path("/proc").iterdir():
        if process.name.isdecimal():
            with suppress(OSError):
                command = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode()
                commands[int(process.name)] = command, (process / "environ").read_bytes()
    leaders = {pid for pid, (command, _) in commands.items() if table in command}
    of_job = []
    for pid, found in commands.items():
        with suppress(OSError):
            of_job += [found] if os.getsid(pid) in leaders else []
    return (
        [command for command, _ in of_job if secret in command],
        [command for command, environment in of_job if secret.encode() in environment],
    )


def test_the_keys_are_in_the_environment_of_the_job_and_nowhere_else(
    s3_server: S3Server,
    s3_table: str,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    hook = aws_hook(monkeypatch, s3_server, proxy.endpoint, {"DurationSeconds": 900})
    assert hook.storage_options["secret"] == s3_server.secret
    monkeypatch.delenv("AIRFLOW_CONN_LAKE")  # which the job would get with the rest of the environment
    seen: list[tuple[list[str], list[str]]] = []

    def look(_: object) -> None:
        seen.append(processes_with(s3_server.secret, s3_table))

    proxy.rule = look
    report = optimize(hook, s3_table)
    assert report.status == "committed"
    assert [arguments for arguments, _ in seen if arguments] == []
    holders = {command for _, environment in seen for command in environment}
    assert len(holders) == 1
    assert "delta_maintenance.entrypoint.run_job" in holders.pop()
    assert s3_server.secret not in caplog.text + json.dumps(report.to_dict())


def test_a_connection_for_another_store_starts_nothing(
    s3_server: S3Server, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    hook = aws_hook(monkeypatch, s3_server, proxy.endpoint)
    with pytest.raises(AirflowFailException, match="is for s3:// addresses"):
        hook.get_table("abfss://container@account.dfs.core.windows.net/t")
    assert proxy.requests == []


@pytest.fixture
def google() -> Iterator[GoogleIdentity]:
    with running_google_identity() as google:
        yield google


@pytest.fixture
def gcs_table(gcs_server: GcsServer, gcs_bucket: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    # A connection of this type has no field for an endpoint.
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.endpoint)
    return copied(tmp_path / "t", f"gs://{gcs_bucket}/t", gcs_server.storage_options)


@pytest.mark.parametrize("field", ["keyfile_dict", "key_path"])
def test_a_google_connection_with_a_key(
    google: GoogleIdentity, gcs_table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, field: str
) -> None:
    path = tmp_path / "key.json"
    path.write_text(json.dumps(google.key))
    value = google.key if field == "keyfile_dict" else str(path)
    hook = hook_of(monkeypatch, "google_cloud_platform", {field: value})
    assert hook.get_table(gcs_table).snapshot().version == 5
    assert google.asked == ["/token"]
    report = optimize(hook, gcs_table)
    assert (report.status, report.error) == ("committed", None)
    assert set(google.asked[1:]) == {"/token"}
    assert hook.get_table(gcs_table).snapshot().version == 6


def test_a_google_connection_with_a_workload_identity(
    google: GoogleIdentity, gcs_table: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "token").write_text("of the pod")
    config = google.federation(tmp_path / "token")
    hook = hook_of(monkeypatch, "google_cloud_platform", {"credential_config_file": config})
    report = optimize(hook, gcs_table)
    assert (report.status, report.error) == ("committed", None)
    assert set(google.asked) == {"/federation"}


def test_a_google_connection_whose_key_was_revoked(
    google: GoogleIdentity, gcs_table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    google.refuse()
    hook = hook_of(monkeypatch, "google_cloud_platform", {"keyfile_dict": google.key})
    error = optimize(hook, gcs_table).error
    assert error is not None
    assert (error.type, error.retryable) == ("AccessDenied", False)


@pytest.fixture
def azure_table(azure_server: AzureServer, azure_container: str, tmp_path: Path) -> str:
    uri = f"abfss://{azure_container}@{azure_server.account}.dfs.core.windows.net/t"
    return copied(tmp_path / "t", uri, azure_server.storage_options)


def wasb_fields(server: AzureServer, kind: str, container: str) -> dict[str, Any]:
    host = {"login": server.account, "host": f"{server.endpoint}/{server.account}"}
    fields: dict[str, dict[str, Any]] = {
        "key": {**host, "password": server.key},
        "sas": {**host, "extra": {"sas_token": server.sas_token(container)}},
        "connection string": {"extra": {"connection_string": server.connection_string}},
    }
    return fields[kind]


@pytest.mark.parametrize("kind", ["key", "sas", "connection string"])
def test_a_wasb_connection(
    azure_server: AzureServer,
    azure_container: str,
    azure_table: str,
    monkeypatch: pytest.MonkeyPatch,
    kind: str,
) -> None:
    hook = hook_of(monkeypatch, "wasb", **wasb_fields(azure_server, kind, azure_container))
    assert hook.get_table(azure_table).snapshot().version == 5
    report = optimize(hook, azure_table)
    assert (report.status, report.error) == ("committed", None)
    assert hook.get_table(azure_table).snapshot().version == 6


def test_a_wasb_connection_with_a_wrong_key(
    azure_server: AzureServer, azure_table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = f"{azure_server.endpoint}/{azure_server.account}"
    hook = hook_of(monkeypatch, "wasb", login=azure_server.account, password="A" * 86 + "==", host=host)
    error = optimize(hook, azure_table).error
    assert error is not None
    assert (error.type, error.retryable) == ("AccessDenied", False)
