"""What the page *Delta tables* costs the API server, against Airflow's own list of assets. ``./dev bench tables_page``.

Each table has a reading of health and an OPTIMIZE a day, so 3,000 tables and 90 days are 540,000 records, in PostgreSQL. A real API server of
Airflow with one worker answers. What counts are processor seconds of the API server and of PostgreSQL, and bytes:

a. The first request after a start, which reads the records of all days.
b. Later requests: a page of 50 tables, against a page of 50 of as many assets. They take turns. Between them new records come, as in a night.
c. One table with its history, and the bytes of a first view: the page's script and a page of tables.
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import psutil  # type: ignore[import-untyped]

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

_TABLE = "@TABLE@"
_NUMBERS = itertools.count()
_OURS, _AIRFLOWS = "/delta-tables/v1/tables?limit=50", "/api/v2/assets?limit=50"
_SCRIPT = "/delta-tables/delta-tables.js"


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="The page Delta tables on PostgreSQL")
    parser.add_argument("--tables", type=int, default=3_000)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--rounds", type=int, default=10)
    given = parser.parse_args(arguments)
    from tests.support.servers.postgres import running_postgres

    with tempfile.TemporaryDirectory(prefix="tables-page-") as scratch, running_postgres(print) as new:
        home, url = Path(scratch), new()
        os.environ |= {
            "AIRFLOW_HOME": str(home),
            "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": url,
            "AIRFLOW__CORE__LOAD_EXAMPLES": "False",
            "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_ALL_ADMINS": "True",
        }
        subprocess.run([sys.executable, "-m", "airflow", "db", "migrate"], check=True, capture_output=True)
        _fill(given.tables, given.days)
        with _api_server(home) as server:
            _measure(server, given.tables, given.rounds)


# -- records ---------------------------------------------------------------------------------------------------------


def _templates() -> dict[str, str]:
    """By task, the JSON of its record of a table."""
    from tests.support.records import health_document

    from airflow_delta.monitoring.record import record_of_health, record_of_report
    from delta_maintenance.contract import JobReport

    metrics = {f"num{name}": 123_456 for name in ("AddedFiles", "RemovedFiles", "AddedBytes", "OutputRows")}
    report = JobReport(
        "optimize",
        _TABLE,
        "committed",
        run_id="airflow-1800000000000000-0123abcd",
        version=74,
        read_version=73,
        engine="local",
        metrics=metrics,
        table_size={"files_before": 422, "files_after": 12, "bytes_before": 10**9, "bytes_after": 10**9},
        selection={"files": 422, "bytes": 10**9, "chosen": {"files": 416, "bins": 6}, "left": {"large": 6}},
        started_ms=1_800_000_000_000,
        finished_ms=1_800_000_038_000,
    )
    lines = [f"line {number} of the report in words, as the log of the task has it" for number in range(12)]
    return {
        "critical": json.dumps(record_of_health(health_document(_TABLE, "critical"))),
        "attention": json.dumps(record_of_health(health_document(_TABLE, "attention"))),
        "healthy": json.dumps(record_of_health(health_document(_TABLE))),
        "optimize": json.dumps(record_of_report(report, lines)),
    }


def _fill(tables: int, days: int) -> None:
    from airflow.models.asset import AssetActive, AssetModel
    from airflow.utils.session import create_session
    from sqlalchemy import text
    from tests.support.runs.metadata_database import add_dags

    add_dags("nightly")
    with create_session() as session:
        for number in range(tables):
            asset = AssetModel(f"table-{number}", f"s3://lake/sales/table-{number}", group="asset")
            session.add_all([asset, AssetActive.for_asset(asset)])
    began = time.monotonic()
    _add_records(tables, days)
    with create_session() as session:
        session.execute(text("ANALYZE"))
        size = session.scalar(text("SELECT pg_size_pretty(pg_total_relation_size('task_state_store'))"))
        count = session.scalar(text("SELECT count(*) FROM task_state_store"))
    print(f"{count:,} records, {size} in PostgreSQL, written in {time.monotonic() - began:.0f} s")


def _add_records(tables: int, days: int) -> None:
    """Records of the given tables, a reading and a run on each of the last days; in the order of time."""
    from airflow.utils.session import create_session
    from sqlalchemy import text
    from tests.support.runs.metadata_database import run_number

    insert = text(
        """
        INSERT INTO task_state_store (dag_run_id, dag_id, run_id, task_id, map_index, key, value, updated_at)
        SELECT :run, 'nightly', :run_id, task, n,
            'delta_record.1.' || left(encode(sha256(('s3://lake/sales/table-' || n)::bytea), 'hex'), 24) || '.' || task
                || CASE WHEN task = 'health' THEN '.422.416' ELSE '..' END,
            replace(CASE
                WHEN task = 'optimize' THEN :optimize
                WHEN n % 10 = 0 THEN :critical
                WHEN n % 10 < 3 THEN :attention
                ELSE :healthy END, '@TABLE@', 's3://lake/sales/table-' || n),
            now() - make_interval(days => :day) + make_interval(secs => n * 0.001)
        FROM generate_series(0, :tables - 1) n, unnest(ARRAY['health', 'optimize']) task
        ORDER BY n, task
        """
    )
    with create_session() as session:
        for day in reversed(range(days)):
            run_id = f"run {next(_NUMBERS)}"
            names = {"run": run_number(session, "nightly", run_id), "run_id": run_id}
            session.execute(insert, {**_templates(), **names, "tables": tables, "day": day})


# -- the server ------------------------------------------------------------------------------------------------------


class Server:
    """
    :ivar process: process of the API server.
    """

    def __init__(self, process: psutil.Process, port: int) -> None:
        self.process = process
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=1_800, trust_env=False)

    def log_in(self) -> None:
        token = json.loads(self.get("/auth/token"))["access_token"]
        self._client.headers["Authorization"] = f"Bearer {token}"

    def get(self, path: str) -> bytes:
        return self._client.get(path).raise_for_status().content

    def megabytes(self) -> float:
        return float(sum(one.memory_info().rss for one in self._tree())) / (1 << 20)

    def cpu(self) -> tuple[float, float]:
        """Processor seconds so far, of the API server and of PostgreSQL."""
        database = [one for one in psutil.Process().children(recursive=True) if "postgres" in one.name()]
        return _cpu(self._tree()), _cpu(database)

    def _tree(self) -> list[psutil.Process]:
        return [self.process, *self.process.children(recursive=True)]


def _cpu(processes: list[psutil.Process]) -> float:
    times = [one.cpu_times() for one in processes]
    return float(sum(one.user + one.system + one.children_user + one.children_system for one in times))


@contextmanager
def _api_server(home: Path) -> Iterator[Server]:
    from tests.support.servers.process import free_port

    port = free_port()
    command = [sys.executable, "-m", "airflow", "api-server", "--workers", "1", "--port", str(port)]
    with (home / "api-server.log").open("wb") as log:
        started = subprocess.Popen([*command, "--host", "127.0.0.1"], stdout=log, stderr=subprocess.STDOUT)
        try:
            server = Server(psutil.Process(started.pid), port)
            for _ in range(600):
                try:
                    server.log_in()
                    break
                except httpx.TransportError:
                    if started.poll() is not None:
                        raise
                    time.sleep(0.5)
            yield server
        finally:
            for one in [*server.process.children(recursive=True), server.process]:
                one.kill()
            started.wait()


def _measure(server: Server, tables: int, rounds: int) -> None:
    server.get(_AIRFLOWS)
    before = server.megabytes()
    seconds, cost, _ = _costs(server, lambda: server.get(_OURS), 1)
    print(
        f"a. first request: {seconds:.1f} s; processor: API server {cost[0]:.2f} s, PostgreSQL {cost[1]:.2f} s; "
        f"API server {before:.0f} MB before, {server.megabytes():.0f} MB after"
    )
    totals: dict[str, list[float]] = {_OURS: [0.0, 0.0], _AIRFLOWS: [0.0, 0.0]}
    for number in range(rounds + 1):
        # As in a night: a hundred tables are done between two looks.
        _add_records(min(100, tables), 1)
        for path, total in totals.items():
            _, cost, _ = _costs(server, lambda path=path: server.get(path), 10)  # type: ignore[misc]
            if number:
                total[0] += cost[0] / rounds / 10
                total[1] += cost[1] / rounds / 10
    for path, (api, database) in totals.items():
        print(
            f"b. {path}: API server {api * 1000:.1f} ms, PostgreSQL {database * 1000:.1f} ms of processor a request"
        )
    ours, theirs = (sum(totals[path]) for path in (_OURS, _AIRFLOWS))
    print(f"b. ratio, ours to Airflow's list of assets: {ours / theirs:.2f}")
    fleet = server.get(_OURS)
    table = json.loads(fleet)["tables"][0]["id"]
    _, cost, view = _costs(server, lambda: server.get(f"/delta-tables/v1/tables/{table}"), 10)
    print(
        f"c. one table: API server {cost[0] * 100:.1f} ms, PostgreSQL {cost[1] * 100:.1f} ms, {len(view):,} bytes"
    )
    script = server.get(_SCRIPT)
    print(
        f"c. first view: script {len(script):,} + tables {len(fleet):,} = {len(script) + len(fleet):,} bytes"
    )


def _costs(server: Server, call: Callable[[], Any], times: int) -> tuple[float, tuple[float, float], Any]:
    """Seconds and processor seconds of the API server and of PostgreSQL, of all calls; and the last answer."""
    api, database = server.cpu()
    began = time.monotonic()
    for _ in range(times):
        answer = call()
    seconds = time.monotonic() - began
    after = server.cpu()
    return seconds, (after[0] - api, after[1] - database), answer


if __name__ == "__main__":
    main()
