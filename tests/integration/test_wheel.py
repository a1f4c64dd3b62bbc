"""The wheel: without extras it serves where neither Airflow nor PySpark is installed, and pip can install it with each of them.

`./dev test-versions wheel` runs each choice of extras on each Python, other runs of the slow tier all extras on the oldest Python alone.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.support import ROOT
from tests.support.environment.prerequisites import absent, require
from tests.support.tables.small_tables import write_days

if str(ROOT / ".dev") not in sys.path:
    sys.path.insert(0, str(ROOT / ".dev"))

from pythons import find_python
from version_lanes import USER_EXTRAS, WHEEL_CELLS

#: The extras that bring PySpark's driver, and with it the embedded Spark.
_OF_SPARK = {"spark", "all"}
#: What a caller's environment would bring back that the new one must do without, and the Python that its Spark's workers would have.
_OF_CALLER = ("PYTHONPATH", "VIRTUAL_ENV", "PYSPARK_PYTHON", "SPARK_CONF_DIR")
#: What uv and pip say where they reach no package index.
_WITHOUT_AN_INDEX = ("error sending request", "Failed to fetch", "(from versions: none)")


def run(*command: str | Path, **more: Any) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if name not in _OF_CALLER}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment, **more)


def uv(*arguments: str | Path) -> None:
    installed(sys.executable, "-m", "uv", *arguments)


def installed(*command: str | Path) -> None:
    """Run an installer, which may find no package index."""
    done = run(*command, cwd="/")
    if done.returncode and any(sign in done.stderr for sign in _WITHOUT_AN_INDEX):
        absent(
            "a package index", f"to install the wheel's dependencies: {done.stderr.strip().splitlines()[-1]}"
        )
    assert done.returncode == 0, done.stdout + done.stderr


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


def cells_of_run() -> tuple[tuple[str, str], ...]:
    """Return the Python and the extras of each installation by pip in this run."""
    return WHEEL_CELLS if os.environ.get("MATRIX") == "whole" else (("3.11", "all"),)


@pytest.mark.slow
@pytest.mark.parametrize(("python_version", "extras"), cells_of_run())
def test_pip_installs_the_wheel(wheel: Path, tmp_path: Path, python_version: str, extras: str) -> None:
    if extras in _OF_SPARK and "JAVA_HOME" not in os.environ:
        require("java", "to run Spark")
    # An environment of up to 1.2 GB, which pytest would keep for three runs.
    with tempfile.TemporaryDirectory(prefix="wheel-") as directory:
        python = pip_environment(Path(directory), python_version, wheel, extras)
        assert python_program(python, "-m", "pip", "check") == "No broken requirements found.\n"
        write_days(tmp_path / "doctor")
        python_program(python.with_name("delta-maintenance"), "doctor", "--table", tmp_path / "doctor")
        for engine in ("local", "spark") if extras in _OF_SPARK else ("local",):
            optimize(python, tmp_path / engine, engine)
        if extras in _OF_SPARK:
            check_the_pair_of_pyspark(python, wheel)


def pip_environment(directory: Path, python_version: str, wheel: Path, extras: str) -> Path:
    """Return the interpreter of a new environment in which pip has resolved and installed the wheel with its extras."""
    base = find_python(python_version, directory) or absent(
        f"Python {python_version}", "to install the wheel there; neither pyenv nor uv nor Maven has it"
    )
    python_program(base, "-m", "venv", directory / "venv")
    python = directory / "venv" / "bin" / "python"
    chosen = {"none": "", "all": f"[{','.join(USER_EXTRAS)}]"}.get(extras, f"[{extras}]")
    # Python compiles the few modules that are loaded.
    install = ("-m", "pip", "install", "--quiet", "--no-compile")
    installed(python, *install, f"airflow-provider-delta{chosen} @ {wheel.as_uri()}")
    return python


def optimize(python: Path, table: Path, engine: str) -> None:
    write_days(table)
    command = (python.with_name("delta-maintenance"), "optimize", table, "--engine", engine, "--json")
    report = json.loads(python_program(*command))
    metrics = report["metrics"]
    assert (report["status"], metrics["numRemovedFiles"], metrics["numAddedFiles"]) == ("committed", 6, 2)


def check_the_pair_of_pyspark(python: Path, wheel: Path) -> None:
    """Check that pip has installed PySpark and its client, which own the same files, at one version, and refuses another client."""
    versions = "from importlib.metadata import version; print(version('pyspark'), version('pyspark-client'))"
    pyspark, client = python_program(python, "-c", versions).split()
    assert pyspark == client
    other = ("-m", "pip", "install", "--dry-run", f"airflow-provider-delta[spark] @ {wheel.as_uri()}")
    done = run(python, *other, "pyspark-client!=" + client, cwd="/")
    assert done.returncode == 1
    assert "ResolutionImpossible" in done.stderr


def python_program(*command: str | Path) -> str:
    """Return the standard output of a program that must succeed."""
    done = run(*command, cwd="/")
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize("python_version", ["3.11", "3.12", "3.13"])
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
