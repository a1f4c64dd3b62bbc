"""Directives: tables of options, made from the options that the command line and the operators follow, and of JSON members.

``options`` takes the name of a command, ``arguments`` the name of an operator or sensor (or of their base class). Rows with a heading
of their own in ``--help`` have it here, too. ``members`` takes the file of a published schema. ``policy`` has the members of a fleet's policy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList
from msgspec import inspect

from delta_maintenance.cli.arguments import rows_of
from delta_maintenance.fleet.policy.document import Policy
from delta_maintenance.fleet.policy.reading import described_members
from delta_maintenance.fleet.policy.settings import SETTINGS
from delta_maintenance.fleet.policy.spelling import spelled
from delta_maintenance.operations import OPERATIONS, READINGS
from delta_maintenance.options import Option, Switch

_REFERENCE = Path(__file__).parent / "reference"
_MODULES = (
    "airflow_delta.operators",
    "airflow_delta.sensors",
    "airflow_delta.operators.base",
    "airflow_delta.sensors.base",
)


def flag_tables(rows: Iterable[Option]) -> list[str]:
    """Lines of Markdown with the flags of a command."""
    return _tables("option", rows, lambda row: f"`{_flag(row)}`", _default)


def argument_tables(rows: Iterable[Option]) -> list[str]:
    """Lines of Markdown with the arguments of an operator or sensor."""
    return _tables("argument", rows, lambda row: f"`{row.argument}`", _argument_default)


def member_table(schema: Mapping[str, Any]) -> list[str]:
    """Lines of Markdown with the members of a JSON object."""
    lines = ["| member | | |", "|---|---|---|"]
    for name, member in schema["properties"].items():
        cells = (f"`{name}`", _kind(member), _sentence(member.get("description", " ")))
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return [*lines, ""]


def policy_table() -> list[str]:
    """Lines of Markdown with the members of a policy, each with its path; ``[]`` stands for each member of a list."""
    lines = ["| member | default | |", "|---|---|---|"]
    defaults = {".".join(row.path): spelled(row.default) for row in SETTINGS}
    for path, text in _policy_members(inspect.type_info(Policy), ""):
        default = defaults.get(path)
        cells = (f"`{path}`", f"`{default}`" if default else "", _sentence(text or " "))
        lines.append(f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |")
    return [*lines, ""]


def _policy_members(kind: Any, before: str) -> Iterator[tuple[str, str]]:
    """The path and the description of each member, depth first. What a rule may give stands at the head of the policy already."""
    described = described_members(kind.cls)
    for member in kind.fields:
        path = f"{before}{member.encode_name}"
        inner, suffix = _inner(member.type)
        yield f"{path}{suffix}", described.get(member.name, "")
        if isinstance(inner, inspect.StructType):
            members = _policy_members(inner, f"{path}{suffix}.")
            yield from (one for one in members if suffix != "[]" or path != "rules" or ".match" in one[0])


def _inner(kind: Any) -> tuple[Any, str]:
    """The type within a member, and what its path ends with."""
    if isinstance(kind, inspect.UnionType):
        kind = next(one for one in kind.types if not isinstance(one, inspect.NoneType))
    if isinstance(kind, inspect.VarTupleType):
        return kind.item_type, "[]" if isinstance(kind.item_type, inspect.StructType) else ""
    return (kind.value_type, ".<table>") if isinstance(kind, inspect.DictType) else (kind, "")


def _kind(member: Mapping[str, Any]) -> str:
    """What a member of a schema may be, in a few words."""
    if "$ref" in member:
        return "object"
    for choice in member.get("anyOf", ()):
        if choice != {"type": "null"}:
            return _kind(choice)
    if "enum" in member:
        return ", ".join(f"`{one}`" for one in member["enum"])
    if "const" in member:
        return f"`{member['const']}`"
    of = member.get("items") or member.get("additionalProperties")
    return f"{member['type']} of {_kind(of)}" if of else str(member["type"])


def _flag(row: Option) -> str:
    if isinstance(row.kind, Switch):
        return str(row.flag)
    return f"{row.flag} {'|'.join(row.kind.choices) or row.kind.metavar}"


def _default(row: Option) -> str:
    return _with_code(row.otherwise) or (f"`{row.default_words}`" if row.default_words else "")


def _argument_default(row: Option) -> str:
    if isinstance(row.kind, Switch):
        return f"`{row.argument_default}`"
    return _default(row)


def _tables(
    what: str, rows: Iterable[Option], name: Callable[[Option], str], default: Callable[[Option], str]
) -> list[str]:
    groups: dict[str, list[Option]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    return [line for group, members in groups.items() for line in _table(group, what, members, name, default)]


def _table(
    group: str,
    what: str,
    rows: Iterable[Option],
    name: Callable[[Option], str],
    default: Callable[[Option], str],
) -> Iterator[str]:
    if group:
        yield from (f"**{_sentence(group)}**", "")
    yield from (f"| {what} | default | |", "|---|---|---|")
    for row in rows:
        help_text = (row.flag_help or row.help) if what == "option" else row.help
        cells = (name(row), default(row), _sentence(help_text))
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
    yield ""


def _sentence(text: str) -> str:
    """A line of help as a sentence. The word of a choice at its beginning stays as it is."""
    text = _with_code(text)
    return text if re.match(r"\w+: ", text) else f"{text[0].upper()}{text[1:]}"


def _with_code(text: str) -> str:
    """Text with the names of properties, variables and files as code."""
    return re.sub(r"(?<![\w.])(delta\.\w+|spark\.[\w.]+\w|\$\w+|\w+\.json|[a-z]+_[a-z_]+)", r"`\1`", text)


class _Tables(Directive):  # type: ignore[misc]
    required_arguments = 1

    def lines(self, name: str) -> list[str]:
        raise NotImplementedError

    def run(self) -> list[Any]:
        source = StringList(self.lines(self.arguments[0]), source="option_tables")
        holder = nodes.container()
        self.state.nested_parse(source, self.content_offset, holder)
        return list(holder.children)


class _Options(_Tables):
    def lines(self, name: str) -> list[str]:
        return flag_tables(rows_of({**READINGS, **OPERATIONS}[name]))


class _Arguments(_Tables):
    def lines(self, name: str) -> list[str]:
        (found,) = {
            getattr(import_module(path), name) for path in _MODULES if hasattr(import_module(path), name)
        }
        # The base classes have tables of their own.
        common = [
            row
            for base in found.__mro__[1:]
            if base.__name__ in ("DeltaJobOperator", "DeltaTableSensor")
            for row in base.arguments.values()
        ]
        return argument_tables(row for row in found.arguments.values() if row not in common)


class _Members(_Tables):
    def lines(self, name: str) -> list[str]:
        return member_table(json.loads((_REFERENCE / name).read_text(encoding="utf-8")))


class _Policy(_Tables):
    required_arguments = 0

    def lines(self, name: str) -> list[str]:
        return policy_table()

    def run(self) -> list[Any]:
        self.arguments = [""]
        return super().run()


def setup(app: Any) -> dict[str, bool]:
    """Sphinx calls it."""
    app.add_directive("options", _Options)
    app.add_directive("arguments", _Arguments)
    app.add_directive("members", _Members)
    app.add_directive("policy", _Policy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
