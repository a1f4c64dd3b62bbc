"""How many requests an operation makes to a store: the table in docs/reference/stores.md, counted."""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.support.servers.azure import AzureServer
from tests.support.servers.gcs import GcsServer
from tests.support.servers.proxy import Proxy, Request, proxied
from tests.support.servers.s3 import S3Server
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_log.runtime import Runtime
from delta_log.storage.opening import open_storage
from delta_log.tail.commit_follower import CommitFollower
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.health.document import health_of
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "stores.md"
KINDS = ("LIST", "GET", "HEAD", "PUT", "DELETE")

Place = tuple[str, dict[str, Any], Proxy]


@contextmanager
def s3(request: pytest.FixtureRequest) -> Iterator[Place]:
    server: S3Server = request.getfixturevalue("s3_server")
    with proxied(server.endpoint) as proxy:
        options = dataclasses.replace(server, endpoint=proxy.endpoint).storage_options
        yield f"s3://{server.make_bucket()}/t", options, proxy


@contextmanager
def gcs(request: pytest.FixtureRequest) -> Iterator[Place]:
    server: GcsServer = request.getfixturevalue("gcs_server")
    with proxied(server.endpoint) as proxy:
        yield (
            f"gs://{server.make_bucket()}/t",
            {**server.storage_options, "endpoint_url": proxy.endpoint},
            proxy,
        )


@contextmanager
def azure(request: pytest.FixtureRequest) -> Iterator[Place]:
    server: AzureServer = request.getfixturevalue("azure_server")
    with proxied(server.endpoint) as proxy:
        options = dataclasses.replace(server, endpoint=proxy.endpoint).storage_options
        yield f"az://{server.make_container()}/t", options, proxy


STORES: dict[str, Callable[[pytest.FixtureRequest], Any]] = {
    "S3": s3,
    "Google Cloud Storage": gcs,
    "Azure": azure,
}


def kind(request: Request) -> str:
    if "list-type" in request.query or request.query.get("comp") == "list":
        return "LIST"
    is_deletion = "delete" in request.query or request.query.get("comp") == "batch"
    return "DELETE" if request.method == "POST" and is_deletion else request.method


@pytest.mark.slow
@pytest.mark.parametrize("store", list(STORES))
def test_an_operation_makes_as_many_requests_as_the_documentation_says(
    store: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    write_days(tmp_path / "t", files=8, days=2)
    with STORES[store](request) as (uri, options, proxy):
        storage = open_storage(uri, options)
        for path in sorted((tmp_path / "t").rglob("*")):
            if path.is_file():
                storage.put(path.relative_to(tmp_path / "t").as_posix(), path.read_bytes())
        storage.require_writable()  # a server is tried out once in a process
        follower = CommitFollower.at_latest(Table(uri, options).storage)
        counted: dict[str, Counter[str]] = {}

        def count(name: str, action: Callable[[], object]) -> None:
            proxy.requests.clear()
            result = action()
            counted[name] = Counter(map(kind, proxy.requests))
            if isinstance(result, JobReport):
                assert result.requests == counted[name].total(), name

        def job(operation: str, *, dry_run: bool = False, **more: Any) -> JobReport:
            spec = JobSpec(operation, uri, "run", more, engine="local", dry_run=dry_run)
            report = run_job(spec, JobSite(storage_options=options), SilentProgress())
            assert report.error is None, report.error
            return report

        count("open the table", lambda: Table(uri, options).snapshot())
        count("a poll of the log without news", follower.poll)
        count("`health`", lambda: health_of(Table(uri, options), uri, HealthOptions(), Runtime()))
        count("`optimize`: 8 files in 2 partitions", lambda: job("optimize"))
        count("`optimize` with nothing to do", lambda: job("optimize"))
        count("`checkpoint`", lambda: job("checkpoint"))
        vacuum: dict[str, Any] = {"retain_hours": 0, "retention_check": False}
        count("`vacuum --dry-run`", lambda: job("vacuum", dry_run=True, **vacuum))
        count("`vacuum`: 8 files", lambda: job("vacuum", **vacuum))
    assert all(set(found) <= set(KINDS) for found in counted.values())
    assert {name: tuple(found[one] for one in KINDS) for name, found in counted.items()} == documented(store)


def documented(store: str) -> dict[str, tuple[int, ...]]:
    """The table in the documentation; deletions on Google Cloud Storage have a column of their own."""
    rows = re.findall(
        r"^\| (.+?) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", DOCS.read_text(), re.MULTILINE
    )
    deletions = 6 if store == "Google Cloud Storage" else 5
    return {row[0]: (*map(int, row[1:5]), int(row[deletions])) for row in rows}
