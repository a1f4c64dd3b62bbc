"""Records all that Spark sends to the Python processes of its executors: tasks with their closures and rows."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

#: Python reads this module at its start. PySpark opens the connection from which a worker reads by ``os.fdopen``.
_SITECUSTOMIZE = """
import io
import os

fdopen = os.fdopen


class Recorded(io.FileIO):
    def readinto(self, buffer):
        size = super().readinto(buffer)
        if size:
            with open(os.path.join(os.environ["RECORDED_TASKS"], str(os.getpid())), "ab") as file:
                file.write(memoryview(buffer)[:size])
        return size


def recording(fd, mode="r", buffering=-1, *more, **named):
    if mode == "rb" and buffering > 4:
        return io.BufferedReader(Recorded(fd, "rb"), buffering)
    return fdopen(fd, mode, buffering, *more, **named)


os.fdopen = recording
"""


@dataclass(frozen=True, slots=True)
class RecordedTasks:
    """
    :param directory: where each process leaves a file.
    """

    directory: Path

    @classmethod
    def in_directory(cls, directory: Path) -> RecordedTasks:
        (directory / "path").mkdir(parents=True)
        (directory / "path" / "sitecustomize.py").write_text(_SITECUSTOMIZE)
        (directory / "recorded").mkdir()
        return cls(directory / "recorded")

    @property
    def environment(self) -> Mapping[str, str]:
        """Variables of the processes that start executors."""
        path = str(self.directory.parent / "path")
        return {"PYTHONPATH": path, "RECORDED_TASKS": str(self.directory)}

    def take(self) -> bytes:
        """Return what was recorded since the last call."""
        found = b""
        for file in self.directory.iterdir():
            found += file.read_bytes()
            os.truncate(file, 0)
        return found
