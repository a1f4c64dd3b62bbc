"""What a machine tells of the library, without loading it."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark import cloudpickle

import delta_maintenance
from delta_maintenance.engine.spark.cluster_check import _probe
from delta_maintenance.process.bundle import PACKAGES, build_bundle

pytestmark = pytest.mark.slow

HOME = Path(delta_maintenance.__file__).parents[1]
#: As a task on another machine runs it: it arrives by value.
ASKED = """
import sys
from pyspark import cloudpickle
print(cloudpickle.loads(bytes.fromhex(sys.argv[1]))())
assert not {"parquet_parts", "delta_log", "delta_maintenance"} & set(sys.modules)
"""


def sources_where(path: Path) -> str:
    probe = cloudpickle.dumps(_probe(())).hex()  # type: ignore[no-untyped-call]
    # Isolated from the installation that the tests run from; PySpark itself comes from there.
    program = f"import sys; sys.path[:] = [{str(path)!r}, *sys.path]\n{ASKED}"
    found = subprocess.run([sys.executable, "-c", program, probe], capture_output=True, text=True, check=True)
    return str(json.loads(found.stdout)["sources"])


def test_machines_with_the_same_sources_say_the_same_and_an_older_release_does_not(tmp_path: Path) -> None:
    same, older = tmp_path / "same", tmp_path / "older"
    for home in (same, older):
        for package in PACKAGES:
            shutil.copytree(HOME / package, home / package, ignore=shutil.ignore_patterns("__pycache__"))
    with (older / "delta_log" / "scan.py").open("a") as file:
        file.write("# other\n")
    here = json.loads(_probe(())())["sources"]
    assert sources_where(same) == here
    assert sources_where(older) not in (here, "")


def test_a_bundle_is_known_by_its_name(tmp_path: Path) -> None:
    bundle = build_bundle(tmp_path)
    assert sources_where(bundle) == bundle.name
