"""Every sensor, every operator and the command line on a table of each store, opened with each type of connection."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException
from tests.support.runs.maintenance_runs import enable_deletion_vectors, keys, mark_deleted
from tests.support.servers.azure import AZURITE, AzureServer
from tests.support.servers.azure_cloud import AzureCloud, running_azure_cloud
from tests.support.servers.gcs import GcsServer
from tests.support.servers.google_identity import running_google_identity
from tests.support.servers.program import teller
from tests.support.servers.s3 import S3Server
from tests.support.tables.small_tables import write_days

from airflow_delta.hooks.delta_table import DeltaTableHook
from airflow_delta.operators import (
    DeltaCheckpointOperator,
    DeltaDoctorOperator,
    DeltaOptimizeOperator,
    DeltaReorgPurgeOperator,
    DeltaTableHealthOperator,
    DeltaVacuumOperator,
)
from airflow_delta.sensors import (
    DeltaDeletionVectorRatioSensor,
    DeltaTableHealthSensor,
    DeltaTableVersionSensor,
)
from delta_log import Table
from delta_maintenance.job_interface import STORAGE_OPTIONS_VARIABLE

_FIRST_DAY = "day = '2024-01-01'"


@dataclass(frozen=True)
class Place:
    """Where a table is, and the connection that opens it.

    :param storage_options: another way to the store, for the test itself.
    """

    table: str
    storage_options: Mapping[str, Any]
    conn_type: str
    fields: Mapping[str, Any] = field(default_factory=dict)
    extra: Mapping[str, Any] = field(default_factory=dict)


@pytest.fixture
def aws(s3_server: S3Server, s3_bucket: str) -> Place:
    extra = {"endpoint_url": s3_server.endpoint, "region_name": "us-east-1"}
    keys = {"login": s3_server.key, "password": s3_server.secret}
    return Place(f"s3://{s3_bucket}/lake/events", s3_server.storage_options, "aws", keys, extra)


@pytest.fixture
def delta(s3_server: S3Server, s3_bucket: str) -> Place:
    options = s3_server.storage_options
    return Place(f"s3a://{s3_bucket}/lake/events", options, "delta", {}, options)


@pytest.fixture
def google_cloud_platform(
    gcs_server: GcsServer, gcs_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    # A connection of this type has no field for an endpoint.
    monkeypatch.setenv("STORAGE_EMULATOR_HOST", gcs_server.endpoint)
    with running_google_identity() as google:
        yield Place(
            f"gs://{gcs_bucket}/lake/events",
            gcs_server.storage_options,
            "google_cloud_platform",
            {},
            {"keyfile_dict": google.key},
        )


def _on_azure(server: AzureServer, container: str, conn_type: str, **fields: Any) -> Place:
    address = f"abfss://{container}@{server.account}.dfs.core.windows.net/lake/events"
    return Place(address, server.storage_options, conn_type, {"password": server.key, **fields})


@pytest.fixture
def wasb(azure_server: AzureServer, azure_container: str) -> Place:
    host = f"{azure_server.endpoint}/{azure_server.account}"
    return _on_azure(azure_server, azure_container, "wasb", login=azure_server.account, host=host)


@pytest.fixture
def adls(azure_server: AzureServer, azure_container: str) -> Place:
    return _on_azure(
        azure_server, azure_container, "adls", host=f"{azure_server.endpoint}/{azure_server.account}"
    )


@pytest.fixture(scope="module")
def azure_cloud(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AzureCloud]:
    program = AZURITE.find(teller(request.config))
    with running_azure_cloud(program, tmp_path_factory.mktemp("azure-cloud")) as cloud:
        yield cloud


def _by_principal(
    cloud: AzureCloud, patch: pytest.MonkeyPatch, conn_type: str, extra: Mapping[str, Any]
) -> Place:
    for name, value in cloud.environment.items():
        patch.setenv(name, value)
    server = cloud.server
    address = f"abfss://{server.make_container()}@{server.account}.dfs.core.windows.net/lake/events"
    principal = {"login": cloud.client_id, "password": cloud.client_secret}
    return Place(address, server.storage_options, conn_type, principal, extra)


@pytest.fixture
def azure(azure_cloud: AzureCloud, monkeypatch: pytest.MonkeyPatch) -> Place:
    return _by_principal(azure_cloud, monkeypatch, "azure", {"tenantId": azure_cloud.tenant})


@pytest.fixture
def azure_data_lake(azure_cloud: AzureCloud, monkeypatch: pytest.MonkeyPatch) -> Place:
    extra = {"tenant": azure_cloud.tenant, "account_name": azure_cloud.server.account}
    return _by_principal(azure_cloud, monkeypatch, "azure_data_lake", extra)


def fill(place: Place, local: Path) -> None:
    """Put a table there: two days of three small files, of which one hides half of its rows."""
    write_days(local)
    enable_deletion_vectors(local)
    mark_deleted(local, {keys(local)[0]: range(50)})
    storage = Table(place.table, place.storage_options).storage
    for file in sorted(local.rglob("*")):
        if file.is_file():
            storage.put(file.relative_to(local).as_posix(), file.read_bytes())


@dataclass(frozen=True)
class Lake:
    """Tasks and commands on one table, with one connection."""

    table: str
    connection: str
    context: dict[str, Any]

    def wait(self, kind: type[Any], **arguments: Any) -> dict[str, Any]:
        """What a sensor gives to XCom."""
        sensor = kind(
            task_id="wait",
            table=self.table,
            delta_conn_id=self.connection,
            poke_interval=0.1,
            timeout=60,
            **arguments,
        )
        found: dict[str, Any] = sensor.execute(self.context)
        return found

    def run(self, kind: type[Any], **arguments: Any) -> dict[str, Any]:
        """What an operator gives to XCom."""
        operator = kind(task_id="task", table=self.table, delta_conn_id=self.connection, **arguments)
        # Airflow refuses an execute() that its task runner did not call.
        result: dict[str, Any] = kind.execute.__wrapped__(operator, self.context)
        return result

    def command(self, name: str, *arguments: str) -> dict[str, Any]:
        """What `delta-maintenance` prints, with the storage options that the connection stands for."""
        options = json.dumps(DeltaTableHook(self.connection).storage_options)
        program = str(Path(sys.executable).with_name("delta-maintenance"))
        done = subprocess.run(
            [program, name, *arguments, "--json"],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, STORAGE_OPTIONS_VARIABLE: options},
        )
        assert done.returncode == 0, done.stdout + done.stderr
        document: dict[str, Any] = json.loads(done.stdout)
        return document


@pytest.mark.parametrize(
    "conn_type",
    [
        "aws",
        "google_cloud_platform",
        "wasb",
        *(
            pytest.param(name, marks=pytest.mark.slow)
            for name in ("delta", "adls", "azure", "azure_data_lake")
        ),
    ],
)
def test_a_connection_is_enough_for_every_sensor_every_operator_and_the_command_line(
    conn_type: str,
    request: pytest.FixtureRequest,
    make_context: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    place: Place = request.getfixturevalue(conn_type)
    fill(place, tmp_path / "t")
    # A process opens the store of a connection once for its sensors, so each has a name of its own.
    connection = {"conn_type": place.conn_type, "extra": dict(place.extra), **place.fields}
    monkeypatch.setenv(f"AIRFLOW_CONN_STORE_{conn_type.upper()}", json.dumps(connection))
    lake = Lake(place.table, f"store_{conn_type}", make_context(try_number=1, map_index=-1))

    def rows() -> list[int]:
        found = Table(place.table, place.storage_options).snapshot().to_arrow()
        return sorted(found.column("id").to_pylist())

    before = rows()
    assert len(before) == 550

    assert lake.wait(DeltaTableVersionSensor, baseline=0)["lastVersion"] == 7
    assert lake.wait(DeltaDeletionVectorRatioSensor, ratio=0.1)["partitions"]
    assert lake.wait(DeltaTableHealthSensor, small_files=1)["numSmallFiles"] == 6
    checks = lake.run(DeltaDoctorOperator)["checks"]
    assert {check["status"] for check in checks} <= {"ok", "warning"}
    health = lake.run(DeltaTableHealthOperator)
    assert health["status"] != "healthy"
    assert lake.command("health", lake.table)["findings"] == health["findings"]

    assert lake.run(DeltaCheckpointOperator, if_due=False)["status"] == "written"
    purged = lake.run(DeltaReorgPurgeOperator, engine="local")
    by_command = lake.command("optimize", lake.table, "--engine", "local", "--where", _FIRST_DAY)
    optimized = lake.run(DeltaOptimizeOperator, engine="local")
    assert [report["status"] for report in (purged, by_command, optimized)] == ["committed"] * 3
    vacuumed = lake.run(DeltaVacuumOperator, engine="local", retain_hours=0, retention_check=False)
    assert vacuumed["metrics"]["numDeletedFiles"] >= 6
    after = Table(place.table, place.storage_options).snapshot()
    assert after.num_files == 2
    assert rows() == before


@pytest.mark.slow
def test_a_principal_whose_secret_is_wrong_is_told_once_and_not_tried_again(
    azure_cloud: AzureCloud,
    make_context: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    place = _by_principal(azure_cloud, monkeypatch, "azure", {"tenantId": azure_cloud.tenant})
    connection = {
        "conn_type": "azure",
        "extra": place.extra,
        "login": azure_cloud.client_id,
        "password": "old one",
    }
    monkeypatch.setenv("AIRFLOW_CONN_STORE_OLD", json.dumps(connection))
    lake = Lake(place.table, "store_old", make_context(try_number=1, map_index=-1))
    asked = len(azure_cloud.asked)
    with pytest.raises(AirflowFailException) as caught:
        lake.run(DeltaOptimizeOperator, engine="local")
    # The client would ask four times, which takes it more than a minute.
    assert len(azure_cloud.asked) <= asked + 2
    assert f"access was denied to service principal {azure_cloud.client_id}" in str(caught.value)
    assert "AADSTS7000215" in str(caught.value)
    assert "old one" not in str(caught.value)


@pytest.mark.slow
def test_a_token_service_that_is_busy_for_a_while_is_asked_again(
    azure_cloud: AzureCloud,
    make_context: Callable[..., dict[str, Any]],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    place = _by_principal(azure_cloud, monkeypatch, "azure", {"tenantId": azure_cloud.tenant})
    fill(place, tmp_path / "t")
    connection = {"conn_type": "azure", "extra": place.extra, **place.fields}
    monkeypatch.setenv("AIRFLOW_CONN_STORE_BUSY", json.dumps(connection))
    lake = Lake(place.table, "store_busy", make_context(try_number=1, map_index=-1))
    azure_cloud.busy = 2
    assert lake.run(DeltaOptimizeOperator, engine="local")["status"] == "committed"
    assert azure_cloud.busy == 0
