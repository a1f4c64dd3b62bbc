"""Different writers on one table at once; the long form is `python -m tests.campaigns.mixed_writers`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.support.environment.patience import PATIENCE_SECONDS
from tests.support.mixed_writers.parts import single_driver_commit
from tests.support.mixed_writers.scenarios import SCENARIOS, Site
from tests.support.servers.dynamodb import DynamoDBServer, running_dynamodb
from tests.support.servers.s3 import S3Server

from delta_log.log.file_names import commit_key
from delta_log.storage.opening import open_storage


@pytest.fixture(scope="module")
def dynamodb(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DynamoDBServer]:
    with running_dynamodb(tmp_path_factory.mktemp("dynamodb")) as server:
        yield server


@pytest.fixture
def site(tmp_path: Path, request: pytest.FixtureRequest) -> Site:
    """Servers start when a fleet asks for them."""

    def s3() -> S3Server:
        server: S3Server = request.getfixturevalue("s3_server")
        return server

    def locks() -> DynamoDBServer:
        server: DynamoDBServer = request.getfixturevalue("dynamodb")
        return server

    return Site(tmp_path, s3, locks)


@pytest.mark.parametrize(
    ("fleet", "commits"),
    [
        ("local", 4),
        # Until each has deleted, updated and merged.
        pytest.param("local-rewrites", 6, marks=pytest.mark.slow),
        ("s3", 3),
        pytest.param("s3-half-lock", 3, marks=pytest.mark.slow),
        pytest.param("s3-lock-remap", 2, marks=[pytest.mark.spark, pytest.mark.slow]),
    ],
)
def test_no_row_is_lost_and_no_compaction_to_appends_and_every_version_is_what_was_committed(
    fleet: str, commits: int, site: Site
) -> None:
    result = SCENARIOS[fleet](site, commits, 2 * PATIENCE_SECONDS)
    assert min(result.commits.values()) >= commits
    assert set(result.versions_read.values()) == {result.versions}
    print("\n".join(result.lines()))  # noqa: T201 - for `pytest -s`


@pytest.mark.slow
def test_delta_spark_without_a_lock_overwrites_the_commit_of_another_writer(
    s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> None:
    """Nothing that we do can prevent it: its store looks, and then it writes. The reason for the lock."""
    key = commit_key(1)
    storage = open_storage(f"s3://{s3_bucket}/table", s3_server.storage_options)
    with single_driver_commit(f"s3a://{s3_bucket}/table/{key}", s3_server.spark_conf, tmp_path) as theirs:
        assert theirs.stdin is not None
        assert theirs.stdout is not None
        assert theirs.stdout.readline() == "looked\n"
        assert storage.put_if_absent(key, b"ours") is True
        told, _ = theirs.communicate("\n")
    assert told == "committed\n"
    assert storage.read(key) == b"delta-spark\n"
