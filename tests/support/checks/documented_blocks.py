"""The fenced blocks of a page of documentation, and a shell for the commands in them.

A block that a test cannot run stands below a comment with the reason::

    <!-- not run: needs a cluster; tests/integration/test_spark_cluster.py runs it -->
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import textwrap
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

_FENCE = re.compile(r"^(?P<indent> *)```(?P<language>\{?[\w-]*\}?)")
_REASON = re.compile(r"^ *<!-- not run: (?P<reason>.+) -->$")
#: What differs from one table to the next: numbers with their units, times, digests.
_NUMBER = re.compile(
    r"\b\d{4}-\d\d-\d\d[\dT:. ]*Z?|\b[0-9a-f]{12,}\b|\d[\d,.]*( ([KMGT]i)?B\b| (ms|s|min|h)\b)?"
)


@dataclass(frozen=True)
class Block:
    line: int
    language: str
    text: str
    #: Why no test runs it, where that is said.
    not_run: str | None


@dataclass(frozen=True)
class Command:
    words: str
    #: The lines that the page shows below the command.
    output: tuple[str, ...]


def blocks(page: str) -> Iterator[Block]:
    reason: str | None = None
    lines = iter(enumerate(page.splitlines(), 1))
    for number, line in lines:
        if said := _REASON.match(line):
            reason = said["reason"]
            continue
        if fence := _FENCE.match(line):
            inside = []
            for _, text in lines:
                if text.strip() == "```":
                    break
                inside.append(text)
            yield Block(number, fence["language"], textwrap.dedent("\n".join(inside)), reason)
        if line.strip():
            reason = None


def prose(page: str) -> Iterator[tuple[int, str]]:
    """The lines outside of fences."""
    fenced = False
    for number, line in enumerate(page.splitlines(), 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield number, line


def commands(text: str) -> Iterator[Command]:
    """The commands of a console block: lines after a prompt, each with the output that follows it."""
    command = ""
    output: list[str] = []
    for line in text.replace("\\\n", "").splitlines():
        if line.startswith("$ "):
            if command:
                yield Command(command, tuple(output))
            command, output = line[2:], []
        elif line.strip():
            output.append(line)
    if command:
        yield Command(command, tuple(output))


def shape(line: str) -> str:
    """A line without what differs from table to table, such as the order in which a writer names partition columns."""
    words = _NUMBER.sub("#", line).split()
    return " ".join("/".join(sorted(word.split("/"))) if "=" in word else word for word in words)


@dataclass
class Shell:
    """Runs commands one after the other, with the variables that earlier ones exported."""

    programs: Mapping[str, Callable[[list[str]], str]]
    environment: dict[str, str]

    def run(self, command: str) -> str:
        """Standard output and standard error of the command.

        :raises AssertionError: the command failed, or is none that this shell knows.
        """
        if command.startswith("export "):
            self._export(command)
            return ""
        words = shlex.split(command, comments=True)
        assert words[0] in self.programs, f"no test knows how to run {words[0]!r}"
        return self.programs[words[0]](words[1:])

    def _export(self, command: str) -> None:
        name = command.removeprefix("export ").partition("=")[0]
        done = subprocess.run(
            ["bash", "-euc", f'{command}\nprintf %s "${name}"'],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, **self.environment},
        )
        self.environment[name] = done.stdout


def pages(root: Path) -> list[Path]:
    """Every page that users and contributors read."""
    built = root / "docs" / "_build"
    texts = [path for path in sorted((root / "docs").rglob("*.md")) if built not in path.parents]
    return [root / "README.md", root / "CONTRIBUTING.md", *texts]
