"""What a job reports when a store refuses it: credentials and rights do not get better by trying again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.azure import AzureServer
from tests.support.servers.s3 import S3Server
from tests.support.tables.small_tables import write_days

from delta_maintenance.contract import ErrorReport, JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def table(s3_server: S3Server, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a table that requests without a signature may read and list."""
    path: Path = tmp_path_factory.mktemp("table") / "t"
    write_days(path)
    bucket = s3_server.make_bucket()
    s3_server.put_tree(path, f"{bucket}/t")
    s3_server.allow_anonymous(bucket, "GetObject", "ListBucket")
    return f"s3://{bucket}/t"


def error_of(table: str, options: dict[str, Any], operation: str = "optimize") -> ErrorReport:
    report = run_job(
        JobSpec(operation, table, "run", engine="local"), JobSite(storage_options=options), SilentProgress()
    )
    assert report.error is not None
    return report.error


@pytest.mark.parametrize(
    ("changes", "kind", "says"),
    [
        ({"secret": "wrong"}, "AccessDenied", "secret key does not belong"),
        ({"key": "nobody"}, "AccessDenied", "does not know the access key"),
        ({"key": None, "secret": None}, "NoCredentials", "Unable to locate credentials"),
        ({"secret": None}, "NoCredentials", "a key without a secret"),
    ],
)
def test_wrong_or_missing_credentials_are_final(
    s3_server: S3Server,
    table: str,
    monkeypatch: pytest.MonkeyPatch,
    changes: dict[str, str | None],
    kind: str,
    says: str,
) -> None:
    # The client asks the services of its cloud for credentials, and waits for their answer.
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    options = {
        key: value for key, value in {**s3_server.storage_options, **changes}.items() if value is not None
    }
    error = error_of(table, options)
    assert (error.type, error.kind, error.retryable) == (kind, "failed", False)
    assert says in error.message
    assert "delta_conn_id" in error.message


@pytest.mark.parametrize("operation", ["optimize", "checkpoint"])
def test_a_table_that_may_be_read_and_not_written_is_final(
    s3_server: S3Server, table: str, operation: str
) -> None:
    error = error_of(table, s3_server.anonymous_options, operation)
    assert (error.type, error.retryable) == ("AccessDenied", False)


def test_a_missing_bucket_is_final(s3_server: S3Server) -> None:
    error = error_of("s3://bucket-that-is-missing/t", s3_server.storage_options)
    assert (error.type, error.retryable) == ("BucketNotFound", False)


def test_a_wrong_key_of_azure_is_final(azure_server: AzureServer, azure_container: str) -> None:
    wrong = azure_server.connection_string.replace(azure_server.key, "A" * 86 + "==")
    options = {**azure_server.storage_options, "connection_string": wrong}
    address = f"abfs://{azure_container}@{azure_server.account}.dfs.core.windows.net/t"
    error = error_of(address, options)
    assert (error.type, error.retryable) == ("AccessDenied", False)
