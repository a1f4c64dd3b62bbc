"""What a DAG file costs at every parse, looked at in a process of its own."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support import ROOT

EXAMPLES = ROOT / "dags_examples"


#: Refuses every connection, also to this machine.
NO_NETWORK = """
import socket
def refuse(*_):
    raise SystemExit("a DAG file that is parsed connects to nothing")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = refuse
"""


def loaded_by(program: str) -> set[str]:
    # Only parts of delta_log that need the standard library alone, such as how text is shown.
    ours = ("delta_log.storage.storage", "delta_log.snapshot.snapshot", "delta_log.table")
    libraries = ("pyarrow", "pyspark", "numpy", "pandas", "fsspec", "sqlglot", "openlineage", "requests")
    heavy = (*libraries, "airflow.providers.apache.spark.hooks", *ours)
    # What Airflow itself loads is not ours.
    before = f"import sys, airflow.sdk\nairflow.sdk.DAG, airflow.sdk.BaseSensorOperator\n{NO_NETWORK}\nbefore = set(sys.modules)"
    after = f"print('LOADED', *[m for m in {heavy!r} if m in sys.modules and m not in before])"
    done = subprocess.run(
        [sys.executable, "-c", f"{before}\n{program}\n{after}"],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(done.stdout.rpartition("LOADED")[2].split())


def test_importing_the_sensors_and_triggers_loads_neither_pyarrow_nor_pyspark() -> None:
    assert loaded_by("import airflow_delta.sensors, airflow_delta.triggers") == set()


def test_importing_the_operators_loads_neither_pyarrow_nor_pyspark() -> None:
    assert loaded_by("import airflow_delta.operators, airflow_delta.hooks, airflow_delta.assets") == set()


@pytest.mark.parametrize("example", sorted(EXAMPLES.glob("*.py")), ids=lambda path: path.stem)
def test_parsing_an_example_loads_neither_pyarrow_nor_pyspark(example: Path) -> None:
    assert loaded_by(f"import runpy; runpy.run_path({str(example)!r})") == set()
