"""The promises that the repository's own files make to each other."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import grimp
import pytest
import tomllib
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from tests.support import ROOT
from tests.support.checks.private_parts import private_parts

from delta_log.version import VERSION

_PACKAGES = ("parquet_parts", "delta_log", "delta_maintenance", "airflow_delta")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]

#: Each machine is configured with the registries it uses, so no file may name one. This list is written in parts,
#: since this file is searched, too.
REGISTRIES = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("repo", "maven", "apache", "org"),
        ("repo1", "maven", "org"),
        ("registry", "npmjs", "org"),
        ("conda", "anaconda", "org"),
        ("proxy", "golang", "org"),
        ("index", "crates", "io"),
    )
]


def requirements() -> list[Requirement]:
    extras = PROJECT["optional-dependencies"].values()
    return [
        Requirement(line)
        for line in (*PROJECT["dependencies"], *(line for extra in extras for line in extra))
    ]


def locked() -> dict[str, set[str]]:
    """Returns the locked versions by name; several where they differ by Python release."""
    versions: dict[str, set[str]] = {}
    for name, version in re.findall(
        r"^([\w.-]+)==([^\s;]+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE
    ):
        versions.setdefault(canonicalize_name(name), set()).add(version)
    return versions


def files() -> Iterator[Path]:
    """Returns the files of the repository, those not yet added included."""
    skipped = re.compile(
        r"(^|/)(\.git|\.venv|node_modules|dist|_build|__pycache__|\.hypothesis|\.\w+_cache)(/|$)"
    )
    for path in sorted(ROOT.rglob("*")):
        if path.is_file() and not skipped.search(path.relative_to(ROOT).as_posix()):
            yield path


def test_the_import_contracts_hold() -> None:
    program = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [program, "--config", "setup.cfg", "--no-cache"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout


def test_no_modules_import_each_other() -> None:
    """Imports under ``TYPE_CHECKING`` and inside functions count."""
    graph = grimp.build_graph(*_PACKAGES, cache_dir=None)
    imports = {module: graph.find_modules_directly_imported_by(module) for module in graph.modules}
    TopologicalSorter(imports).prepare()  # a cycle is a CycleError, which names its modules


def test_what_libraries_have_not_promised_is_used_where_a_table_says_why() -> None:
    table = (ROOT / "CONTRIBUTING.md").read_text().partition("| module | part |")[2].partition("\n\n")[0]
    rows = re.findall(r"^ *\| `([\w.]+)` \| (.+?) \|", table, re.MULTILINE)
    said = {(module, name) for module, names in rows for name in re.findall(r"`([\w.]+)`", names)}
    assert private_parts(ROOT / "provider") == said


@pytest.mark.parametrize("folder", sorted({path.parent for path in (ROOT / "provider").rglob("*.py")}))
def test_a_folder_has_no_more_modules_than_a_person_can_hold(folder: Path) -> None:
    modules = [path for path in folder.glob("*.py") if not path.name.startswith("__")]
    assert len(modules) <= 12


@pytest.mark.parametrize("requirement", requirements(), ids=str)
def test_the_lock_satisfies_every_requirement_of_the_project(requirement: Requirement) -> None:
    versions = locked()[canonicalize_name(requirement.name)]
    assert all(requirement.specifier.contains(version) for version in versions)


def test_pyspark_and_its_client_own_the_same_files_and_are_locked_at_one_version() -> None:
    assert len(locked()["pyspark"]) == 1
    assert locked()["pyspark"] == locked()["pyspark-client"]


def test_no_file_names_a_package_registry() -> None:
    found = []
    for path in files():
        text = path.read_bytes().decode(errors="ignore")
        found += [f"{path.relative_to(ROOT)}: {host}" for host in REGISTRIES if host in text]
    assert found == []


def test_the_changelog_has_an_entry_for_this_version() -> None:
    assert f"\n## [{VERSION}]" in (ROOT / "CHANGELOG.md").read_text()


@pytest.mark.parametrize("package", _PACKAGES)
def test_every_package_says_that_it_is_typed(package: str) -> None:
    assert (ROOT / "provider" / package / "py.typed").is_file()


#: What the directories of tests/unit mirror.
_MIRRORED = {"support": ROOT / "tests", **dict.fromkeys(_PACKAGES, ROOT / "provider")}


def _unit_tests() -> list[str]:
    unit = ROOT / "tests" / "unit"
    return [path.relative_to(unit).as_posix() for path in sorted(unit.rglob("test_*.py"))]


@pytest.mark.parametrize("path", _unit_tests())
def test_a_unit_test_has_the_name_of_a_module(path: str) -> None:
    """What tests several modules belongs into tests/scenarios."""
    directory, _, file = path.rpartition("/")
    home = _MIRRORED[directory.partition("/")[0]] / directory
    name = file.removeprefix("test_").removesuffix(".py")
    assert (home / f"{name}.py").exists() or (home / name).is_dir(), path


def test_no_test_imports_another() -> None:
    imported = re.compile(r"^\s*(?:from|import) tests\.(?:unit|integration|scenarios)\b", re.MULTILINE)
    found = [path for path in (ROOT / "tests").rglob("*.py") if imported.search(path.read_text())]
    assert found == []


def test_dev_alone_prints_help_and_makes_nothing(tmp_path: Path) -> None:
    dev = tmp_path / "dev"
    dev.write_bytes((ROOT / "dev").read_bytes())
    done = subprocess.run(["bash", dev], capture_output=True, text=True, check=True, cwd="/")
    assert done.stdout.startswith("usage: ./dev COMMAND")
    assert list(tmp_path.iterdir()) == [dev]


def test_dev_says_in_one_line_that_there_is_no_python(tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/bash", ROOT / "dev", "lint"],
        capture_output=True,
        text=True,
        check=False,
        env={"PATH": str(tmp_path)},
    )
    assert done.returncode == 1
    assert done.stderr.startswith("./dev: needs Python 3.11")
