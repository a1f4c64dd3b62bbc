"""Holds jobs up where they write or delete files of a table, in whatever process of this machine they do it.

A gate is a file beside the table. The processes have :func:`gated_environment`, with which Python reads the module below at its start.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # Airflow depends on it

#: Changes the class of local storage as soon as something imports it, and imports nothing itself: programs start as fast as before.
_SITECUSTOMIZE = '''
import os
import sys
import time
from importlib.machinery import PathFinder


def wait(storage, key):
    gate = storage.root + ".gate"
    is_told = False
    while True:
        try:
            with open(gate) as file:
                words = file.read().split()
        except FileNotFoundError:
            return
        if not any(word in key for word in words):
            return
        if not is_told:
            with open(gate + ".held", "a") as file:
                file.write(f"{os.getpid()}\\n")
            is_told = True
        time.sleep(0.1)


def gated(changed):
    """A method whose second argument is a key."""
    def method(self, key, *arguments):
        wait(self, key)
        return changed(self, key, *arguments)
    return method


class Loader:
    def __init__(self, loader):
        self.loader = loader

    def __getattr__(self, name):
        return getattr(self.loader, name)

    def create_module(self, spec):
        return self.loader.create_module(spec)

    def exec_module(self, module):
        self.loader.exec_module(module)
        storage = module.LocalStorage
        delete = storage.delete

        def deleting(self, keys):
            for key in keys:
                wait(self, key)
                delete(self, [key])

        storage.delete = deleting
        for name in ("open_write", "put", "put_if_absent"):
            setattr(storage, name, gated(getattr(storage, name)))


class Finder:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name != "delta_log.storage.local.local_storage":
            return None
        spec = PathFinder.find_spec(name, path, target)
        if spec is not None:
            spec.loader = Loader(spec.loader)
        return spec


sys.meta_path.insert(0, Finder)
'''


def gated_environment(directory: Path) -> Mapping[str, str]:
    """Variables of processes that gates hold up.

    :param directory: is made, and must live as long as the processes.
    """
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "sitecustomize.py").write_text(_SITECUSTOMIZE)
    return {"PYTHONPATH": os.pathsep.join([str(directory), *filter(None, [os.environ.get("PYTHONPATH")])])}


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate of one table."""

    table: Path

    @property
    def _file(self) -> Path:
        return self.table.with_name(f"{self.table.name}.gate")

    @property
    def _held(self) -> Path:
        return self.table.with_name(f"{self.table.name}.gate.held")

    def hold(self, *words: str) -> None:
        """From now on, let no process change a file whose key has one of these words."""
        self._held.unlink(missing_ok=True)
        new = self._file.with_suffix(".new")
        new.write_text(" ".join(words))
        new.replace(self._file)

    def release(self) -> None:
        self._file.unlink(missing_ok=True)

    def held(self) -> list[int]:
        """The processes that have been held up since :meth:`hold` and are alive."""
        try:
            found = {int(line) for line in self._held.read_text().splitlines()}
        except FileNotFoundError:
            return []
        return [pid for pid in sorted(found) if _is_alive(pid)]


def _is_alive(pid: int) -> bool:
    try:
        return bool(psutil.Process(pid).status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False
