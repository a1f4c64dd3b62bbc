"""What a DAG file costs at every parse, looked at in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import ROOT

PATHS = sorted((ROOT / "dags_examples").glob("*.py"))

#: Refuses every connection, also to this machine.
NO_NETWORK = """
import socket
def refuse(*_):
    raise SystemExit("a DAG file that is parsed connects to nothing")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
"""


OPERATORS = "import airflow_delta.operators, airflow_delta.hooks, airflow_delta.assets"
SENSORS = "import airflow_delta.sensors, airflow_delta.triggers"
#: Every process of Airflow loads it, workers and the DAG processor included.
PLUGIN = (
    "from airflow_delta.monitoring.plugin import DeltaTablesPlugin; assert DeltaTablesPlugin.fastapi_apps"
)
#: Runs each program in a fork of one process that has loaded Airflow, which takes longer than all programs.
FORKS = """
import json, os, sys, traceback
import airflow.sdk
airflow.sdk.DAG, airflow.sdk.BaseSensorOperator
airflow.sdk.Asset("s3://bucket/key")  # at the first one Airflow loads every installed provider's assets, which is not ours
before = set(sys.modules)
for name, program in json.load(sys.stdin).items():
    child = os.fork()
    if not child:
        code = 1
        try:
            exec(program, {"__name__": "__main__"})
            print("LOADED", json.dumps([name, [m for m in HEAVY if m in sys.modules and m not in before]]), flush=True)
            code = 0
        except BaseException:
            traceback.print_exc()
        os._exit(code)
    os.waitpid(child, 0)
"""


def program_of(example: Path) -> str:
    return f"import runpy; runpy.run_path({str(example)!r})"


@pytest.fixture(scope="module")
def loaded() -> dict[str, list[str]]:
    """Heavy modules that each program has loaded; a program that failed is missing."""
    # Only parts of delta_log that need the standard library alone, such as how text is shown.
    ours = (
        "delta_log.storage.storage",
        "delta_log.snapshot.snapshot",
        "delta_log.table",
        "airflow_delta.monitoring.api",
    )
    libraries = (
        "pyarrow",
        "pyspark",
        "numpy",
        "pandas",
        "fsspec",
        "sqlglot",
        "openlineage",
        "requests",
        "fastapi",
    )
    heavy = (*libraries, "airflow.providers.apache.spark.hooks", *ours)
    programs = {
        "operators": OPERATORS,
        "sensors": SENSORS,
        "plugin": PLUGIN,
        **{path.stem: program_of(path) for path in PATHS},
    }
    done = subprocess.run(
        [sys.executable, "-c", f"HEAVY = {heavy!r}\n{FORKS.replace('before =', NO_NETWORK + 'before =', 1)}"],
        input=json.dumps(programs),
        capture_output=True,
        text=True,
        check=True,
    )
    print(done.stderr, file=sys.stderr)  # noqa: T201 - pytest shows it with a test that fails
    told = [line.removeprefix("LOADED ") for line in done.stdout.splitlines() if line.startswith("LOADED ")]
    return dict(map(json.loads, told))


def test_importing_the_sensors_and_triggers_loads_neither_pyarrow_nor_pyspark(
    loaded: dict[str, list[str]],
) -> None:
    assert loaded["sensors"] == []


def test_importing_the_operators_loads_neither_pyarrow_nor_pyspark(loaded: dict[str, list[str]]) -> None:
    assert loaded["operators"] == []


def test_loading_the_plugin_loads_neither_its_api_nor_pyarrow(loaded: dict[str, list[str]]) -> None:
    assert loaded["plugin"] == []


@pytest.mark.parametrize("example", PATHS, ids=lambda path: path.stem)
def test_parsing_an_example_loads_neither_pyarrow_nor_pyspark(
    example: Path, loaded: dict[str, list[str]]
) -> None:
    assert loaded[example.stem] == []
