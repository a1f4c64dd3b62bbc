"""Runs the project with the oldest and with the newest libraries that it allows, and prints a table of what ran.

    python .dev/version_lanes.py [--quick] [LANE…]

======================  ======  ==========================================================================================
lane                    Python  libraries
======================  ======  ==========================================================================================
``executors``           3.10    the lowest that ``dependencies`` allows, as on Spark's machines: the three lower packages
``lowest``              3.11    the lowest that ``dependencies`` and the extras allow
``newest``              3.14    the newest releases
``airflow-prerelease``  3.14    the newest releases, and the newest pre-release of Airflow; may fail
``wheel``               both    the wheel without extras, with each extra and with all, by pip, on 3.11 and on 3.14
======================  ======  ==========================================================================================

Versions are read from ``pyproject.toml``, none is named here. A lane whose Python cannot be had (``pythons.py``) is shown as skipped; of
the lane ``wheel`` it is a failure. The exit code is 1 if a step of a lane failed that may not.

``--quick`` runs the unit tests of the folders whose code calls the libraries most, without random input, and leaves out the live Airflow.
`.ci/run` runs the lane ``lowest`` so.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from itertools import product
from pathlib import Path

import tomllib

from environment import uv_index
from pythons import find_python

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LOWER_PACKAGES = ("parquet_parts", "delta_log", "delta_maintenance")
#: Extras that do not belong to what users install.
_OWN_EXTRAS = {"dev", "docs"}
#: Folders of unit tests whose code calls Arrow, NumPy, Roaring bitmaps, sqlglot, the clients of stores or Airflow.
_QUICK_TESTS = (
    "parquet_parts",
    *(
        f"delta_log/{name}"
        for name in ("arrow", "checkpoint", "data", "snapshot", "stats", "storage/objects")
    ),
    *(f"delta_maintenance/{name}" for name in ("partitions", "rewrite")),
    *(f"airflow_delta/{name}" for name in ("hooks", "operators")),
)
USER_EXTRAS = tuple(sorted(set(PROJECT["project"]["optional-dependencies"]) - _OWN_EXTRAS))
WHEEL = "wheel"
#: The Python and the extras of each installation of the wheel.
WHEEL_CELLS = tuple(product(("3.11", "3.14"), ("none", *USER_EXTRAS, "all")))
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
    "aiohttp",
    "cryptography",
    "packaging",
    "greenlet",
    "deltalake",
    "polars",
    "duckdb",
)
_TOOLS_OF_AIRFLOW = (
    "apache-airflow-providers-amazon",
    "apache-airflow-providers-openlineage",
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

    def unit_tests(self, quick: bool) -> list[str]:
        """Return the arguments of pytest; a pre-release of Airflow concerns one package alone."""
        packages: tuple[str, ...] = () if self.prerelease else LOWER_PACKAGES
        packages += ("airflow_delta",) if self.has_airflow else ()
        folders = [name for name in (_QUICK_TESTS if quick else packages) if name.startswith(packages)]
        left_out = [] if self.has_airflow else [f"*_{extra}*.py" for extra in sorted(_EXTRAS_OF_LATER_PYTHON)]
        return [
            *(["-m", "not hypothesis and not random_tables"] if quick else []),
            *(f"--ignore-glob={pattern}" for pattern in left_out),
            *(f"tests/unit/{name}" for name in folders),
        ]


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
    """One line of the table.

    :param versions: after an installation: the version of each library that ``pyproject.toml`` names, and of Python
    """

    lane: str
    step: str
    result: str
    seconds: float
    versions: Mapping[str, str] = field(default_factory=dict)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="./dev test-versions")
    parser.add_argument("--quick", action="store_true")
    names = [*(lane.name for lane in LANES), WHEEL]
    parser.add_argument("lanes", nargs="*", metavar="LANE", help=", ".join(names))
    given = parser.parse_args(arguments)
    if unknown := set(given.lanes) - set(names):
        parser.error(f"there is no lane {', '.join(sorted(unknown))}")
    chosen = given.lanes or names
    rows: list[Row] = []
    for lane in LANES:
        if lane.name in chosen:
            rows += _run(lane, given.quick)
    if WHEEL in chosen:
        rows += map(_run_wheel, WHEEL_CELLS)
    if installed := [row for row in rows if row.versions]:
        _print_versions(installed)
    _print_steps(rows)
    results = Counter(row.result.partition(":")[0] for row in rows)
    print(f"\n{results['passed']} passed, {results['failed']} failed, {results['skipped']} skipped")
    return 1 if results["failed"] else 0


def _run(lane: Lane, quick: bool) -> Iterator[Row]:
    with tempfile.TemporaryDirectory(prefix=f"lane-{lane.name}-") as directory:
        here = Path(directory)
        installation = _row(lane.name, "install", lambda: _install(lane, here), lane.prerelease)
        if installation.result != "passed":
            yield installation
            return
        yield replace(installation, versions=_versions(lane, here))
        for step, action in _steps(lane, here, quick).items():
            yield _row(lane.name, step, action, lane.prerelease)


def _steps(lane: Lane, here: Path, quick: bool) -> dict[str, Callable[[], str]]:
    """Return what is run in a lane's environment."""
    steps = {
        "unit tests": lambda: _pytest(here, "-n", "2", "-q", *lane.unit_tests(quick)),
        "OPTIMIZE, local": lambda: _optimize(here, "local"),
        "OPTIMIZE, Spark local[*]": lambda: _optimize(here, "spark"),
    }
    live = "tests/integration/airflow_live"
    if lane.prerelease and not quick:
        steps["Airflow, all live tests"] = lambda: _pytest(here, "-q", live)
        steps["Airflow, the page"] = lambda: _pytest(here, "-q", "tests/integration/tables_page")
    elif lane.has_airflow and not quick:
        steps["Airflow, every operator"] = lambda: _pytest(here, "-q", f"{live}/test_airflow_operators.py")
    return steps


def _run_wheel(cell: tuple[str, str]) -> Row:
    test = f"tests/integration/test_wheel.py::test_pip_installs_the_wheel[{'-'.join(cell)}]"
    # CI: what is missing on this machine is a failure.
    environment = os.environ | {"MATRIX": "whole", "CI": "true"}
    pytest = (sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", test)
    return _row(WHEEL, ", ".join(cell), lambda: _call(*pytest, env=environment))


def _row(lane: str, step: str, action: Callable[[], str], may_fail: bool = False) -> Row:
    """Run a step and print the end of what it printed."""
    started = time.monotonic()
    print(f"\n==> {lane}: {step}", flush=True)
    try:
        detail, result = action(), "passed"
    except Skipped as skipped:
        detail, result = str(skipped), f"skipped: {skipped}"
    except Failed as failed:
        detail, result = str(failed), "failed (allowed)" if may_fail else "failed"
    print("\n".join(detail.strip().splitlines()[-_SHOWN_LINES:]), flush=True)
    return Row(lane, step, result, time.monotonic() - started)


def _install(lane: Lane, here: Path) -> str:
    """Make the environment of a lane."""
    base = find_python(lane.python, here)
    if base is None:
        missing = f"no Python {lane.python} on PATH, from pyenv, by uv or from Maven"
        raise Failed(missing) if os.environ.get("CI") else Skipped(missing)
    # The directory is not that of the project, whose constraints are those of the lock.
    uv = partial(_call, "uv", cwd=here, env=os.environ | uv_index(), only_output=True)
    uv("venv", "--quiet", "--python", base, here / "venv")
    install = ("pip", "install", "--quiet", "--python", _python(here))
    uv(*install, "--resolution", "lowest-direct" if lane.lowest else "highest", *lane.requirements())
    installed = uv("pip", "freeze", "--python", _python(here))
    (here / "installed.txt").write_text(installed)
    uv(*install, "--constraints", here / "installed.txt", *lane.tools())
    if lane.has_airflow:
        uv(*install, "--no-deps", "--editable", ROOT)
    return installed


def _versions(lane: Lane, here: Path) -> dict[str, str]:
    named = [re.split(r"[\[<>=!~; ]", one)[0].lower() for one in lane.requirements()]
    lines = (here / "installed.txt").read_text().splitlines()
    installed = {name: version for name, _, version in (line.partition("==") for line in lines)}
    python = _call(_python(here), "--version", only_output=True).removeprefix("Python").strip()
    return {"Python": python} | {name: installed[name] for name in named}


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


def _print_versions(lanes: Sequence[Row]) -> None:
    """Print the installed versions, with a column for each lane."""
    print(
        f"\n| {datetime.now(UTC):%Y-%m-%d} | {' | '.join(row.lane for row in lanes)} |\n|---|{'---|' * len(lanes)}"
    )
    for name in dict.fromkeys(name for row in lanes for name in row.versions):
        print(f"| {name} | {' | '.join(row.versions.get(name, '-') for row in lanes)} |")


def _print_steps(rows: Sequence[Row]) -> None:
    print("\n| lane | step | result | seconds |\n|---|---|---|---|")
    for row in rows:
        print(f"| {row.lane} | {row.step} | {row.result} | {row.seconds:.0f} |")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
