"""What a user is told when a store refuses, and whether the task is tried again: on the command line and in Airflow.

The servers are real and enforce policies. A proxy answers what they cannot: an expired session, another region, a requester who
does not pay.
"""

from __future__ import annotations

import http.server
import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from tests.support.servers.azure import AzureServer
from tests.support.servers.gcs import GcsServer
from tests.support.servers.proxy import Answer, Proxy, proxied, s3_error
from tests.support.servers.s3 import S3Server
from tests.support.tables.small_tables import write_days

from airflow_delta.hooks.watched_store import watched_store
from airflow_delta.operators.reporting.failure import raise_for
from airflow_delta.sensors import DeltaDeletionVectorRatioSensor, DeltaTableVersionSensor
from airflow_delta.testing import FakeStateStore
from delta_log import Table
from delta_log.errors import AccessDenied
from delta_log.storage.objects.store_answer import StoreAnswer
from delta_log.storage.opening import open_storage
from delta_maintenance.cli.main import main
from delta_maintenance.contract import ErrorReport, JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress

pytestmark = pytest.mark.slow

NO_SECOND_TRY, SECOND_TRY = "Another try cannot help before that.", "Another try may help."
ALL = ("ListBucket", "GetObject", "PutObject", "DeleteObject")


def error_of(table: str, options: dict[str, Any], operation: str = "optimize", **more: Any) -> ErrorReport:
    """The error of a job; Airflow's exception has its message, and fails the task for good if another try cannot help."""
    spec = JobSpec(operation, table, "run", more, engine="local")
    report = run_job(spec, JobSite(storage_options=options), SilentProgress())
    assert report.error is not None, report
    with pytest.raises(AirflowException) as raised:
        raise_for(report, operation, table)
    assert isinstance(raised.value, AirflowFailException) == (not report.error.retryable)
    assert report.error.message in str(raised.value)
    return report.error


def told(table: str, options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> str:
    """What the command line says of an error that meets a reader, too."""
    assert main(["inspect", table, "--storage-options", json.dumps(options)]) == 1
    return capsys.readouterr().err


@pytest.fixture
def table(s3_server: S3Server, s3_bucket: str, tmp_path: Path) -> str:
    write_days(tmp_path / "t", files=4, days=2)
    s3_server.put_tree(tmp_path / "t", f"{s3_bucket}/t")
    return f"s3://{s3_bucket}/t"


@pytest.fixture
def proxy(s3_server: S3Server) -> Iterator[Proxy]:
    with proxied(s3_server.endpoint) as proxy:
        yield proxy


def through(proxy: Proxy, server: S3Server) -> dict[str, Any]:
    return {**server.storage_options, "endpoint_url": proxy.endpoint}


def without(right: str, server: S3Server, table: str) -> dict[str, Any]:
    """Storage options of a session that has all rights but one."""
    bucket = table.split("/")[2]
    resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
    actions = [f"s3:{action}" for action in ALL if action != right]
    return server.options_of(server.session({"Effect": "Allow", "Action": actions, "Resource": resources}))


def test_a_bucket_that_is_missing_is_named(s3_server: S3Server, capsys: pytest.CaptureFixture[str]) -> None:
    error = error_of("s3://bucket-that-is-missing/t", s3_server.storage_options)
    assert (error.type, error.retryable) == ("BucketNotFound", False)
    assert f"there is no bucket bucket-that-is-missing at {s3_server.endpoint}" in error.message
    assert NO_SECOND_TRY in error.message
    assert error.message in told("s3://bucket-that-is-missing/t", s3_server.storage_options, capsys)


@pytest.mark.parametrize(
    ("right", "operation", "resource"),
    [
        ("ListBucket", "optimize", "arn:aws:s3:::{bucket}"),
        ("GetObject", "optimize", "arn:aws:s3:::{bucket}/t/*"),
        ("PutObject", "optimize", "arn:aws:s3:::{bucket}/t/*"),
        ("PutObject", "checkpoint", "arn:aws:s3:::{bucket}/t/*"),
        ("DeleteObject", "vacuum", "arn:aws:s3:::{bucket}/t/*"),
    ],
)
def test_a_right_that_is_missing_is_named_with_its_resource_and_who_lacks_it(
    s3_server: S3Server,
    table: str,
    right: str,
    operation: str,
    resource: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    more: dict[str, Any] = {}
    if operation == "vacuum":
        run_job(
            JobSpec("optimize", table, "first", engine="local"),
            JobSite(storage_options=s3_server.storage_options),
            SilentProgress(),
        )
        more = {"retain_hours": 0, "retention_check": False}
    options = without(right, s3_server, table)
    error = error_of(table, options, operation, **more)
    assert error.retryable is False
    missing = f"s3:{right} on {resource.format(bucket=table.split('/')[2])}"
    assert f"Grant {missing}" in error.message
    assert f"denied to access key …{options['key'][-4:]} with a session token" in error.message
    assert NO_SECOND_TRY in error.message
    assert options["key"] not in error.message
    if error.type == "AccessDenied":
        assert error.facts["right"].startswith(missing)
        assert error.facts["identity"] == f"access key …{options['key'][-4:]} with a session token"
    if right in ("ListBucket", "GetObject"):
        assert f"Grant {missing}" in told(table, options, capsys)


@pytest.mark.usefixtures("settled_deferrals")
@pytest.mark.parametrize("kind", [DeltaTableVersionSensor, DeltaDeletionVectorRatioSensor])
def test_a_sensor_does_not_wait_for_what_another_try_cannot_help(
    s3_server: S3Server, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    value = {"conn_type": "delta", "extra": s3_server.storage_options}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(value))
    watched_store.cache_clear()
    sensor = kind(task_id="t", table="s3://bucket-that-is-missing/t", delta_conn_id="lake", timeout=30)
    instance = SimpleNamespace(dag_id="d", task_id="t", run_id="r", map_index=-1, max_tries=0)
    instance.xcom_pull = lambda **_: []
    instance.xcom_push = lambda *_: None
    with pytest.raises(AirflowFailException, match="there is no bucket bucket-that-is-missing"):
        sensor.execute({"ti": instance, "task_state_store": FakeStateStore()})


def test_an_expired_session_may_be_tried_again(
    s3_server: S3Server, table: str, proxy: Proxy, capsys: pytest.CaptureFixture[str]
) -> None:
    proxy.rule = lambda _: s3_error(400, "ExpiredToken")
    error = error_of(table, through(proxy, s3_server))
    assert (error.type, error.retryable) == ("AccessDenied", True)
    for part in ("the credentials have expired", "credentials that renew themselves", SECOND_TRY):
        assert part in error.message
    assert error.message in told(table, through(proxy, s3_server), capsys)


def test_a_bucket_in_another_region_is_final(s3_server: S3Server, table: str, proxy: Proxy) -> None:
    proxy.rule = lambda _: s3_error(301, "PermanentRedirect")
    error = error_of(table, through(proxy, s3_server))
    assert (error.type, error.retryable) == ("WrongRegion", False)
    assert f"{proxy.endpoint} sends requests for bucket {table.split('/')[2]} elsewhere" in error.message
    assert NO_SECOND_TRY in error.message


def test_a_wrong_region_is_told_with_the_right_one(s3_server: S3Server, table: str, proxy: Proxy) -> None:
    body = (
        b"<Error><Code>AuthorizationHeaderMalformed</Code><Message>the region is wrong</Message>"
        b"<Region>us-west-2</Region></Error>"
    )
    proxy.rule = lambda _: Answer(400, body, {"Content-Type": "application/xml"})
    error = error_of(table, through(proxy, s3_server))
    assert (error.type, error.retryable) == ("AccessDenied", False)
    assert "Correct region_name (the store says us-west-2)" in error.message


def test_an_endpoint_where_nobody_listens_may_be_tried_again(s3_server: S3Server, table: str) -> None:
    error = error_of(table, {**s3_server.storage_options, "endpoint_url": "http://127.0.0.1:9"})
    assert (error.type, error.retryable) == ("StorageError", True)
    assert "http://127.0.0.1:9 cannot be reached" in error.message
    assert "correct endpoint_url or region_name" in error.message


@contextmanager
def another_http_server(directory: Path) -> Iterator[str]:
    class Handler(http.server.SimpleHTTPRequestHandler):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments, directory=str(directory))

        def log_message(self, *_: object) -> None:
            """Logs nothing."""

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def test_an_endpoint_that_is_no_store_says_so(s3_server: S3Server, table: str, tmp_path: Path) -> None:
    with another_http_server(tmp_path) as endpoint:
        error = error_of(table, {**s3_server.storage_options, "endpoint_url": endpoint})
    assert (error.type, error.retryable) == ("StorageError", True)
    assert f"{endpoint} does not answer as S3 does (404" in error.message


def test_the_distance_of_the_clocks_is_told(s3_server: S3Server, table: str, proxy: Proxy) -> None:
    store = (datetime.now(timezone.utc) - timedelta(minutes=61)).strftime("%Y-%m-%dT%H:%M:%SZ")
    body = f"<Error><Code>RequestTimeTooSkewed</Code><Message>said</Message><ServerTime>{store}</ServerTime></Error>"
    proxy.rule = lambda _: Answer(403, body.encode(), {"Content-Type": "application/xml"})
    error = error_of(table, through(proxy, s3_server))
    assert (error.type, error.retryable) == ("AccessDenied", True)
    assert (
        "RequestTimeTooSkewed: this machine's clock is wrong, 61 minutes ahead of the store's"
        in error.message
    )
    assert "Correct the clock of machine" in error.message


@pytest.mark.parametrize(
    ("status", "code", "meaning", "may_pass"),
    [
        (400, "ExpiredToken", "the credentials have expired", True),
        (403, "InvalidAccessKeyId", "the store does not know the access key", False),
    ],
)
def test_a_question_for_an_object_is_refused_with_the_reason_that_its_answer_lacks(
    s3_server: S3Server, table: str, proxy: Proxy, status: int, code: str, meaning: str, may_pass: bool
) -> None:
    storage = open_storage(table, through(proxy, s3_server))
    key = f"_delta_log/{0:020}.json"
    assert storage.head(key) is not None
    proxy.rule = lambda _: s3_error(status, code)
    with pytest.raises(AccessDenied, match=meaning) as raised:
        storage.head(key)
    assert raised.value.retryable == may_pass


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("InvalidObjectState", ("ObjectArchived", "has to be restored before anybody can read it")),
        ("KMS.DisabledException", ("KeyUnusable", "is encrypted with a key that")),
    ],
)
def test_an_object_that_needs_more_than_rights_is_told_and_skipped_on_request(
    s3_server: S3Server, table: str, proxy: Proxy, code: str, expected: tuple[str, str]
) -> None:
    options = replace(s3_server, endpoint=proxy.endpoint).storage_options
    storage = open_storage(table, s3_server.storage_options)
    keys = Table(table, s3_server.storage_options).snapshot().files(["key"])["key"].to_pylist()
    assert len(keys) > 1
    locked = keys[0]
    assert storage.head(locked) is not None
    proxy.rule = lambda request: (
        s3_error(403, code) if request.method in ("GET", "HEAD") and request.path.endswith(locked) else None
    )
    found = error_of(table, options)
    kind, words = expected
    assert (found.type, found.retryable) == (kind, False)
    assert words in found.message
    assert "on_broken_source='skip'" in found.message
    spec = JobSpec("optimize", table, "skipping", {"on_broken_source": "skip"}, engine="local")
    report = run_job(spec, JobSite(storage_options=options), SilentProgress())
    assert report.error is None, report.error
    assert report.broken_bins == 1


def test_a_requester_who_does_not_pay_is_told_of_the_option(
    s3_server: S3Server, table: str, proxy: Proxy
) -> None:
    proxy.rule = lambda request: (
        None if request.headers.get("x-amz-request-payer") == "requester" else s3_error(403, "AccessDenied")
    )
    options = through(proxy, s3_server)
    error = error_of(table, options)
    assert (error.type, error.retryable) == ("AccessDenied", False)
    assert "requester_pays" in error.message
    site = JobSite(storage_options={**options, "requester_pays": True})
    report = run_job(JobSpec("optimize", table, "run", engine="local"), site, SilentProgress())
    assert (report.status, report.error) == ("committed", None)


@pytest.mark.parametrize(
    ("address", "extra"), [("s3://lake/t", "s3"), ("gs://lake/t", "gcs"), ("abfs://c@lake/t", "azure")]
)
def test_an_extra_that_is_not_installed_is_named(address: str, extra: str) -> None:
    """The package cannot be imported in this process, as where it is not installed."""
    program = (
        "import sys; sys.modules['obstore'] = None; from delta_maintenance.cli.main import main; "
        f"sys.exit(main(['inspect', {address!r}, '--json']))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    error = json.loads(done.stdout)["error"]
    assert done.returncode == 2
    assert (error["kind"], error["retryable"]) == ("refused", False)
    assert f"Install airflow-provider-delta[{extra}]" in error["message"]


def google_error(status: int, code: str, message: str, details: str = "") -> Answer:
    body = f"<Error><Code>{code}</Code><Message>{message}</Message><Details>{details}</Details></Error>"
    return Answer(status, body.encode(), {"Content-Type": "application/xml"})


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (
            google_error(
                403,
                "AccessDenied",
                "Access denied.",
                "lake@p.iam.gserviceaccount.com does not have storage.objects.list access to the Google Cloud Storage bucket.",
            ),
            "Grant storage.objects.list on bucket",
        ),
        (
            google_error(
                403, "AccessDenied", "Access denied.", "Permission &#39;storage.buckets.get&#39; denied."
            ),
            "Grant storage.buckets.get on bucket",
        ),
        (google_error(401, "AuthenticationRequired", "Authentication required."), "Grant storage.objects."),
        (
            google_error(
                400, "UserProjectMissing", "Bucket is a requester pays bucket but no user project provided."
            ),
            "Set requester_pays",
        ),
    ],
)
def test_a_refusal_of_google_names_the_right(
    gcs_server: GcsServer, gcs_bucket: str, answer: Answer, says: str
) -> None:
    with proxied(gcs_server.endpoint) as proxy:
        proxy.rule = lambda _: answer
        options = {**gcs_server.storage_options, "endpoint_url": proxy.endpoint}
        error = error_of(f"gs://{gcs_bucket}/t", options)
    assert (error.type, error.retryable) == ("AccessDenied", False)
    assert says in error.message
    said = StoreAnswer(said="", body=answer.body.decode())
    assert said.message in error.message
    assert said.field("Details") in error.message
    assert "denied to requests without credentials (anon)" in error.message


@pytest.mark.parametrize(
    ("options", "payer"),
    [
        ({}, None),
        ({"requester_pays": True}, "tests"),
        ({"requester_pays": "other"}, "other"),
        ({"quota_project_id": "quota"}, "quota"),
    ],
)
def test_a_requester_of_google_pays_if_asked_to(
    gcs_server: GcsServer, gcs_bucket: str, options: dict[str, Any], payer: str | None
) -> None:
    with proxied(gcs_server.endpoint) as proxy:
        storage = open_storage(
            f"gs://{gcs_bucket}/t",
            {**gcs_server.storage_options, "endpoint_url": proxy.endpoint, **options},
        )
        storage.put("a", b"1")
        assert storage.read("a") == b"1"
        assert list(storage.list_from("")) != []
    assert {request.headers.get("x-goog-user-project") for request in proxy.requests} == {payer}
    # Requests without credentials hold none.
    assert {request.headers.get("authorization", "").strip() for request in proxy.requests} <= {"", "Bearer"}


def test_a_bucket_of_google_that_is_missing_is_named(gcs_server: GcsServer) -> None:
    error = error_of("gs://bucket-that-is-missing/t", gcs_server.storage_options)
    assert (error.type, error.retryable) == ("BucketNotFound", False)
    assert "bucket bucket-that-is-missing" in error.message


@pytest.fixture
def azure_table(azure_server: AzureServer, azure_container: str, tmp_path: Path) -> str:
    write_days(tmp_path / "t", files=4, days=2)
    address = f"abfs://{azure_container}/t"
    storage = open_storage(address, azure_server.storage_options)
    for file in (tmp_path / "t").rglob("*"):
        if file.is_file():
            storage.put(file.relative_to(tmp_path / "t").as_posix(), file.read_bytes())
    return address


def with_sas(server: AzureServer, token: str) -> dict[str, Any]:
    string = f"BlobEndpoint={server.endpoint}/{server.account};SharedAccessSignature={token};"
    return {"account_name": server.account, "connection_string": string}


@pytest.mark.parametrize(
    ("letters", "operation", "says"),
    [
        ("rwd", "optimize", "Storage Blob Data Reader (SAS: r; l to list)"),
        ("wdl", "optimize", "Storage Blob Data Reader (SAS: r"),
        ("rdl", "optimize", "Storage Blob Data Contributor (SAS: w)"),
        ("rwl", "vacuum", "Storage Blob Data Contributor (SAS: d)"),
    ],
)
def test_a_sas_token_without_a_right_is_told_which(
    azure_server: AzureServer, azure_table: str, letters: str, operation: str, says: str
) -> None:
    more: dict[str, Any] = {}
    if operation == "vacuum":
        run_job(
            JobSpec("optimize", azure_table, "first", engine="local"),
            JobSite(storage_options=azure_server.storage_options),
            SilentProgress(),
        )
        more = {"retain_hours": 0, "retention_check": False}
    token = azure_server.sas_token(azure_table.split("/")[2], letters)
    error = error_of(azure_table, with_sas(azure_server, token), operation, **more)
    assert error.retryable is False
    assert f"{says}" in error.message
    assert f"on container {azure_table.split('/')[2]}" in error.message
    assert "denied to the connection string of account" in error.message
    assert token not in error.message


def test_an_expired_sas_token_may_be_tried_again(azure_server: AzureServer, azure_table: str) -> None:
    token = azure_server.sas_token(azure_table.split("/")[2], "rwdl", minutes=-60)
    error = error_of(azure_table, with_sas(azure_server, token))
    assert error.type == "AccessDenied"
    assert token not in error.message
    assert error.retryable is True
    assert "which was valid until" in error.message
    assert SECOND_TRY in error.message


def test_a_container_that_is_missing_is_named(azure_server: AzureServer) -> None:
    error = error_of("abfs://container-that-is-missing/t", azure_server.storage_options)
    assert (error.type, error.retryable) == ("BucketNotFound", False)
    assert "container container-that-is-missing" in error.message
