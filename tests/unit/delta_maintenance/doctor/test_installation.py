"""The checks of what is installed: a process that lacks a library is told which, and how to get it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

#: Runs the command line in an installation that lacks some packages.
WITHOUT = """
import sys
from importlib.machinery import PathFinder
missing = set(sys.argv[1].split(","))
class Finder(PathFinder):
    @classmethod
    def find_spec(cls, name, path=None, target=None):
        if name.partition(".")[0] in missing:
            return None
        return super().find_spec(name, path, target)
sys.meta_path = [Finder if finder is PathFinder else finder for finder in sys.meta_path]
del sys.argv[1]
from delta_maintenance.__main__ import run
run()
"""


def doctor(missing: str, *arguments: str) -> tuple[int, dict[str, dict[str, str]]]:
    command = [sys.executable, "-c", WITHOUT, missing, "doctor", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    document = json.loads(done.stdout)
    return done.returncode, {check["name"]: check for check in document["checks"]}


@pytest.mark.parametrize("package", ["pyroaring", "pyarrow"])
def test_a_missing_library_is_named(tmp_path: Path, package: str) -> None:
    code, checks = doctor(package, "--table", str(tmp_path))
    assert code == 1
    assert checks["python.libraries"]["status"] == "failure"
    assert package in checks["python.libraries"]["message"]
    assert "airflow-provider-delta" in checks["python.libraries"]["remedy"]
    assert checks["store.open"]["status"] == "skipped"


def test_a_command_that_cannot_even_start_says_why() -> None:
    command = [sys.executable, "-c", WITHOUT, "msgspec", "doctor", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "delta-maintenance: this Python lacks msgspec. Install airflow-provider-delta with its dependencies into it.\n"
    )


def test_a_missing_client_of_a_store_names_its_extra() -> None:
    code, checks = doctor("obstore", "--table", "s3://lake/t")
    assert code == 1
    assert checks["store.client"]["remedy"] == "Install airflow-provider-delta[s3]."
    assert checks["store.open"]["status"] == "skipped"


def test_nothing_missing_is_success() -> None:
    code, checks = doctor("no_such_package")
    assert code == 0
    assert set(checks) == {"python.libraries"}
