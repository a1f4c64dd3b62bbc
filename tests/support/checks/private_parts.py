"""Finds where the product uses what a library has not promised: private names, ``sys.modules``, ``ctypes``, and attributes that it sets."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

#: Names with an underscore that the standard library documents.
_DOCUMENTED = {"_exit", "_asdict", "_replace", "_fields"}


def private_parts(home: Path) -> set[tuple[str, str]]:
    """Return the modules below a directory that use such parts, each with the name that it uses.

    A private name is a library's if no class or function of ours has it, or if it is asked of a file system of fsspec (``_fs``).
    """
    trees = {
        ".".join(path.relative_to(home).with_suffix("").parts): ast.parse(path.read_text())
        for path in sorted(home.rglob("*.py"))
    }
    own = {name for tree in trees.values() for name in _defined(tree)}
    return {(module, name) for module, tree in trees.items() for name in _used(tree, own)}


def _defined(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            if ast.unparse(node.value) == "self":
                yield node.attr


def _used(tree: ast.Module, own: set[str]) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            owner = ast.unparse(node.value)
            if owner == "sys" and node.attr == "modules":
                yield "sys.modules"
            is_private = node.attr.startswith("_") and not node.attr.startswith("__")
            is_foreign = node.attr not in own or owner.endswith("._fs")
            if is_private and is_foreign and node.attr not in _DOCUMENTED:
                yield node.attr
        elif isinstance(node, ast.Import | ast.ImportFrom):
            names = [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
            parts = [part for name in names for part in name.split(".")]
            yield from (part for part in parts if part == "ctypes" or _is_private_module(part, own))
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            if node.func.id in ("setattr", "delattr") and ast.unparse(node.args[0]) not in ("self", "cls"):
                yield node.func.id


def _is_private_module(part: str, own: set[str]) -> bool:
    return part.startswith("_") and not part.startswith("__") and part not in own
