"""The wheel: without extras it serves where neither Airflow nor PySpark is installed; with each extra pip finds libraries that work."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tomllib
from tests.support import ROOT
from tests.support.environment.prerequisites import absent
from tests.support.tables.small_tables import write_days

if str(ROOT / ".dev") not in sys.path:
    sys.path.insert(0, str(ROOT / ".dev"))

from pythons import find_python

EXTRAS = sorted(
    set(tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"])
    - {"dev", "docs"}
)


def run(*command: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    # A caller's PYTHONPATH would bring back what the new environment must do without.
    environment = {
        name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")
    }
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, **more)


def uv(*arguments: str | Path) -> None:
    done = run(sys.executable, "-m", "uv", *arguments)
    if done.returncode and any(sign in done.stderr for sign in ("error sending request", "Failed to fetch")):
        absent(
            "a package index", f"to install the wheel's dependencies: {done.stderr.strip().splitlines()[-1]}"
        )
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    target = tmp_path_factory.mktemp("dist")
    done = run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", target, ROOT)
    assert done.returncode == 0, done.stdout + done.stderr
    return next(target.glob("*.whl"))


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a new environment with the wheel and its locked dependencies, and nothing else."""
    environment = tmp_path_factory.mktemp("wheel") / "venv"
    uv("venv", "--python", sys.executable, environment)
    interpreter = environment / "bin" / "python"
    uv("pip", "install", "--python", interpreter, "--constraints", ROOT / "requirements.lock", wheel)
    return interpreter


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """One commit with one file that holds three rows, written by hand."""
    schema = {"type": "struct", "fields": [{"name": "id", "type": "long", "nullable": True, "metadata": {}}]}
    metadata = {
        "id": "5f0d1f0a-6c5f-4b4e-8a53-3d1f7b1f2a10",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps(schema),
        "partitionColumns": [],
        "configuration": {},
        "createdTime": 0,
    }
    add = {
        "path": "part-0.parquet",
        "partitionValues": {},
        "size": 7,
        "modificationTime": 0,
        "dataChange": True,
        "stats": '{"numRecords":3}',
    }
    actions = [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": metadata},
        {"add": add},
    ]
    log = tmp_path / "table" / "_delta_log"
    log.mkdir(parents=True)
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)) + "\n")
    return log.parent


def test_the_wheel_holds_the_three_packages_and_nothing_else(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {
        "airflow_delta",
        "parquet_parts",
        "delta_log",
        "delta_maintenance",
    }
    assert {"delta_log/py.typed", "delta_maintenance/py.typed", "airflow_delta/py.typed"} <= set(names)


@pytest.mark.parametrize("package", ["airflow", "pyspark"])
def test_an_installation_without_extras_has_no_heavy_package(python: Path, package: str) -> None:
    assert f"No module named '{package}'" in run(python, "-c", f"import {package}").stderr


#: Modules that need the client of an extra. They are loaded when a table there is opened.
OF_EXTRAS = {f"delta_log.storage.objects.{name}" for name in ("object_store", "s3", "gcs", "azure")}


def test_every_module_of_the_lower_packages_can_be_imported(python: Path) -> None:
    modules = {
        ".".join(path.relative_to(ROOT / "provider").with_suffix("").parts).removesuffix(".__init__")
        for package in ("parquet_parts", "delta_log", "delta_maintenance")
        for path in sorted((ROOT / "provider" / package).rglob("*.py"))
    }
    assert modules > OF_EXTRAS
    program = "".join(f"import {module}\n" for module in sorted(modules - OF_EXTRAS))
    done = run(python, "-c", program, cwd="/")
    assert done.returncode == 0, done.stderr


def test_the_command_line_inspects_a_table(python: Path, table: Path) -> None:
    done = run(python.with_name("delta-maintenance"), "inspect", table, "--json", cwd="/")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["version"], found["numFiles"], found["sizeInBytes"]) == (0, 1, 7)


@pytest.mark.slow
@pytest.mark.parametrize("python_version", ["3.11", "3.12", "3.13", "3.14"])
def test_the_documented_installation_beside_a_given_airflow_resolves(
    wheel: Path, tmp_path: Path, python_version: str
) -> None:
    page = (ROOT / "docs" / "getting-started" / "installation.md").read_text()
    (installed,) = re.findall(r'pip install "(apache-airflow==[^"]+)" "(airflow-provider-delta[^"]+)"', page)
    airflow, package = installed
    (tmp_path / "requirements.in").write_text(f"{airflow}\n{package} @ {wheel.as_uri()}\n")
    uv(
        *("pip", "compile", "--quiet", "--python-version", python_version),
        *(tmp_path / "requirements.in", "--output-file", tmp_path / "requirements.txt"),
    )
    assert airflow in (tmp_path / "requirements.txt").read_text().splitlines()


@pytest.fixture(scope="module", params=["3.11", "3.14"])
def base_python(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    scratch = tmp_path_factory.mktemp("python")
    found = find_python(request.param, scratch)
    yield found or absent(f"Python {request.param}", "to install the wheel there")
    shutil.rmtree(scratch)


@pytest.fixture
def fresh_python(base_python: Path, tmp_path: Path) -> Iterator[Path]:
    """The interpreter of a new environment with pip, which is removed after the test: with Airflow it has a gigabyte."""
    environment = tmp_path / "venv"
    done = run(base_python, "-m", "venv", environment)
    assert done.returncode == 0, done.stdout + done.stderr
    yield environment / "bin" / "python"
    shutil.rmtree(environment)


def succeeds(*command: str | Path) -> str:
    done = run(*command, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("extras", ["", *EXTRAS, ",".join(EXTRAS)])
def test_what_pip_installs_with_extras_compacts_a_table(
    wheel: Path, fresh_python: Path, tmp_path: Path, extras: str
) -> None:
    requirement = f"airflow-provider-delta[{extras}] @ {wheel.as_uri()}"
    # pip would keep each PySpark that it builds: half a gigabyte.
    done = run(fresh_python, "-m", "pip", "install", "--quiet", "--no-cache-dir", requirement)
    if "Failed to establish a new connection" in done.stderr:
        absent("a package index", "to install the wheel with its extras")
    assert done.returncode == 0, done.stdout + done.stderr
    succeeds(fresh_python, "-m", "pip", "check")
    listed = json.loads(succeeds(fresh_python, "-m", "pip", "list", "--format", "json"))
    versions = {package["name"]: package["version"] for package in listed}
    has_spark = "spark" in extras.split(",")
    if has_spark:
        assert versions["pyspark"] == versions["pyspark-client"]
    program = fresh_python.with_name("delta-maintenance")
    succeeds(program, "doctor", *(["--spark"] if has_spark else []))
    for engine in ["local", *(["spark"] if has_spark else [])]:
        table = tmp_path / engine
        write_days(table)
        report = json.loads(succeeds(program, "optimize", table, "--engine", engine, "--json"))
        assert (report["status"], report["metrics"]["numRemovedFiles"]) == ("committed", 6)
