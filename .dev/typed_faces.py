"""Write, into each operator and sensor, what type checkers and editors cannot see: the arguments that it gets from its table.

Called by `./dev lint --fix`; a test says which module is out of date.
"""

from __future__ import annotations

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

from airflow_delta import operators, sensors
from airflow_delta.operators.arguments import CheckedArguments, typed_face


def classes() -> Iterator[type[CheckedArguments]]:
    """Every operator and sensor for users."""
    for package in (operators, sensors):
        yield from (getattr(package, name) for name in package.__all__)


def written(cls: type[CheckedArguments]) -> tuple[Path, list[str], ast.If]:
    """The module of a class, its lines, and its block under `if TYPE_CHECKING`."""
    path = Path(inspect.getfile(cls))
    text = path.read_text(encoding="utf-8")
    (found,) = (
        node for node in ast.parse(text).body if isinstance(node, ast.ClassDef) and node.name == cls.__name__
    )
    (block,) = (
        node for node in found.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    )
    return path, text.splitlines(keepends=True), block


def is_current(cls: type[CheckedArguments]) -> bool:
    _, _, block = written(cls)
    wanted = ast.parse(typed_face(cls)).body
    return [ast.dump(node) for node in block.body] == [ast.dump(node) for node in wanted]


def write(cls: type[CheckedArguments]) -> None:
    path, lines, block = written(cls)
    body = textwrap.indent(typed_face(cls), " " * 8)
    lines[block.lineno - 1 : block.end_lineno] = [f"    if TYPE_CHECKING:\n{body}\n"]
    path.write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    for each in classes():
        if not is_current(each):
            write(each)
            print(f"{each.__name__}: arguments written", file=sys.stderr)
