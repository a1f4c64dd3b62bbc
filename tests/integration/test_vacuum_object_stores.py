"""VACUUM of tables on object stores: listed, planned, deleted and recorded there."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.support.servers.azure import AzureServer
from tests.support.servers.gcs import GcsServer
from tests.support.servers.s3 import S3Server
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress

Place = tuple[str, dict[str, Any]]


@pytest.fixture
def s3_place(s3_server: S3Server, s3_bucket: str) -> Place:
    return f"s3://{s3_bucket}/lake/events", s3_server.storage_options


@pytest.fixture
def gcs_place(gcs_server: GcsServer, gcs_bucket: str) -> Place:
    return f"gs://{gcs_bucket}/lake/events", gcs_server.storage_options


@pytest.fixture
def azure_place(azure_server: AzureServer, azure_container: str) -> Place:
    return f"az://{azure_container}/lake/events", azure_server.storage_options


def vacuum(place: Place, *, dry_run: bool = False, **options: Any) -> JobReport:
    uri, storage_options = place
    spec = JobSpec(
        "vacuum", uri, "test-run", {"retain_hours": 0, "retention_check": False, **options}, dry_run=dry_run
    )
    report = run_job(spec, JobSite(storage_options), SilentProgress())
    assert report.error is None, report.error.message
    return report


def keys(place: Place) -> set[str]:
    pages = Table(*place).storage.list_tree(lambda found: [key for key in found if key != "_delta_log"])
    return {key for page in pages for key in page.names()}


@pytest.mark.parametrize(
    "store", ["s3_place", pytest.param("gcs_place", marks=pytest.mark.slow), "azure_place"]
)
def test_what_nothing_needs_goes_from_an_object_store(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place: Place = request.getfixturevalue(store)
    write_days(tmp_path / "table", files=8)
    DeltaTable(str(tmp_path / "table")).optimize.compact()
    storage = Table(*place).storage
    for path in sorted(path for path in (tmp_path / "table").rglob("*") if path.is_file()):
        storage.put(path.relative_to(tmp_path / "table").as_posix(), path.read_bytes())
    kept = {"_hidden/x"}
    for name in ("orphan", "day=2024-01-01/orphan", "p=a%3Ab/orphan", *kept):
        storage.put(name, b"old")
    time.sleep(1.1)  # some stores tell whole seconds
    snapshot = Table(*place).snapshot()
    live = set(snapshot.files(["key"]).column("key").to_pylist())
    planned = vacuum(place, dry_run=True)
    assert planned.plan is not None
    lite = vacuum(place, dry_run=True, lite=True)
    assert lite.plan is not None
    assert (planned.plan["numFilesToDelete"], lite.plan["numFilesToDelete"]) == (11, 8)
    report = vacuum(place)
    assert report.metrics["numDeletedFiles"] == 11
    assert keys(place) == live | {"_hidden/x"}
    assert all(storage.head(key) is not None for key in kept)
    assert Table(*place).snapshot().to_arrow().num_rows == snapshot.to_arrow().num_rows == 800
    assert [commit["operation"] for commit in Table(*place).history(2)] == ["VACUUM END", "VACUUM START"]


@pytest.mark.slow
@pytest.mark.parametrize("store", ["gcs", "azure"])
def test_an_object_that_the_client_cannot_name_is_named_and_nothing_is_deleted(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place: Place = request.getfixturevalue(f"{store}_place")
    write_days(tmp_path / "table", files=2)
    storage = Table(*place).storage
    for path in sorted(path for path in (tmp_path / "table").rglob("*") if path.is_file()):
        storage.put(path.relative_to(tmp_path / "table").as_posix(), path.read_bytes())
    storage.put("orphan", b"old")
    server: AzureServer | GcsServer = request.getfixturevalue(f"{store}_server")
    server.put(place[0].split("/")[2], "lake/events/day=2024-01-01//odd", b"old")
    report = run_job(JobSpec("vacuum", place[0], "run"), JobSite(place[1]), SilentProgress())
    assert report.error is not None
    assert "lake/events/day=2024-01-01//" in report.error.message
    assert storage.head("orphan") is not None


@pytest.mark.slow
@pytest.mark.parametrize("store", ["s3_place", "gcs_place", "azure_place"])
def test_what_goes_into_quarantine_on_an_object_store_comes_back_whole(
    store: str, request: pytest.FixtureRequest
) -> None:
    place: Place = request.getfixturevalue(store)
    storage = Table(*place).storage
    metadata = {
        "id": "t",
        "format": {"provider": "parquet"},
        "schemaString": '{"type": "struct", "fields": []}',
        "partitionColumns": [],
        "configuration": {},
    }
    actions = [{"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}}, {"metaData": metadata}]
    storage.put(f"_delta_log/{0:020d}.json", "\n".join(map(json.dumps, actions)).encode())
    orphans = {"orphan": b"1", "a b/ü+p=a%3Ab": b"22", "c/large": bytes(70 << 10)}
    for key, content in orphans.items():
        storage.put(key, content)
    time.sleep(1.1)  # some stores tell whole seconds
    taken = vacuum(place, quarantine=True)
    assert taken.metrics["numDeletedFiles"] == 3
    assert not any(storage.head(key) for key in orphans)
    kept = vacuum(place, purge_quarantine_hours=1)
    assert (kept.status, kept.metrics["numPurgedFiles"]) == ("nothing_to_do", 0)
    spec = JobSpec("restore-quarantine", place[0], "test-run")
    report = run_job(spec, JobSite(place[1]), SilentProgress())
    assert report.error is None, report.error
    assert {key: storage.read(key) for key in orphans} == orphans
    time.sleep(1.1)
    assert vacuum(place, quarantine=True).metrics["numDeletedFiles"] == 3
    purged = vacuum(place, purge_quarantine_hours=0)
    assert (purged.status, purged.metrics["numPurgedFiles"]) == ("cleaned", 3)
    assert keys(place) == set()


@pytest.mark.slow
def test_rights_that_cover_half_of_the_files_are_told_with_what_is_gone_and_what_is_left(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    write_days(tmp_path / "table", files=8)
    DeltaTable(str(tmp_path / "table")).optimize.compact()
    place = f"s3://{s3_bucket}/lake", s3_server.storage_options
    storage = Table(*place).storage
    for path in (path for path in (tmp_path / "table").rglob("*") if path.is_file()):
        storage.put(path.relative_to(tmp_path / "table").as_posix(), path.read_bytes())
    time.sleep(1.1)  # times are told in whole seconds
    before = keys(place)
    bucket = f"arn:aws:s3:::{s3_bucket}"
    may = {
        "GetBucketLocation": [bucket],
        "ListBucket": [bucket],
        "GetObject": [f"{bucket}/*"],
        "PutObject": [f"{bucket}/*"],
        "DeleteObject": [f"{bucket}/lake/day=2024-01-01/*"],
    }
    statements = [
        {"Effect": "Allow", "Principal": {"AWS": ["*"]}, "Action": [f"s3:{action}"], "Resource": resources}
        for action, resources in may.items()
    ]
    policy = json.dumps({"Version": "2012-10-17", "Statement": statements})
    s3_server.client().put_bucket_policy(Bucket=s3_bucket, Policy=policy)
    spec = JobSpec("vacuum", place[0], "test-run", {"retain_hours": 0, "retention_check": False})
    report = run_job(spec, JobSite(s3_server.anonymous_options), SilentProgress())
    assert report.error is not None
    assert report.error.type == "VacuumIncomplete"
    for words in ("4 files", "were deleted, 4 are left", "AccessDenied", "s3:DeleteObject"):
        assert words in report.error.message
    gone = before - keys(place)
    assert {key.partition("/")[0] for key in gone} == {"day=2024-01-01"}
    assert len(gone) == 4
    assert Table(*place).snapshot().to_arrow().num_rows == 800
    ended = next(iter(Table(*place).history(1)))
    assert (ended["operation"], ended["operationParameters"]["status"]) == ("VACUUM END", "FAILED")
    assert vacuum(place).metrics["numDeletedFiles"] == 4
