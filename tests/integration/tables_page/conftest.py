"""A real Airflow with tables in different states, read and maintained by real DAG runs, and a browser."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow as pa
import pytest
from tests.support import ROOT
from tests.support.environment.corpus import Corpus, corpus_is_there
from tests.support.environment.patience import PATIENCE_SECONDS
from tests.support.environment.prerequisites import absent
from tests.support.runs.lakehouse import STRANGER, WIDE, Lakehouse, Visit
from tests.support.servers.program import NODE, npm_of, teller
from tests.support.tables.neglected_tables import write_neglected
from tests.support.tables.small_tables import with_unknown_feature, write_days

if str(ROOT / ".dev") not in sys.path:
    sys.path.insert(0, str(ROOT / ".dev"))

from airflow_delta.monitoring.record import table_id
from live_airflow import LiveAirflow, LiveAirflowError

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page, Response, ViewportSize


#: Tables of other projects, by the name that they have here.
KINDS = {
    "column_mapping": "dat-column_mapping",
    "v2_checkpoint": "krs-v2-json-sidecars-struct-stats-only",
    "deletion_vectors": "spark-partitioned-table-with-dv-large",
    "clustered": "krs-crc-full",
    "iceberg": "golden-table-with-icebegCompatV2Enabled",
}
#: Name, files and days of tables of which only their small files differ.
SMALL = (
    ("events", 60, 2),
    ("customers", 12, 2),
    ("invoices", 40, 2),
    ("clicks", 30, 3),
    ("stock", 8, 1),
    ("suppliers", 20, 2),
    ("regions", 2, 1),
    ("arrivals", 3, 1),
    ("sessions", 2, 1),
)


def _write_tables(home: Path, corpus: Corpus | None) -> dict[str, Path]:
    from deltalake import write_deltalake

    now_ms = int(time.time() * 1000)
    parts = home / "parts"
    parts.mkdir()
    tables = {}
    for seed, name in enumerate(("orders", "payments", "shipments")):
        tables[name] = home / name
        write_neglected(tables[name], seed, parts, now_ms)
    for name, files, days in SMALL:
        tables[name] = home / name
        write_days(tables[name], files=files, rows=40, days=days)
    if corpus is not None:
        for name, found in KINDS.items():
            tables[name] = home / name
            shutil.copytree(corpus.table(found), tables[name], symlinks=True)
    tables["products"] = home / "products"
    write_deltalake(str(tables["products"]), pa.table({"id": [1, 2, 3]}))
    tables['<b>returns</b> & "refunds"'] = home / '<b>returns<b> & "refunds"'
    write_days(tables['<b>returns</b> & "refunds"'], files=3, rows=5, days=1)
    tables["ledger"] = home / "ledger"
    write_days(tables["ledger"], files=4, rows=5, days=1)
    with_unknown_feature(tables["ledger"])
    tables["absent"] = home / "absent"
    return tables


@pytest.fixture(scope="module")
def lakehouse(
    tmp_path_factory: pytest.TempPathFactory, new_database: Callable[[], str], request: pytest.FixtureRequest
) -> Iterator[Lakehouse]:
    # The pictures of the documentation show the addresses of the tables.
    home = Path(os.environ.get("PAGE_LAKE") or tmp_path_factory.mktemp("lake"))
    tables = _write_tables(home, request.getfixturevalue("corpus") if corpus_is_there() else None)
    choice = {
        "read": [str(table) for name, table in tables.items() if name not in ("arrivals", "sessions")],
        "awaited": [str(tables["arrivals"])],
        "watched": [str(tables["sessions"])],
        "planned": [str(tables["invoices"])],
        "read_again": [str(tables[name]) for name in ("events", "customers", "products", "orders")],
        "optimized": [str(tables[name]) for name in ("events", "customers", "products", "absent")],
        "vacuumed": [str(tables[name]) for name in ("customers", "orders")],
        "checkpointed": [str(tables["customers"])],
    }
    dags = tmp_path_factory.mktemp("dags")
    shutil.copy(Path(__file__).parent / "dags" / "tables_page.py", dags)
    settings = {
        "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN": new_database(),
        "PAGE_TABLES": json.dumps(choice),
        # The last one has no role, so no permission.
        "AIRFLOW__CORE__SIMPLE_AUTH_MANAGER_USERS": "admin:admin,vera:viewer,sam:",
        "AIRFLOW__DELTA__MAINTENANCE_DAG": "maintain_table",
        # No file changes.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "3600",
        "AIRFLOW__DAG_PROCESSOR__REFRESH_INTERVAL": "3600",
    }
    airflow = LiveAirflow(tmp_path_factory.mktemp("airflow"), dags, settings)
    try:
        airflow.start()
        # A paused DAG can be started from the page, too, but its run waits.
        airflow.wait_for_dag("maintain_table")
        airflow.call("PATCH", "/api/v2/dags/maintain_table", {"is_paused": False})
        airflow.set_paused("follow_sessions", is_paused=False)
        for dag_id, expected in (
            ("read_health", "failed"),
            ("look_after_tables", "failed"),
            ("read_again", "success"),
            ("wait_for_table", "success"),
        ):
            run_id = airflow.trigger(dag_id)
            # The table `absent` fails in the first two; the others go on.
            assert airflow.wait_for_run(dag_id, run_id) == expected, airflow.story(dag_id, run_id)
            # The tests read of a table what its first try has recorded.
            assert airflow.tries(dag_id, run_id) <= {1}, airflow.story(dag_id, run_id)
        _wait_for_watcher(airflow, table_id(str(tables["sessions"])))
        yield Lakehouse(airflow, tables)
    finally:
        airflow.stop()


def _wait_for_watcher(airflow: LiveAirflow, identity: str) -> None:
    """Return when the watcher has kept a place, and the page has looked at it."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            airflow.call("GET", f"/delta-tables/v1/tables/{identity}")
        except LiveAirflowError as error:
            if error.status != HTTPStatus.NOT_FOUND or time.monotonic() > deadline:
                raise
            time.sleep(1)
        else:
            return


@pytest.fixture(scope="session")
def ui_sources(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Path:
    """A copy of `ui` with the packages that its lock names."""
    node = NODE.find(teller(pytestconfig))
    sources = tmp_path_factory.mktemp("page") / "ui"
    shutil.copytree(
        ROOT / "provider" / "airflow_delta" / "monitoring" / "page",
        sources,
        ignore=shutil.ignore_patterns("node_modules"),
    )
    options = ["--ignore-scripts", "--no-audit", "--no-fund"]
    install = [*npm_of(node, "the build of the page Delta tables"), "ci", *options]
    done = subprocess.run(install, cwd=sources, capture_output=True, text=True, check=False)
    if done.returncode:
        absent("the packages of ui/package-lock.json", done.stderr.strip()[-300:])
    return sources


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    try:
        from playwright.sync_api import Error, sync_playwright
    except ImportError:
        absent("the Python package playwright", "it steers the browser that looks at the page Delta tables")
    program = os.environ.get("CHROMIUM") or next(
        filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None
    )
    if program is None:
        absent("chromium", "a browser for the page Delta tables; Debian's package has this name")
    with sync_playwright() as playwright:
        try:
            # A browser in a container has no sandbox of its own. It visits nothing but this machine.
            started = playwright.chromium.launch(
                executable_path=program, args=["--no-sandbox", "--disable-gpu"]
            )
        except Error as error:
            absent("a chromium that starts", str(error).splitlines()[0])
        yield started
        started.close()


@pytest.fixture
def visit(lakehouse: Lakehouse, browser: Browser) -> Visit:
    """Opens a path of Airflow, and fails if the browser's console had an error of the page.

    A user without permissions has errors there: Airflow's own requests fail, too. `answers` gets all answers of the server.
    """

    @contextmanager
    def open_page(
        path: str,
        *,
        scheme: str = "light",
        size: ViewportSize = WIDE,
        user: str = "admin",
        answers: list[Response] | None = None,
    ) -> Iterator[Page]:
        airflow = lakehouse.airflow
        context = browser.new_context(viewport=size, color_scheme=scheme)  # type: ignore[arg-type]
        # Airflow has drawn the passwords of the users whom LiveAirflow does not know.
        password = json.loads((airflow.home / "passwords.json").read_text())[user]
        token = airflow.call("POST", "/auth/token", {"username": user, "password": password})
        context.add_cookies([{"name": "_token", "value": token["access_token"], "url": airflow.url}])
        page = context.new_page()
        page.set_default_timeout(PATIENCE_SECONDS * 1000)
        faults: list[str] = []
        page.on("console", lambda said: faults.append(said.text) if said.type == "error" else None)
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("dialog", lambda dialog: faults.append(f"dialog: {dialog.message}"))
        if answers is not None:
            # Playwright takes no methods of built-in types.
            page.on("response", lambda answer: answers.append(answer))  # noqa: PLW0108
        page.goto(f"{airflow.url}{path}")
        try:
            yield page
        finally:
            context.close()
        assert user == STRANGER or faults == []

    return open_page
