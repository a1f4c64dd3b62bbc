from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import delta_maintenance
from delta_maintenance.process.bundle import PACKAGES, build_bundle

HOME = Path(delta_maintenance.__file__).parents[1]


def run(program: str, path: Path | str) -> str:
    """The output of a program that finds nothing of ours but in `path`."""
    environment = {**os.environ, "PYTHONPATH": str(path), "PYTHONSAFEPATH": "1"}
    result = subprocess.run(
        [sys.executable, "-c", program], env=environment, cwd="/", capture_output=True, text=True, check=True
    )
    return result.stdout.strip()


def test_the_bundle_holds_the_packages_of_a_job_and_nothing_else(tmp_path: Path) -> None:
    names = zipfile.ZipFile(build_bundle(tmp_path)).namelist()
    assert {
        "parquet_parts/footer.py",
        "delta_log/__init__.py",
        "delta_maintenance/contract.py",
        "delta_maintenance/rewrite/bin.py",
    } <= set(names)
    assert {name.partition("/")[0] for name in names} == {"parquet_parts", "delta_log", "delta_maintenance"}
    assert all(name.endswith(".py") for name in names)


def test_the_same_sources_give_the_same_bytes_wherever_they_are(tmp_path: Path) -> None:
    bundle = build_bundle(tmp_path / "here")
    elsewhere = tmp_path / "elsewhere"
    for package in PACKAGES:
        shutil.copytree(HOME / package, elsewhere / package)
    (elsewhere / "delta_log" / "old.pyc").write_bytes(b"")
    program = (
        "import sys; from pathlib import Path; from delta_maintenance.process.bundle import build_bundle; "
    )
    other = Path(run(f"{program} print(build_bundle(Path({str(tmp_path / 'there')!r})))", elsewhere))
    assert other.name == bundle.name
    assert other.read_bytes() == bundle.read_bytes()


def name_built_by(library: Path, directory: Path) -> str:
    """The name of the bundle that these sources build."""
    program = "from pathlib import Path; from delta_maintenance.process.bundle import build_bundle; "
    return run(f"{program} print(build_bundle(Path({str(directory)!r})).name)", library)


def test_a_bundle_builds_itself_again(tmp_path: Path) -> None:
    bundle = build_bundle(tmp_path)
    assert name_built_by(bundle, tmp_path / "again") == bundle.name


def test_a_changed_source_makes_another_bundle(tmp_path: Path) -> None:
    copy = tmp_path / "copy"
    for package in PACKAGES:
        shutil.copytree(HOME / package, copy / package)
    with (copy / "delta_log" / "version.py").open("a") as file:
        file.write("# changed\n")
    assert name_built_by(copy, tmp_path / "changed") != build_bundle(tmp_path).name


def test_a_bundle_that_is_there_is_taken(tmp_path: Path) -> None:
    first = build_bundle(tmp_path)
    before = first.stat().st_mtime_ns
    assert build_bundle(tmp_path) == first
    assert first.stat().st_mtime_ns == before
    assert [path.name for path in tmp_path.iterdir()] == [first.name]


def test_code_in_a_bundle_can_be_imported_from_it(tmp_path: Path) -> None:
    program = "import delta_maintenance.rewrite.bin as b; print(b.__file__)"
    assert run(program, build_bundle(tmp_path)).startswith(str(tmp_path))
