"""Finds the Pythons on which the project is tried: the lanes of ``version_lanes.py`` and the installations of the wheel."""

from __future__ import annotations

import os
import shutil
import subprocess
import zipfile
from pathlib import Path

#: Pythons in Maven's repositories, for machines that have no other: they run where their archive is unpacked.
_ARTIFACTS = {"3.14": "org.bytedeco:cpython:3.14.3-1.5.13:jar:linux-x86_64"}


def find_python(version: str, scratch: Path) -> Path | None:
    """Return an interpreter from PATH, from pyenv, by uv, or else from Maven.

    :param version: a minor version, such as ``3.14``
    :param scratch: a directory for a Python from Maven, which must outlive the interpreter's use
    """
    program = f"python{version}"
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    found = [shutil.which(program), *sorted(pyenv.glob(f"versions/{version}.*/bin/{program}"), reverse=True)]
    for candidate in found:
        if candidate and _said(candidate, "-c", "import venv, ssl, sqlite3; print('complete')"):
            return Path(candidate)
    return _by_uv(version) or _from_maven(version, scratch)


def _by_uv(version: str) -> Path | None:
    _said("uv", "python", "install", "--quiet", version)
    found = _said("uv", "python", "find", "--managed-python", version)
    return Path(found) if found else None


def _from_maven(version: str, scratch: Path) -> Path | None:
    artifact = _ARTIFACTS.get(version)
    if artifact is None or shutil.which("mvn") is None:
        return None
    home = scratch / f"python-{version}"
    home.mkdir(exist_ok=True)
    # Maven runs in a directory where it finds no pom.xml.
    _said("mvn", "-B", "-q", "dependency:copy", f"-Dartifact={artifact}", "-DoutputDirectory=.", cwd=home)
    for archive in home.glob("*.jar"):
        zipfile.ZipFile(archive).extractall(home)
    for program in home.glob(f"**/bin/python{version}"):
        program.chmod(0o755)
        return program
    return None


def _said(*command: str | Path, cwd: Path | None = None) -> str:
    """Return the standard output of a command, or nothing if the command fails or does not exist."""
    try:
        done = subprocess.run(
            list(map(str, command)),
            capture_output=True,
            text=True,
            check=False,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
        )
    except OSError:
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""
