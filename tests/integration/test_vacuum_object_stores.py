"""VACUUM of tables on object stores: listed, planned, deleted and recorded there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from tests.servers.azure import AzureServer
from tests.servers.gcs import GcsServer
from tests.servers.s3 import S3Server
from tests.small_tables import write_days

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
    assert report.error is None, report.error["message"]
    return report


def keys(place: Place) -> set[str]:
    pages = Table(*place).storage.list_tree(lambda found: [key for key in found if key != "_delta_log"])
    return {key for page in pages for key in page.keys}


@pytest.mark.parametrize("store", ["s3_place", "gcs_place", "azure_place"])
def test_what_nothing_needs_goes_from_an_object_store(
    store: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    place: Place = request.getfixturevalue(store)
    write_days(tmp_path / "table", files=8)
    DeltaTable(str(tmp_path / "table")).optimize.compact()
    storage = Table(*place).storage
    for path in sorted(path for path in (tmp_path / "table").rglob("*") if path.is_file()):
        storage.put(path.relative_to(tmp_path / "table").as_posix(), path.read_bytes())
    kept = (
        {"_hidden/x"} if store == "s3_place" else {"_hidden/x", "day=2024-01-01//odd"}
    )  # that server has no such names
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
