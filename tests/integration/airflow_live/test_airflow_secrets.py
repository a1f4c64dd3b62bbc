"""Where the secrets of a connection are after real tasks have used it: in its own row, encrypted, and nowhere else."""

from __future__ import annotations

import configparser
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pytest
from cryptography.fernet import Fernet, InvalidToken
from deltalake import write_deltalake
from tests.support.checks.secret_search import holds
from tests.support.environment.patience import PATIENCE_SECONDS
from tests.support.runs.tail_runs import patiently
from tests.support.servers.s3 import S3Server

from live_airflow import LiveAirflow

pytestmark = [pytest.mark.slow, pytest.mark.airflow]

_DAG_ID = "uses_secrets"
_FERNET_TOKENS = (b"gAAAAA", b'"gAAAAA')


class MetadataDatabase:
    """All tables of Airflow's metadata database, as bytes."""

    def __init__(self, airflow: LiveAirflow) -> None:
        self._url = airflow.environment()["AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"]
        settings = configparser.ConfigParser(interpolation=None, strict=False)
        settings.read(airflow.home / "airflow.cfg")
        self._fernet = Fernet(settings["core"]["fernet_key"])

    def places_of(self, text: str) -> set[str]:
        """The columns, as `table.column`, where a text stands in any form."""
        return {column for column, value in self._values() if holds(value, text)}

    def encrypted_places_of(self, text: str) -> set[str]:
        """The columns where it stands in what Airflow has encrypted."""
        return {
            column
            for column, value in self._values()
            if value.startswith(_FERNET_TOKENS) and holds(self._decrypted(value), text)
        }

    def _values(self) -> Iterator[tuple[str, bytes]]:
        from sqlalchemy import MetaData, create_engine, select

        engine = create_engine(self._url)
        try:
            schema = MetaData()
            schema.reflect(engine)
            with engine.connect() as connection:
                for name, table in schema.tables.items():
                    for row in connection.execute(select(table)).mappings():
                        for column, value in row.items():
                            yield f"{name}.{column}", _as_bytes(value)
        finally:
            engine.dispose()

    def _decrypted(self, value: bytes) -> bytes:
        try:
            return self._fernet.decrypt(value.strip(b'"'))
        except InvalidToken:
            return b""


def _as_bytes(value: Any) -> bytes:
    if isinstance(value, bytes | memoryview):
        return bytes(value)
    return value.encode() if isinstance(value, str) else json.dumps(value, default=str).encode()


def wait_until_deferred(airflow: LiveAirflow, run_id: str) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    path = f"/api/v2/dags/{_DAG_ID}/dagRuns/{quote(run_id, safe='')}/taskInstances/wait"
    while patiently(airflow, "GET", path)["state"] != "deferred":
        assert airflow.run_state(_DAG_ID, run_id) in {"queued", "running"}, airflow.story(_DAG_ID, run_id)
        assert time.monotonic() < deadline, airflow.story(_DAG_ID, run_id)
        time.sleep(0.5)


def test_secrets_of_a_connection_stay_in_its_encrypted_row(airflow: LiveAirflow, s3_server: S3Server) -> None:
    bucket, forbidden = s3_server.make_bucket(), s3_server.make_bucket()
    # Secrets that nothing else on this machine knows.
    session = s3_server.session(*s3_server.everything_in(bucket))
    secrets = (session["secret"], session["token"])
    extra = {
        "aws_session_token": session["token"],
        "endpoint_url": s3_server.endpoint,
        "region_name": "us-east-1",
    }
    fields = {"conn_type": "aws", "login": session["key"], "password": session["secret"]}
    airflow.call(
        "POST", "/api/v2/connections", {"connection_id": "secret_lake", **fields, "extra": json.dumps(extra)}
    )
    table = f"s3://{bucket}/events"

    def append() -> None:
        write_deltalake(
            table, pa.table({"id": [1]}), mode="append", storage_options=s3_server.delta_rs_options
        )

    append()
    append()
    conf = {"table": table, "forbidden": f"s3://{forbidden}/events", "baseline": 1}
    run_id = airflow.trigger(_DAG_ID, conf=conf)
    wait_until_deferred(airflow, run_id)
    database = MetadataDatabase(airflow)
    waiting = {place for secret in secrets for place in database.encrypted_places_of(secret)}
    append()
    assert airflow.wait_for_run(_DAG_ID, run_id) == "failed"
    states = {name: airflow.task(_DAG_ID, run_id, name)["state"] for name in ("wait", "optimize", "refused")}
    assert states == {"wait": "success", "optimize": "success", "refused": "failed"}, airflow.story(
        _DAG_ID, run_id
    )
    assert {"rendered_task_instance_fields.rendered_fields", "xcom.value"} <= database.places_of(table)
    # The name of a key is no secret: Airflow's audit log has it, too.
    assert "connection.login" in database.places_of(session["key"])
    # Nor in the arguments of the trigger, which Airflow encrypts.
    assert waiting == {"connection.password", "connection.extra"}
    logs = [file for file in airflow.home.rglob("*.log") if f"run_id={run_id}" in str(file)]
    assert any(b"AccessDenied" in file.read_bytes() for file in logs), "the logs of the tasks are there"
    for secret in secrets:
        assert database.places_of(secret) == set()
        assert [
            file for file in airflow.home.rglob("*") if file.is_file() and holds(file.read_bytes(), secret)
        ] == []
