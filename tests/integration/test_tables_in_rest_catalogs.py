"""Tables by their names in Unity Catalog, Polaris, Lakekeeper and Gravitino, which the test serves itself.

On a disk nothing has to be signed. On S3, Unity Catalog and Lakekeeper give out sessions of the real server, which end after seconds:
a proxy before the server refuses what was signed later.
"""

from __future__ import annotations

import json
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from tests.support.checks.secret_search import holds
from tests.support.servers.proxy import Answer, Proxy, Request, proxied, s3_error
from tests.support.servers.s3 import S3Server
from tests.support.servers.spark_standalone import SparkCluster
from tests.support.tables.small_tables import write_days

from airflow_delta.hooks.delta_table import DeltaTableHook
from airflow_delta.hooks.watched_store import WatchedStore, watched_store
from airflow_delta.operators.doctor import DeltaDoctorOperator
from airflow_delta.operators.optimize import DeltaOptimizeOperator
from airflow_delta.operators.table_health import DeltaTableHealthOperator
from airflow_delta.operators.vacuum import DeltaVacuumOperator
from airflow_delta.sensors import DeltaTableVersionSensor
from delta_log import Table
from delta_log.storage.schemes import CATALOGS
from delta_log.testing.fake_catalogs import FAKE_CATALOGS, FakeCatalog, FakeLakekeeper, FakeUnityCatalog
from delta_maintenance.cli.main import main
from delta_maintenance.contract import JobSpec
from delta_maintenance.fleet.discovery import discover
from delta_maintenance.fleet.survey import survey
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress

MakeContext = Callable[..., Any]
TYPES = {"uc": "unity_catalog", "polaris": "polaris", "lakekeeper": "lakekeeper", "gravitino": "gravitino"}


@pytest.fixture(params=FAKE_CATALOGS, ids=lambda kind: kind.scheme)
def catalog(request: pytest.FixtureRequest) -> Iterator[FakeCatalog]:
    with request.param.running() as fake:
        yield fake


@pytest.fixture
def table(tmp_path: Path) -> Path:
    write_days(tmp_path / "events")
    return tmp_path / "events"


def connect(catalog: FakeCatalog, monkeypatch: pytest.MonkeyPatch, **extra: Any) -> None:
    """Make the connection `lake`, of the catalog's own type."""
    option = {name: value for name, value in catalog.option.items() if name not in ("uri", "token")}
    value = {
        "conn_type": TYPES[catalog.scheme],
        "host": catalog.uri,
        "password": catalog.token,
        "extra": {**option, **extra},
    }
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps(value))


def options_of(catalog: FakeCatalog) -> dict[str, Any]:
    return {CATALOGS[catalog.scheme].option: catalog.option}


def test_every_command_takes_a_name(
    catalog: FakeCatalog, table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = catalog.register("prod.sales.events", f"file://{table}")
    before = Table(str(table)).snapshot().to_arrow().sort_by("id")
    options = ["--storage-options", json.dumps(options_of(catalog))]
    for command in (
        "inspect",
        "history",
        "health",
        "optimize",
        "purge",
        "vacuum",
        "checkpoint",
        "compact-log",
        "cleanup-log",
    ):
        assert main([command, name, *options, "--json"]) == 0, command
        found = json.loads(capsys.readouterr().out)
        assert (found["table"], found["location"]) == (name, str(table)), command
    assert main(["doctor", "--table", name, *options, "--json"]) == 0
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["catalog"]["message"] == f"{name} is at {table}"
    assert checks["table"]["status"] == "ok"
    assert checks["store.client"]["message"] == "the catalog is asked without a client library"
    snapshot = Table(name, options_of(catalog)).snapshot()
    assert snapshot.num_files < before.num_rows
    assert snapshot.to_arrow().sort_by("id").equals(before)


def test_operators_sensors_and_watchers_take_a_name(
    catalog: FakeCatalog, table: Path, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(catalog, monkeypatch)
    name = catalog.register("prod.sales.events", f"file://{table}")
    common = {"table": name, "delta_conn_id": "lake"}
    report = DeltaOptimizeOperator(task_id="o", engine="local", **common).execute(make_context())
    assert (report["status"], report["table"], report["location"]) == ("committed", name, str(table))
    vacuumed = DeltaVacuumOperator(task_id="v", engine="local", **common).execute(make_context())
    assert vacuumed["status"] in ("committed", "nothing_to_do", "done"), vacuumed
    document = DeltaTableHealthOperator(task_id="h", **common).execute(make_context())
    assert (document["table"], document["location"]) == (name, str(table))
    assert DeltaDoctorOperator(task_id="d", **common).execute(make_context())["status"] != "failure"
    watched_store.cache_clear()
    sensor = DeltaTableVersionSensor(task_id="s", table=name, delta_conn_id="lake", start_from="earliest")
    seen = sensor.look(make_context(map_index=-1, xcom_pull=lambda **_: []))
    assert seen is not None
    assert seen["status"] == "found"
    assert WatchedStore("lake").open(name).uri == str(table)


def test_the_allowed_roots_hold_for_the_place(
    catalog: FakeCatalog,
    table: Path,
    tmp_path: Path,
    make_context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    connect(catalog, monkeypatch, allowed_roots=[f"{tmp_path}/events"])
    assert DeltaTableHook("lake").locate(catalog.register("prod.sales.events", f"file://{table}")) == str(
        table
    )
    outside = catalog.register("prod.sales.other", f"file://{tmp_path}/other")
    for task in (
        DeltaOptimizeOperator(task_id="o", table=outside, delta_conn_id="lake", engine="local"),
        DeltaTableHealthOperator(task_id="h", table=outside, delta_conn_id="lake"),
    ):
        with pytest.raises(AirflowFailException, match=f"{tmp_path}/other is outside of the allowed roots"):
            task.execute(make_context())


def test_the_tables_of_a_catalog_are_found(catalog: FakeCatalog, table: Path) -> None:
    one = catalog.register("prod.sales.events", f"file://{table}")
    two = catalog.register("prod.web.clicks", "s3://lake/clicks")
    three = catalog.register("prod.web.views", "s3://lake/views")
    catalog.register("prod.web.files", "s3://lake/files", "PARQUET")
    catalog.register("other.web.events", "s3://lake/others")
    scheme, options = catalog.scheme, options_of(catalog)

    def names(*include: str, exclude: tuple[str, ...] = ()) -> set[str]:
        found = discover(include, exclude, options)
        assert found.unlisted == ()
        return {table.table for table in found.tables}

    assert names(f"{scheme}://prod.*") == {one, two, three}
    assert names(f"{scheme}://prod.web.*") == {two, three}
    assert names(f"{scheme}://prod.*.v*", one) == {one, three}
    assert names(f"{scheme}://prod.*", exclude=(f"{scheme}://prod.web.*",)) == {one}
    (unread,) = discover([f"{scheme}://absent.*"], (), options).unlisted
    assert unread.error.type == "NotInCatalog"


def test_a_fleet_is_maintained_by_its_namespace(
    catalog: FakeCatalog, table: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    name = catalog.register("prod.sales.events", f"file://{table}")
    before = Table(str(table)).snapshot().to_arrow().sort_by("id")
    policy = {
        "version": 1,
        "tables": {"include": [f"{catalog.scheme}://prod.*"]},
        "healthy": {"small_files": 0},
        "trust": {"new_table": "auto"},
        # A partition that has just been written is left alone otherwise.
        "disruption": {"quiet": "0m"},
    }
    (tmp_path / "policy.yaml").write_text(json.dumps(policy))
    command = ["fleet", "run", str(tmp_path / "policy.yaml"), "--state", str(tmp_path / "state"), "--json"]
    assert main([*command, "--storage-options", json.dumps(options_of(catalog))]) == 0
    report = json.loads(capsys.readouterr().out)
    assert name in json.dumps(report)
    after = Table(str(table)).snapshot()
    assert after.num_files == 2
    assert after.to_arrow().sort_by("id").equals(before)


class ShortGrants:
    """Sessions of the S3 server that end after seconds, and the rule of a proxy that refuses what was signed later.

    :param faults: faults of the catalog: after each session the next request breaks.
    """

    def __init__(self, server: S3Server, seconds: float, faults: list[float | None] | None = None) -> None:
        self._server, self._seconds, self._faults = server, seconds, faults
        self._lock = threading.Lock()
        self.ends: dict[str, float] = {}
        self.secrets: list[str] = []
        self.refused: list[Request] = []
        self.waits: list[str] = []

    def grant(self, location: str) -> Mapping[str, str]:
        bucket = location.partition("://")[2].partition("/")[0]
        session = self._server.session(*self._server.everything_in(bucket))
        with self._lock:
            self.ends[session["key"]] = time.time() + self._seconds
            self.secrets += [session["secret"], session["token"]]
            if self._faults is not None:
                self._faults.append(None)
        return {
            "access_key_id": session["key"],
            "secret_access_key": session["secret"],
            "session_token": session["token"],
        }

    def __call__(self, request: Request) -> Answer | None:
        """Wait at the first read and at the first write of a data file until all sessions have ended."""
        key = request.headers.get("authorization", "").partition("Credential=")[2].partition("/")[0]
        signed = datetime.strptime(request.headers["x-amz-date"], "%Y%m%dT%H%M%SZ").replace(tzinfo=UTC)
        if signed.timestamp() > self.ends.get(key, 0):
            self.refused.append(request)
            return s3_error(400, "ExpiredToken")
        is_data = request.path.endswith(".parquet") and "_delta_log" not in request.path
        if is_data and request.method in ("GET", "PUT") and request.method not in self.waits:
            self.waits.append(request.method)
            time.sleep(max(0.0, max(self.ends.values()) + 1 - time.time()))
        return None


@dataclass(frozen=True)
class Lake:
    """A table with two bins on S3, known to a catalog that gives out credentials."""

    catalog: FakeCatalog
    name: str
    server: S3Server
    location: str

    @property
    def place(self) -> str:
        return self.location.removeprefix("s3://")

    @property
    def options(self) -> dict[str, Any]:
        """Storage options without an identity for the store."""
        return {**options_of(self.catalog), **settings_of(self.server)}

    def table(self) -> Table:
        """The table, as the owner of the server opens it."""
        return Table(self.location, self.server.storage_options)

    def ids(self) -> list[int]:
        return sorted(self.table().snapshot().to_arrow().column("id").to_pylist())


@pytest.fixture(params=[FakeUnityCatalog, FakeLakekeeper], ids=lambda kind: kind.scheme)
def lake(
    request: pytest.FixtureRequest, s3_server: S3Server, s3_bucket: str, tmp_path: Path
) -> Iterator[Lake]:
    write_days(tmp_path / "t", files=4)
    s3_server.put_tree(tmp_path / "t", f"{s3_bucket}/t")
    s3_server.wait_for_roles()
    with request.param.running() as fake:
        fake.grants = ShortGrants(s3_server, 900).grant
        location = f"s3://{s3_bucket}/t"
        yield Lake(fake, fake.register("prod.sales.events", location), s3_server, location)


def settings_of(server: Proxy | S3Server) -> dict[str, Any]:
    """Options that say where the store is, and not who asks."""
    return {"endpoint_url": server.endpoint, "client_kwargs": {"region_name": "us-east-1"}}


def test_a_table_on_s3_is_maintained_with_credentials_of_the_catalog_alone(
    lake: Lake,
    make_context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    grants = ShortGrants(lake.server, 900)
    lake.catalog.grants = grants.grant
    connect(lake.catalog, monkeypatch, **settings_of(lake.server))
    before, pushed = lake.ids(), list[Any]()
    context = make_context(try_number=1)
    context["ti"].xcom_push = lambda key, value: pushed.append((key, value))
    caplog.set_level(logging.DEBUG)
    # The client of the test, which makes the sessions, tells of them.
    caplog.set_level(logging.INFO, "botocore")
    common = {"table": lake.name, "delta_conn_id": "lake"}
    report = DeltaOptimizeOperator(task_id="o", engine="local", **common).execute(context)
    assert (report["status"], report["location"]) == ("committed", lake.location)
    doctor = DeltaDoctorOperator(task_id="d", **common).execute(make_context())
    opened = next(check for check in doctor["checks"] if check["name"] == "store.open")
    assert f"the credentials that a catalog gave for {lake.name}" in opened["message"]
    store = WatchedStore("lake")
    assert store.open(lake.name) is store.open(lake.name)
    assert lake.ids() == before
    kept = [context["task_state_store"].get(key) for key in ("delta_table_location", "delta_run_identity")]
    said = repr((report, doctor, pushed, kept, caplog.text, *capfd.readouterr())).encode()
    log = [lake.server.read(key) for key in lake.server.keys(f"{lake.place}/_delta_log")]
    assert grants.secrets
    for secret in (lake.catalog.token, *grants.secrets):
        assert not any(holds(content, secret) for content in (said, *log))


def test_a_fleet_is_surveyed_with_credentials_of_the_catalog(lake: Lake) -> None:
    found = discover([f"{lake.catalog.scheme}://prod.*"], (), lake.options)
    read = survey(found.tables, lambda *_: HealthOptions(), storage_options=lake.options)
    assert read.unread == ()
    assert [table.table for table in read.tables] == [lake.name]


def test_a_refused_right_is_told_and_nothing_is_written(lake: Lake) -> None:
    lake.catalog.revoked.add("prod.sales.events")
    version = lake.table().snapshot().version
    report = run_job(JobSpec("optimize", lake.name, "run"), JobSite(lake.options), SilentProgress())
    assert report.error is not None
    assert (report.error.type, report.error.retryable) == ("AccessDenied", False)
    assert "denied access to the given token" in report.error.message
    assert lake.table().snapshot().version == version


def test_a_driver_on_a_cluster_is_refused_before_anything_is_submitted(
    lake: Lake, make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    connect(lake.catalog, monkeypatch, **settings_of(lake.server))
    spark = {"conn_type": "spark", "host": "spark://none:7077", "extra": {"deploy-mode": "cluster"}}
    monkeypatch.setenv("AIRFLOW_CONN_SPARK_LAKE", json.dumps(spark))
    operator = DeltaOptimizeOperator(
        task_id="o", table=lake.name, delta_conn_id="lake", engine="spark", spark_conn_id="spark_lake"
    )
    with pytest.raises(
        AirflowException, match="the token for the catalog would have to be put where others can read it"
    ):
        operator.execute(make_context())


def test_other_places_are_opened_with_the_options_of_the_connection(lake: Lake) -> None:
    table = Table(lake.name, {**options_of(lake.catalog), **lake.server.storage_options})
    lake.catalog.is_down = True
    elsewhere = f"{lake.location}-elsewhere"
    assert list(table.storage_at(elsewhere).list_from("")) == []
    assert table.storage_at(elsewhere).uri == elsewhere
    assert table.storage_at(f"{lake.location}/_maintenance").uri == f"{lake.location}/_maintenance"


#: Life of the credentials that a catalog gives out. A job that meets two ends of them takes twice as long at least.
_SECONDS = float(os.environ.get("SESSION_SECONDS", "12"))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["local", pytest.param("spark", marks=pytest.mark.spark)])
def test_a_job_outlives_its_credentials_and_an_outage_of_the_catalog(
    engine: str,
    lake: Lake,
    make_context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    before = lake.ids()
    conf: dict[str, Any] = {}
    if engine == "spark":
        cluster: SparkCluster = request.getfixturevalue("spark_cluster")
        spark = {"conn_type": "spark", "host": cluster.master}
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_LAKE", json.dumps(spark))
        conf = {"spark_conn_id": "spark_lake", "spark_conf": SparkCluster.conf}
    grants = ShortGrants(lake.server, _SECONDS, lake.catalog.faults)
    lake.catalog.grants, lake.catalog.life_seconds = grants.grant, _SECONDS
    with proxied(lake.server.endpoint) as proxy:
        proxy.rule = grants
        connect(lake.catalog, monkeypatch, **settings_of(proxy))
        operator = DeltaOptimizeOperator(
            task_id="o", table=lake.name, delta_conn_id="lake", engine=engine, **conf
        )
        report = operator.execute(make_context(try_number=1))
    assert (report["status"], report["engine"]) == ("committed", engine)
    assert grants.waits == ["GET", "PUT"], "the job outlived its credentials twice"
    assert grants.refused == []
    assert lake.table().snapshot().num_files == 2
    assert lake.ids() == before
