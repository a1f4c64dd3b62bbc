"""Runs a fleet: one process per writer, all on one table, until each has made its number of commits."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tests.support import ROOT

ROWS_PER_APPEND = 10
_IDS_PER_WRITER = 1_000_000


@dataclass(frozen=True, slots=True)
class Writer:
    """One process of a fleet.

    :param kind: ``delta-rs``, ``delta-rs-changes``, ``ours`` or ``delta-spark``.
    :param table: the table's address, as this writer spells it.
    :param options: storage options for this kind of writer; for delta-spark the settings of its session.
    :param jars: for delta-spark.
    :param pause_seconds: the longest pause between two commits, chosen at random. A writer that never pauses starves others.
    :param environment: variables of the process, besides its parent's.
    :param compaction: for ``ours``, the options of each compaction.
    :param waits_for: for ``ours``, what each compaction waits for before it commits, at most ``waits_seconds``: ``commits``,
        two commits of any writer, or ``deletion``, a commit that removes files. So small a table is rewritten before another
        writer can commit; a table of a real size takes longer.
    """

    name: str
    kind: str
    table: str
    options: Mapping[str, Any]
    pause_seconds: float = 0.0
    jars: Sequence[str] = ()
    environment: Mapping[str, str] = field(default_factory=dict)
    compaction: Mapping[str, Any] = field(default_factory=dict)
    waits_for: str = "commits"
    waits_seconds: float = 3.0


@dataclass(frozen=True, slots=True)
class Order:
    """The argument of a writer's process: its writer, and what it needs to know about the fleet."""

    writer: Writer
    number: int
    writers: int
    commits: int
    directory: str

    @property
    def first_id(self) -> int:
        return self.number * _IDS_PER_WRITER

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Order:
        raw = json.loads(text)
        return cls(**{**raw, "writer": Writer(**raw["writer"])})


@dataclass(slots=True)
class Journal:
    """What one writer was told about its own commits: one JSON object per line, written as soon as it is known.

    ``{"op": n, "add": [first, end]}``, ``{"op": n, "delete": [id, …]}`` or ``{"op": n, "version": v, "rebased": b,
    "lost": [name, …], "remapped": r}`` for a commit that succeeded, ``{"op": n, "failed": text, …}`` for one that failed.
    """

    path: Path

    def write(self, **entry: Any) -> None:
        with self.path.open("a") as file:
            file.write(json.dumps(entry) + "\n")

    def read(self) -> list[dict[str, Any]]:
        if not self.path.exists():
            return []
        # The last line may still be incomplete.
        return [
            json.loads(line) for line in self.path.read_text().splitlines(keepends=True) if line[-1] == "\n"
        ]


def run_fleet(writers: Sequence[Writer], commits: int, directory: Path, seconds: float) -> dict[str, Journal]:
    """Runs all writers at once until each has made ``commits`` commits, and returns their journals by name.

    :raises AssertionError: a writer failed, or they took longer than ``seconds``.
    """
    directory.mkdir(parents=True)
    processes = []
    for number, writer in enumerate(writers):
        order = Order(writer, number, len(writers), commits, str(directory))
        with (directory / f"{writer.name}.log").open("wb") as output:
            processes.append(
                subprocess.Popen(
                    [sys.executable, "-m", "tests.support.mixed_writers.writer", order.to_json()],
                    cwd=ROOT,
                    env=environment_of(writer),
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                )
            )
    deadline = time.monotonic() + seconds
    try:
        while any(process.poll() is None for process in processes):
            assert not any(process.poll() for process in processes), _logs_of(writers, processes, directory)
            assert time.monotonic() < deadline, f"not done in time: {_logs_of(writers, processes, directory)}"
            time.sleep(0.2)
        assert not any(process.returncode for process in processes), _logs_of(writers, processes, directory)
    finally:
        for process in processes:
            process.kill()
            process.wait()
    return {writer.name: Journal(directory / f"{writer.name}.jsonl") for writer in writers}


def environment_of(writer: Writer) -> dict[str, str]:
    path = [writer.environment.get("PYTHONPATH", ""), str(ROOT / "provider"), str(ROOT)]
    return {
        **os.environ,
        # Otherwise the writers' libraries ask for the credentials of a cloud machine, and wait.
        "AWS_EC2_METADATA_DISABLED": "true",
        **writer.environment,
        "PYTHONPATH": os.pathsep.join(filter(None, path)),
    }


def _logs_of(writers: Sequence[Writer], processes: Sequence[subprocess.Popen[bytes]], directory: Path) -> str:
    lines = []
    for writer, process in zip(writers, processes, strict=True):
        log = (directory / f"{writer.name}.log").read_text(errors="replace")
        done = len(Journal(directory / f"{writer.name}.jsonl").read())
        lines.append(f"{writer.name}: exit {process.poll()}, {done} tries\n{log[-3000:]}")
    return "\n".join(lines)
