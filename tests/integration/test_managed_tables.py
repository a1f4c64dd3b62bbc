"""Tables whose commits Unity Catalog ratifies: maintained by name, beside a writer that goes through the same catalog."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from tests.support.servers.s3 import S3Server
from tests.support.tables.managed_tables import (
    FIRST,
    NAME,
    OtherWriter,
    commit_path,
    ids_of_delta_rs,
    unmanaged_copy,
    write_managed,
)

from airflow_delta.hooks.watched_store import watched_store
from airflow_delta.operators.optimize import DeltaOptimizeOperator
from airflow_delta.sensors import DeltaTableVersionSensor
from delta_log import Table
from delta_log.storage.managed.maintenance import DATA_CLEANUP, DATA_REORGANIZATION, METADATA_CLEANUP
from delta_log.testing.fake_catalogs import FakeUnityCatalog
from delta_maintenance.cli.main import main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ADDRESS = f"uc://{NAME}"
COMMANDS = (
    "health",
    "optimize",
    "purge",
    "analyze",
    "repair",
    "checkpoint",
    "vacuum",
    "compact-log",
    "cleanup-log",
)


@dataclass(frozen=True)
class Managed:
    """A managed table with two ratified commits that nobody has published, on a disk or on S3.

    :ivar download: function that returns a directory with the table's files as they are now.
    """

    catalog: FakeUnityCatalog
    options: dict[str, Any]
    ids: list[int]
    download: Callable[[], Path]

    @property
    def table(self) -> Table:
        return Table(ADDRESS, self.options)

    def require_unchanged_rows(self) -> None:
        assert sorted(self.table.snapshot().to_arrow()["id"].to_pylist()) == self.ids


@pytest.fixture
def catalog(tmp_path: Path) -> Iterator[FakeUnityCatalog]:
    write_managed(tmp_path / "events")
    with FakeUnityCatalog.running() as fake:
        assert isinstance(fake, FakeUnityCatalog)
        fake.manage(NAME, f"file://{tmp_path}/events", FIRST)
        other = OtherWriter(tmp_path / "events", fake)
        other.append(10_000)
        other.append(10_001)
        yield fake


@pytest.fixture(params=["disk", "s3"])
def managed(request: pytest.FixtureRequest, catalog: FakeUnityCatalog, tmp_path: Path) -> Managed:
    options: dict[str, Any] = {"unity": catalog.option}
    ids = [*range(600), 10_000, 10_001]
    if request.param == "disk":
        return Managed(catalog, options, ids, lambda: tmp_path / "events")
    server: S3Server = request.getfixturevalue("s3_server")
    place = f"{request.getfixturevalue('s3_bucket')}/t"
    server.put_tree(tmp_path / "events", place)
    catalog.tables[tuple(NAME.split("."))].location = f"s3://{place}"
    catalog.grants = lambda _: _session(server, place.partition("/")[0])
    server.wait_for_roles()

    def download() -> Path:
        for key in server.keys(place):
            path = tmp_path / "downloaded" / key.removeprefix(f"{place}/")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(server.read(key))
        return tmp_path / "downloaded"

    settings = {"endpoint_url": server.endpoint, "client_kwargs": {"region_name": "us-east-1"}}
    return Managed(catalog, {**options, **settings}, ids, download)


def _session(server: S3Server, bucket: str) -> dict[str, str]:
    session = server.session(*server.everything_in(bucket))
    return {
        "access_key_id": session["key"],
        "secret_access_key": session["secret"],
        "session_token": session["token"],
    }


def run(command: str, options: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> tuple[int, Any]:
    name, *more = command.split()
    code = main([name, ADDRESS, *more, "--storage-options", json.dumps(options), "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_a_managed_table_is_maintained_by_its_name(
    managed: Managed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    managed.require_unchanged_rows()
    for command in COMMANDS:
        code, found = run(command, managed.options, capsys)
        assert code == 0, (command, found)
        managed.require_unchanged_rows()
    assert managed.table.snapshot().num_files == 2
    catalog = managed.catalog.managed(NAME)
    assert catalog.commits == {}
    here, latest = managed.download(), catalog.latest_version
    assert all(commit_path(here, version).exists() for version in range(FIRST, latest + 1))
    assert not commit_path(here, latest + 1).exists()
    assert ids_of_delta_rs(unmanaged_copy(here, tmp_path / "copy")) == managed.ids


@pytest.mark.spark
@pytest.mark.parametrize("managed", ["disk"], indirect=True)
def test_delta_spark_reads_what_is_published(
    managed: Managed, tmp_path: Path, capsys: pytest.CaptureFixture[str], delta_spark_session: SparkSession
) -> None:
    assert run("optimize", managed.options, capsys)[0] == 0
    copy = unmanaged_copy(managed.download(), tmp_path / "copy")
    rows = delta_spark_session.read.format("delta").load(copy).select("id").collect()
    assert sorted(row.id for row in rows) == managed.ids


@pytest.mark.parametrize("managed", ["disk"], indirect=True)
def test_only_permitted_maintenance_is_done(
    managed: Managed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    needed = {
        "optimize": DATA_REORGANIZATION,
        "purge": DATA_REORGANIZATION,
        "analyze": DATA_REORGANIZATION,
        "generate": DATA_REORGANIZATION,
        "vacuum --dry-run": DATA_CLEANUP,
        "vacuum": DATA_CLEANUP,
        "cleanup-log": METADATA_CLEANUP,
    }
    for permitted in (None, (), (DATA_CLEANUP, "SOMETHING_NEW")):
        managed.catalog.managed(NAME).permitted = permitted
        before = {path: path.stat().st_mtime_ns for path in (tmp_path / "events").rglob("*")}
        for command, maintenance in needed.items():
            if maintenance not in (permitted or ()):
                code, found = run(command, managed.options, capsys)
                assert (code, found["error"]["type"]) == (2, "MaintenanceForbidden"), command
                assert maintenance in found["error"]["message"]
        assert {path: path.stat().st_mtime_ns for path in (tmp_path / "events").rglob("*")} == before
    code, found = run("drop-feature --feature inCommitTimestamp", managed.options, capsys)
    assert (code, found["error"]["type"]) == (2, "UnsupportedFeature")
    managed.catalog.managed(NAME).permitted = None
    for command in ("health", "checkpoint", "compact-log"):
        assert run(command, managed.options, capsys)[0] == 0, command
    owned = {**managed.options, "unity": {**managed.catalog.option, "owner_permits_maintenance": True}}
    assert run("optimize", owned, capsys)[0] == 0
    managed.require_unchanged_rows()


@pytest.mark.parametrize("managed", ["disk"], indirect=True)
def test_log_cleanup_takes_staged_commits_with_their_versions(
    managed: Managed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "events" / "_delta_log"
    for command in (
        "checkpoint",
        "optimize",
        "vacuum",
    ):  # the checkpoint is of the last version that is older than the retention
        assert run(command, managed.options, capsys)[0] == 0
    anchor = FIRST + 2
    staged = {int(path.name[:20]) for path in (log / "_staged_commits").iterdir()}
    assert anchor - 1 in staged
    code, found = run("cleanup-log", managed.options, capsys)
    assert (code, found["plan"]["anchorVersion"]) == (0, anchor)
    left = {int(path.name[:20]) for path in (log / "_staged_commits").iterdir()}
    assert left == {version for version in staged if version >= anchor}
    assert min(int(path.name[:20]) for path in log.glob("*.json")) == anchor
    managed.require_unchanged_rows()


@pytest.mark.parametrize("managed", ["disk"], indirect=True)
def test_rows_expire_and_come_back(managed: Managed, capsys: pytest.CaptureFixture[str]) -> None:
    version = managed.table.snapshot().version
    code, found = run("expire --column day --older-than 1d", managed.options, capsys)
    assert code == 0, found
    assert managed.table.snapshot().to_arrow().num_rows == 0
    code, found = run(f"restore --to-version {version}", managed.options, capsys)
    assert code == 0, found
    managed.require_unchanged_rows()
    # What hands the table to its catalog stays.
    code, found = run(f"restore --to-version {FIRST - 1}", managed.options, capsys)
    assert (code, found["plan"]["changesMetadata"], found["plan"]["changesProtocol"]) == (0, False, False)
    assert sorted(managed.table.snapshot().to_arrow()["id"].to_pylist()) == list(range(600))


@pytest.mark.parametrize("managed", ["disk"], indirect=True)
def test_sensors_see_what_is_ratified_and_operators_commit_through_the_catalog(
    managed: Managed,
    tmp_path: Path,
    make_context: Callable[..., Any],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    catalog = managed.catalog
    connection = {"conn_type": "unity_catalog", "host": catalog.uri, "password": catalog.token, "extra": {}}
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(connection))
    watched_store.cache_clear()
    ratified = catalog.managed(NAME).latest_version
    sensor = DeltaTableVersionSensor(task_id="s", table=ADDRESS, delta_conn_id="lake", start_from=ratified)
    seen = sensor.look(make_context(map_index=-1, xcom_pull=lambda **_: []))
    assert seen is not None
    assert seen["status"] == "found"
    assert str(ratified) in repr(seen)
    assert not commit_path(tmp_path / "events", ratified).exists()
    operator = DeltaOptimizeOperator(task_id="o", engine="local", table=ADDRESS, delta_conn_id="lake")
    report = operator.execute(make_context())
    assert (report["status"], catalog.managed(NAME).latest_version) == ("committed", ratified + 1)
    managed.require_unchanged_rows()


@pytest.mark.parametrize("managed", ["disk"], indirect=True)
def test_a_fleet_maintains_managed_tables(
    managed: Managed, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    policy = {
        "version": 1,
        "tables": {"include": ["uc://prod.*"]},
        "healthy": {"small_files": 0},
        "trust": {"new_table": "auto"},
        "disruption": {"quiet": "0m"},
    }
    (tmp_path / "policy.yaml").write_text(json.dumps(policy))
    command = ["fleet", "run", str(tmp_path / "policy.yaml"), "--state", str(tmp_path / "state"), "--json"]
    assert main([*command, "--storage-options", json.dumps(managed.options)]) == 0
    assert ADDRESS in capsys.readouterr().out
    assert managed.table.snapshot().num_files == 2
    managed.require_unchanged_rows()
