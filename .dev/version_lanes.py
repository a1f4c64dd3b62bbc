"""Runs the project with the oldest and with the newest libraries that it allows, and prints a table of what ran.

    python .dev/version_lanes.py [LANE…]

======================  ======  ==========================================================================================
lane                    Python  libraries
======================  ======  ==========================================================================================
``executors``           3.10    the lowest that ``dependencies`` allows, as on Spark's machines: the three lower packages
``lowest``              3.11    the lowest that ``dependencies`` and the extras allow
``newest``              3.14    the newest releases
``airflow-prerelease``  3.14    the newest releases, and the newest pre-release of Airflow; may fail
======================  ======  ==========================================================================================

Versions are read from ``pyproject.toml``, none is named here. A lane whose Python is not on this machine, and cannot be had by uv, is
shown as skipped. The exit code is 1 if a step of a lane failed that may not.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOWER_PACKAGES = ("parquet_parts", "delta_log", "delta_maintenance")
#: Extras that do not belong to what users install.
_OWN_EXTRAS = {"dev", "docs"}
_EXTRAS_OF_AIRFLOW = {"airflow", "kubernetes"}
#: Extras that need a later Python than the oldest of executors, by what obstore's releases ask for.
_EXTRAS_OF_LATER_PYTHON = {"azure"}
#: What the tests of a lane import besides what the lane is about: the releases that fit to it.
_TOOLS = (
    "pytest",
    "pytest-xdist",
    "hypothesis",
    "psutil",
    "requests",
    "packaging",
    "greenlet",
    "deltalake",
    "polars",
    "duckdb",
)
_TOOLS_OF_AIRFLOW = (
    "moto[glue]",
    "flask-cors",
    "jsonschema",
    "tzdata",
    "aiosqlite",
    "asyncpg",
    "psycopg2-binary",
    "pymysql",
    "playwright",
    "statsd",
)
_MAKE_TABLE = "import sys; from pathlib import Path; from tests.support.tables.small_tables import write_days; write_days(Path(sys.argv[1]))"
_SHOWN_LINES = 25


@dataclass(frozen=True)
class Lane:
    """One Python with one choice of libraries.

    :param has_airflow: ``False``: the three lower packages alone, without the extras that bring Airflow.
    """

    name: str
    python: str
    lowest: bool
    has_airflow: bool = True
    prerelease: bool = False

    def requirements(self) -> list[str]:
        extras = PROJECT["project"]["optional-dependencies"]
        left_out = (
            _OWN_EXTRAS if self.has_airflow else _OWN_EXTRAS | _EXTRAS_OF_AIRFLOW | _EXTRAS_OF_LATER_PYTHON
        )
        names = [name for name in extras if name not in left_out]
        if self.lowest:
            extras = extras | {"spark": PROJECT["tool"]["version-lanes"]["spark"]}
        found = [*PROJECT["project"]["dependencies"], *(one for name in names for one in extras[name])]
        if self.prerelease:
            # A version with a letter in a range is how an installer is told that pre-releases count.
            found.append(next(one for one in found if one.startswith("apache-airflow>=")) + "a0")
        return found

    def tools(self) -> tuple[str, ...]:
        return _TOOLS + _TOOLS_OF_AIRFLOW if self.has_airflow else _TOOLS

    def unit_tests(self) -> list[str]:
        return ["tests/unit"] if self.has_airflow else [f"tests/unit/{name}" for name in LOWER_PACKAGES]


LANES = (
    Lane("executors", "3.10", lowest=True, has_airflow=False),
    Lane("lowest", "3.11", lowest=True),
    Lane("newest", "3.14", lowest=False),
    Lane("airflow-prerelease", "3.14", lowest=False, prerelease=True),
)


class Skipped(Exception):
    """The reason why a lane cannot run on this machine."""


class Failed(Exception):
    """The output of what failed."""


@dataclass(frozen=True)
class Row:
    """One line of the table."""

    lane: str
    step: str
    result: str
    seconds: float


def main(names: Sequence[str]) -> int:
    unknown = set(names) - {lane.name for lane in LANES}
    if unknown:
        print(f"There is no lane {', '.join(sorted(unknown))}: {', '.join(lane.name for lane in LANES)}")
        return 2
    rows: list[Row] = []
    for lane in LANES:
        if not names or lane.name in names:
            rows += _run(lane)
    _print_table(rows)
    failed = sum(row.result.startswith("failed") and row.lane != "airflow-prerelease" for row in rows)
    print(f"\n{sum(row.result == 'passed' for row in rows)} passed, {failed} failed")
    return 1 if failed else 0


def _run(lane: Lane) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix=f"lane-{lane.name}-") as directory:
        here = Path(directory)
        steps: dict[str, Callable[[], str]] = {
            "install": lambda: _install(lane, here),
            "unit tests": lambda: _pytest(here, "-n", "2", "-q", *lane.unit_tests()),
            "OPTIMIZE, local": lambda: _optimize(here, "local"),
            "OPTIMIZE, Spark local[*]": lambda: _optimize(here, "spark"),
        }
        if lane.has_airflow:
            live = "tests/integration/airflow_live/test_airflow_operators.py"
            steps["Airflow, every operator"] = lambda: _pytest(here, "-q", live)
        if lane.prerelease:
            watchers = "tests/integration/airflow_live/test_airflow_tail.py"
            steps["Airflow, watchers and sensors"] = lambda: _pytest(here, "-q", watchers)
            page = "tests/integration/tables_page"
            steps["Airflow, the page"] = lambda: _pytest(here, "-q", page)
        for step, action in steps.items():
            started = time.monotonic()
            print(f"\n==> {lane.name}: {step}", flush=True)
            try:
                detail, result = action(), "passed"
            except Skipped as skipped:
                detail, result = str(skipped), f"skipped: {skipped}"
            except Failed as failed:
                detail, result = str(failed), "failed (allowed)" if lane.prerelease else "failed"
            print("\n".join(detail.strip().splitlines()[-_SHOWN_LINES:]), flush=True)
            yield Row(lane.name, step, result, time.monotonic() - started)
            if step == "install" and result != "passed":
                return


def _install(lane: Lane, here: Path) -> str:
    """Make the environment of a lane. Return the versions of what ``pyproject.toml`` names."""
    base = _find_python(lane.python)
    if base is None:
        raise Skipped(f"no Python {lane.python}: PATH has none, and uv cannot install it here")
    _call("uv", "venv", "--quiet", "--python", base, here / "venv", cwd=here)
    requirements = lane.requirements()
    resolution = "lowest-direct" if lane.lowest else "highest"
    # The directory is not that of the project, whose constraints are those of the lock.
    install = ("uv", "pip", "install", "--quiet", "--python", _python(here))
    _call(*install, "--resolution", resolution, *requirements, cwd=here)
    installed = _call("uv", "pip", "freeze", "--python", _python(here), cwd=here, only_output=True)
    (here / "installed.txt").write_text(installed)
    _call(*install, "--constraints", here / "installed.txt", *lane.tools(), cwd=here)
    if lane.has_airflow:
        _call(*install, "--no-deps", "--editable", ROOT, cwd=here)
    named = {re.split(r"[\[<>=!~; ]", one)[0].lower() for one in requirements}
    return "  ".join(line for line in installed.splitlines() if line.partition("==")[0].lower() in named)


def _find_python(version: str) -> str | None:
    """Find an interpreter on PATH, among those of pyenv, or by uv."""
    candidates = [shutil.which(f"python{version}")]
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    candidates += sorted(map(str, pyenv.glob(f"versions/{version}.*/bin/python{version}")), reverse=True)
    for candidate in candidates:
        if candidate and _runs(candidate, "-c", "import venv, ssl, sqlite3"):
            return candidate
    _runs("uv", "python", "install", version)
    found = subprocess.run(
        ["uv", "python", "find", "--managed-python", version], capture_output=True, text=True, check=False
    )
    return found.stdout.strip() or None


def _optimize(here: Path, engine: str) -> str:
    """Compact a table of six files by the command line."""
    table = here / f"table-{engine}"
    _call(_python(here), "-c", _MAKE_TABLE, table, env=_environment(here))
    command = ("-m", "delta_maintenance", "optimize", table, "--engine", engine, "--json")
    report = json.loads(_call(_python(here), *command, env=_environment(here), only_output=True))
    if (report["status"], report["metrics"]["numRemovedFiles"]) != ("committed", 6):
        raise Failed(json.dumps(report, indent=1))
    return f"{report['status']}: {report['metrics']['numRemovedFiles']} files became {report['metrics']['numAddedFiles']}"


def _pytest(here: Path, *arguments: str) -> str:
    return _call(_python(here), "-m", "pytest", *arguments, env=_environment(here))


def _environment(here: Path) -> dict[str, str]:
    python = _python(here)
    return os.environ | {
        "VIRTUAL_ENV": str(here / "venv"),
        "PATH": f"{python.parent}{os.pathsep}{os.environ['PATH']}",
        "PYSPARK_PYTHON": str(python),
        "PYTHONPATH": str(ROOT / "provider"),
        "REPETITIONS": os.environ.get("REPETITIONS", "0.1"),
    }


def _python(here: Path) -> Path:
    return here / "venv" / "bin" / "python"


def _call(
    *command: str | Path, cwd: Path = ROOT, env: dict[str, str] | None = None, only_output: bool = False
) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, cwd=cwd, env=env
    )
    if done.returncode:
        raise Failed(done.stdout + done.stderr)
    return done.stdout if only_output else done.stdout + done.stderr


def _runs(*command: str) -> bool:
    return subprocess.run(list(command), capture_output=True, check=False).returncode == 0


def _print_table(rows: Sequence[Row]) -> None:
    print("\n| lane | step | result | seconds |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row.lane} | {row.step} | {row.result} | {row.seconds:.0f} |")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
