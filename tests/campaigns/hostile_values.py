"""Values that JSON can hold and a table cannot, put in the place of any value of a log's JSON file: of its members at every
depth, and of those of the JSON texts within it (schemas, statistics, domains).

And what a table with such a value is put through, beyond being read: every command, as a plan and for real on a copy.
"""

from __future__ import annotations

import contextlib
import copy
import io
import json
import random
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from delta_log import DeltaLogError
from delta_maintenance.cli.main import main

#: Stand for arrays nested so deep, which `json.dumps` could not spell.
_DEEP = {"@900@": 900, "@5000@": 5000}
VALUES: tuple[Any, ...] = (
    *(10**23, -(10**23), 2**63, 2**63 - 1, -(2**63), 2**64, 2**31, -1, 0, 1.5, 1e308),
    *(
        "",
        "x",
        "-1",
        " 1 ",
        "1_0",
        "²",
        "٣",
        "9" * 30,
        "9" * 5000,
        "1e400",
        "NaN",
        "\x00",
        "\ud800",
        "a" * 200_000,
    ),
    *("interval 1" + "0" * 30 + " days", "interval -1 days", "10000-01-01", "2024-01-01 25:00:00"),
    *(None, True, [], {}, [[1]], {"a": "b"}, *_DEEP),
)
_PLANS = (
    ["inspect"],
    ["inspect", "--timestamp", "2023-01-01T00:00:00Z"],
    ["history"],
    ["optimize", "--dry-run"],
    ["purge", "--dry-run"],
    ["vacuum", "--dry-run"],
    ["vacuum", "--lite", "--dry-run"],
    ["checkpoint", "--dry-run"],
    ["cleanup-log", "--dry-run"],
    ["compact-log", "--dry-run"],
)
_REAL = (
    ["optimize", "--full", "--engine", "local"],
    ["vacuum", "--retain-hours", "0", "--no-retention-check"],
    ["checkpoint", "--cleanup-log", "--repair-checksum"],
    ["purge", "--engine", "local"],
    ["inspect"],
)
_Path = tuple[str | int, ...]
#: In a path: here a text is JSON itself.
_WITHIN = "$"


def value_mutations(data: bytes, rng: random.Random, count: int) -> Iterator[tuple[str, bytes]]:
    """Some content with one value replaced, so many times: what was put where, and the content. None where it is not JSON,
    one object a line."""
    try:
        lines = [json.loads(line) for line in data.splitlines()]
    except (ValueError, RecursionError):
        return
    places = [(number, path) for number, line in enumerate(lines) for path in _places(line) if path]
    for _ in range(count if places else 0):
        number, path = rng.choice(places)
        value = rng.choice(VALUES)
        changed = [*lines[:number], _with(lines[number], path, value), *lines[number + 1 :]]
        text = "".join(json.dumps(line) + "\n" for line in changed)
        for mark, depth in _DEEP.items():
            for quote in ('"', '\\"'):
                text = text.replace(f"{quote}{mark}{quote}", "[" * depth + "]" * depth)
        yield f"value {'.'.join(map(str, path))} = {repr(value)[:30]}", text.encode()


def _places(value: Any, path: _Path = ()) -> Iterator[_Path]:
    yield path
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _places(member, (*path, name))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _places(member, (*path, index))
    elif isinstance(value, str) and value.startswith("{"):
        with contextlib.suppress(ValueError, RecursionError):
            yield from (
                place for place in _places(json.loads(value), (*path, _WITHIN)) if place[-1] != _WITHIN
            )


def _with(value: Any, path: _Path, new: Any) -> Any:
    if not path:
        return new
    if path[0] == _WITHIN:
        return json.dumps(_with(json.loads(value), path[1:], new))
    changed = copy.copy(value)
    changed[path[0]] = _with(value[path[0]], path[1:], new)
    return changed


def foreign_exception(table: Path) -> str | None:
    """What of all that can be done to a table ends in an exception that is not ours; ``None``: nothing does."""
    found = [_ran(command, table) for command in _PLANS]
    with tempfile.TemporaryDirectory() as directory:
        target = Path(shutil.copytree(table, Path(directory) / table.name, symlinks=True))
        found += [_ran(command, target) for command in _REAL]
    return next((one for one in found if one is not None), None)


def _ran(command: list[str], table: Path) -> str | None:
    for form in ([], ["--json"]):
        out, err = io.StringIO(), io.StringIO()
        try:
            with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
                main([command[0], str(table), *command[1:], *form])
        except Exception as error:
            return f"{' '.join(command)} raised {type(error).__name__}: {error}"[:300]
        # The command line prints the traceback of what it did not foresee, and of nothing else.
        if "Traceback (most recent call last)" in err.getvalue():
            return f"{' '.join(command)}: {err.getvalue().strip()[-300:]}"
        if form:
            told = json.loads(out.getvalue()).get("error")
            if told is not None and told["type"] not in _names(DeltaLogError):
                return f"{' '.join(command)}: {told['type']}: {told['message'][:200]}"
    return None


def _names(kind: type) -> set[str]:
    below: list[type] = kind.__subclasses__()
    return {kind.__name__}.union(*map(_names, below))
