"""The page that explains a task's log shows what the log really says: in ten situations, and for a vacuum, on real tables and with real jobs."""

from __future__ import annotations

import json
import os
import re
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from datetime import date, datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from airflow.sdk.exceptions import AirflowException
from deltalake import DeltaTable, write_deltalake
from tests.support import ROOT
from tests.support.checks.documented_blocks import shape
from tests.support.tables.small_tables import write_parts
from tests.support.tables.written_log import add, write_log

from airflow_delta.operators import DeltaOptimizeOperator, DeltaVacuumOperator
from airflow_delta.runners.job_runner import JobRunner
from airflow_delta.runners.local import LocalJobRunner
from airflow_delta.sensors import DeltaTableVersionSensor
from airflow_delta.testing import FakeStateStore

MakeContext = Callable[..., dict[str, Any]]
Said = Callable[[], list[str]]

PAGE = ROOT / "docs" / "operations" / "task-log.md"

#: A job that kills itself when it is about to keep the manifest of its seventh bin.
DIES = """
import os, signal
from delta_log.storage.local.local_storage import LocalStorage
from delta_maintenance.entrypoint import run_job
put, kept = LocalStorage.put, []
def dying(self, key, data):
    if key.startswith("_maintenance/"):
        kept.append(key)
        if len(kept) > 6:
            os.kill(os.getpid(), signal.SIGKILL)
    return put(self, key, data)
LocalStorage.put = LocalStorage.put_if_absent = dying
run_job.main()
"""
#: A job beside which another writer deletes rows of every file, just before the job commits.
LOSES = """
from deltalake import DeltaTable
from delta_log.storage.local.local_storage import LocalStorage
from delta_maintenance.entrypoint import run_job
put, others = LocalStorage.put_if_absent, []
def too_late(self, key, data):
    if key.startswith("_delta_log/") and not others:
        others.append(DeltaTable(self.uri).delete("id < 100"))
    return put(self, key, data)
LocalStorage.put_if_absent = too_late
run_job.main()
"""


class Optimize(DeltaOptimizeOperator):
    """With another program in place of the job's."""

    def __init__(self, *, program: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._program = program

    def local_runner(self, storage_options: Mapping[str, Any]) -> JobRunner:
        return LocalJobRunner(storage_options, self.log, (sys.executable, "-c", self._program))


@pytest.fixture
def said(capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture) -> Said:
    """What the task's log has got since the last call."""
    caplog.set_level("INFO")
    capsys.readouterr()

    def read() -> list[str]:
        # Loggers of modules and of tasks go different ways here, and the same way in Airflow.
        lines = [(record.created, f"{record.levelname} - {record.message}") for record in caplog.records]
        caplog.clear()
        for line in capsys.readouterr().out.splitlines():
            found = re.fullmatch(r"(\S+) \[(\w+) *\] (.*?) +\[airflow[\w.]+\](?: \w+=\S+)*", line)
            assert found, line
            at = datetime.fromisoformat(found[1]).timestamp()
            lines.append((at, f"{found[2].upper()} - {found[3]}"))
        return [line for _, line in sorted(lines)]

    return read


def run(operator: DeltaOptimizeOperator | DeltaVacuumOperator, context: dict[str, Any]) -> list[str]:
    """Runs a task; gives the line of Airflow's log that its error makes, if it has one."""
    try:
        # Airflow refuses an execute() that its task runner did not call.
        DeltaOptimizeOperator.execute.__wrapped__(operator, context)  # type: ignore[attr-defined]
    except AirflowException as error:
        return [f"ERROR - {type(error).__name__}: {error}"]
    return []


def optimize(table: Path, **arguments: Any) -> DeltaOptimizeOperator:
    kind = Optimize if "program" in arguments else DeltaOptimizeOperator
    return kind(task_id="optimize", table=str(table), engine="local", **arguments)


def events(table: Path, days: int = 2, batches: int = 20) -> Path:
    """A table that a stream has written for two days, of which the first is in good shape."""
    for day in range(1, days + 1):
        for batch in range(batches if day == days else 1):
            rows = pa.table({"day": [date(2026, 1, day)] * 100, "id": range(100 * batch, 100 * batch + 100)})
            write_deltalake(str(table), rows, mode="append", partition_by=["day"])
    return table


def shown(heading: str) -> list[str]:
    """The lines of the block below a heading of the page."""
    section = PAGE.read_text().partition(f"\n## {heading}\n")[2].partition("\n## ")[0]
    block = section.partition("```text\n")[2].partition("\n```")[0]
    return block.splitlines()


def normalised(line: str, table: Path) -> str:
    line = line.replace(str(table), "/data/events")
    line = re.sub(r"run airflow-[\w-]+", "run …", line)
    line = re.sub(r"part-0[\w-]+-c000", "part-…", line)
    line = re.sub(r"part=\w ", "part=… ", line)
    return shape(line)


def check(heading: str, lines: list[str], table: Path) -> None:
    found = [normalised(line, table) for line in lines if "rewriting: " not in line]
    expected = [normalised(line, table) for line in shown(heading) if "rewriting: " not in line]
    assert found == expected, "the log says:\n" + "\n".join(lines).replace(str(table), "/data/events")


def test_success(tmp_path: Path, make_context: MakeContext, said: Said) -> None:
    table = events(tmp_path / "events")
    assert run(optimize(table), make_context()) == []
    check("Success", said(), table)


def test_nothing_to_do(tmp_path: Path, make_context: MakeContext, said: Said) -> None:
    table = events(tmp_path / "events", batches=1)
    assert run(optimize(table), make_context()) == []
    check("Nothing to do", said(), table)


def test_resumed(tmp_path: Path, make_context: MakeContext, said: Said) -> None:
    table, store = write_parts(tmp_path / "events", "abcdefghij"), FakeStateStore()
    lost = run(optimize(table, program=DIES, parallelism=1), make_context(store))
    assert "SIGKILL" in lost[0]
    said()
    assert run(optimize(table), make_context(store)) == []
    check("Resumed", said(), table)


def test_refused(tmp_path: Path, make_context: MakeContext, said: Said) -> None:
    table = tmp_path / "events"
    write_log(table, [add("a", 1)])
    commit = table / "_delta_log" / f"{0:020}.json"
    commit.write_text(commit.read_text().replace("timestampNtz", "rowFilters"))
    failed = run(optimize(table), make_context())
    check("A refused table", [*said(), *failed], table)


def test_a_lost_conflict(tmp_path: Path, make_context: MakeContext, said: Said) -> None:
    table = events(tmp_path / "events", days=1, batches=3)
    failed = run(optimize(table, program=LOSES), make_context())
    check("A lost conflict", [*said(), *failed], table)


@contextmanager
def refusing_s3() -> Iterator[str]:
    """A server that answers every request as S3 does when the secret key is wrong; yields its address."""

    class Refusal(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = b"<Error><Code>SignatureDoesNotMatch</Code><Message>The request signature does not match.</Message></Error>"
            self.send_response(403)
            self.send_header("Content-Type", "application/xml")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        do_PUT = do_GET  # noqa: N815

        def do_HEAD(self) -> None:
            self.send_response(403)
            self.end_headers()

        def log_message(self, *_: object) -> None: ...

    server = ThreadingHTTPServer(("127.0.0.1", 0), Refusal)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def unused_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        port: int = bound.getsockname()[1]
    return port


def on_s3(monkeypatch: pytest.MonkeyPatch, endpoint: str) -> DeltaOptimizeOperator:
    """A task on a table in S3, by a connection with a key."""
    options = {
        "key": "AKIAIOSFODNN7EXAMPLE",
        "secret": "an-old-secret",
        "endpoint_url": endpoint,
        "config_kwargs": {"retries": {"max_attempts": 1}},
    }
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", json.dumps({"conn_type": "delta", "extra": options}))
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-central-1")
    return DeltaOptimizeOperator(
        task_id="optimize", table="s3://lake/events", delta_conn_id="lake", engine="local"
    )


def test_an_outage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_context: MakeContext, said: Said
) -> None:
    endpoint = f"http://127.0.0.1:{unused_port()}"
    failed = run(on_s3(monkeypatch, endpoint), make_context())
    lines = [line.replace(endpoint, "http://storage.example:9000") for line in [*said(), *failed]]
    check("An outage", lines, tmp_path)


def test_wrong_credentials(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_context: MakeContext, said: Said
) -> None:
    with refusing_s3() as endpoint:
        failed = run(on_s3(monkeypatch, endpoint), make_context())
    check("Wrong credentials", [*said(), *failed], tmp_path)


def test_a_dry_run(tmp_path: Path, make_context: MakeContext, said: Said) -> None:
    table = events(tmp_path / "events")
    assert run(optimize(table, dry_run=True), make_context()) == []
    check("A dry run", said(), table)


def test_a_vacuum(tmp_path: Path, make_context: MakeContext, said: Said) -> None:
    table = events(tmp_path / "events", batches=3)
    for age_days in (1, 30):
        left = table / "day=2026-01-01" / f"left-{age_days}-days-ago.parquet"
        left.write_bytes(b"by a writer that was killed")
        os.utime(left, (time.time() - 86_400 * age_days,) * 2)
    assert run(DeltaVacuumOperator(task_id="vacuum", table=str(table)), make_context()) == []
    check("A vacuum", said(), table)


def test_a_sensor_waits_and_fires(tmp_path: Path, make_context: MakeContext, said: Said) -> None:
    table = events(tmp_path / "events", days=1, batches=3)
    sensor = DeltaTableVersionSensor(task_id="wait", table=str(table), min_rows=150)
    context: Any = make_context(map_index=-1, xcom_pull=lambda **_: [], xcom_push=lambda *_: None)
    assert sensor.poke(context) is False
    assert sensor.poke(context) is False, "and says nothing again"
    events(table, days=1, batches=1)
    assert sensor.poke(context) is False
    check("A sensor waits", said(), table)
    DeltaTable(str(table)).optimize.compact()
    events(table, days=1, batches=1)
    assert sensor.poke(context)
    check("A sensor fires", said(), table)
