"""Reads a policy, and says of each mistake where it is, why it is one, and what to write instead."""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
from msgspec import Struct, inspect

from delta_log.errors import InvalidRequest, brief
from delta_maintenance.fleet.policy.calendar import FreezeDay, Window
from delta_maintenance.fleet.policy.document import Policy
from delta_maintenance.fleet.policy.quantities import ByteSize, Number, Period, Reports, Share, TableLimit

#: A policy of three thousand rules has a tenth of it.
_MAX_CHARACTERS = 4 << 20
_MAX_DEPTH = 16
_QUANTITIES: tuple[Any, ...] = (ByteSize, FreezeDay, Number, Period, Reports, Share, TableLimit, Window)
_AT = re.compile(r"(?s)(.*) - at `(key in )?\$(.*)`")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
#: What msgspec says, and what a policy's author reads.
_WORDS = {
    "Expected `": "it must be `",
    ", got `": ", and is `",
    "`object | null`": "a mapping",
    "`object`": "a mapping",
    "`array`": "a list",
    "`str`": "a text",
    "`int`": "a whole number",
    "`float`": "a number",
    "`bool`": "true or false",
    "`null`": "empty",
    " | null`": "`",
    "Invalid enum value": "there is no choice",
    "Invalid RFC3339 encoded date": "it is not a date such as 2027-01-15",
}
_MISSING = re.compile(r"Object missing required field `(.*)`")

Path = tuple[str | int, ...]


class WrittenPolicy(Struct, frozen=True):
    """A policy and the places where it was written.

    :param policy: what it says.
    :param source: name of the file, for messages.
    :param text: text of the file.
    :param lines: the line of each member, by its path; empty for a policy that was made in Python.
    """

    policy: Policy
    source: str = "policy"
    text: str = ""
    lines: Mapping[Path, int] = {}

    def place(self, path: Path) -> str:
        """The place of a member, or of the nearest member that contains it: ``fleet.yaml:12``."""
        while path and path not in self.lines:
            path = path[:-1]
        line = self.lines.get(path)
        return self.source if line is None else f"{self.source}:{line}"


def read_policy(text: str, source: str) -> WrittenPolicy:
    """
    :param text: YAML, or JSON.
    :param source: name of the file, for messages.
    :raises InvalidRequest: the text is not a policy; names the line, the reason and the remedy.
    """
    if len(text) > _MAX_CHARACTERS:
        raise InvalidRequest(
            f"{source}: a policy has at most {_MAX_CHARACTERS:,} characters. Is this another file?"
        )
    lines: dict[Path, int] = {}
    value = _values_of(text, source, lines)
    return _checked({} if value is None else value, source, text, lines)


def policy_of(document: Mapping[str, Any], source: str = "policy") -> WrittenPolicy:
    """
    :param document: the members of a policy, as its file would have them.
    :raises InvalidRequest: it is not a policy; names the member, the reason and the remedy.
    """
    return _checked(dict(document), source, json.dumps(document), {})


# -- YAML ----------------------------------------------------------------------------------------------------------


def _values_of(text: str, source: str, lines: dict[Path, int]) -> Any:
    """The plain values of YAML, and the line of each member."""
    try:
        import yaml  # type: ignore[import-untyped]
    except ModuleNotFoundError:
        raise InvalidRequest(
            f"{source} cannot be read: PyYAML is not installed. Install it: pip install 'airflow-provider-delta[fleet]'."
        ) from None
    try:
        node = yaml.compose(text, Loader=yaml.SafeLoader)
        return None if node is None else _Values(yaml, source, lines).of(node, ())
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = source if mark is None else f"{source}:{mark.line + 1}"
        what = getattr(error, "problem", None) or str(error)
        raise InvalidRequest(
            f"{where}: this is not YAML: {brief(what)}. Look at the indentation, and put values with special characters "
            "into quotes."
        ) from None
    except RecursionError:
        raise InvalidRequest(
            f"{source}: members are nested too deeply. Write them one below the other."
        ) from None


class _Values:
    """Makes plain values of YAML's nodes: dates stay text, and a key may stand once."""

    def __init__(self, yaml: Any, source: str, lines: dict[Path, int]) -> None:
        self._yaml, self._source, self._lines = yaml, source, lines
        self._seen: set[int] = set()

    def of(self, node: Any, path: Path) -> Any:
        line = node.start_mark.line + 1
        self._lines.setdefault(path, line)
        if id(node) in self._seen:
            raise self._refused(
                line, "an anchor (&name) is used again (*name)", "Write the value out in both places"
            )
        self._seen.add(id(node))
        if len(path) > _MAX_DEPTH:
            raise self._refused(line, "members are nested too deeply", "No member of a policy is so deep")
        if isinstance(node, self._yaml.MappingNode):
            return dict(self._members(node, path))
        if isinstance(node, self._yaml.SequenceNode):
            return [self.of(item, (*path, number)) for number, item in enumerate(node.value)]
        return self._scalar(node, line)

    def _members(self, node: Any, path: Path) -> Iterator[tuple[str, Any]]:
        names: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            name = str(key.value) if isinstance(key, self._yaml.ScalarNode) else None
            # YAML 1.1 takes a bare `on` for the word true.
            if name is None:
                raise self._refused(
                    line, "the name of a member is not a text", "Write a name before the colon"
                )
            if name in names:
                raise self._refused(
                    line, f"{name!r} stands twice, first in line {names[name]}", "Leave one of the two out"
                )
            names[name] = line
            self._lines[(*path, name)] = line
            yield name, self.of(value, (*path, name))

    def _scalar(self, node: Any, line: int) -> Any:
        kind = node.tag.rpartition(":")[2]
        if kind in ("str", "timestamp"):
            return node.value
        if kind == "int" and ":" in node.value:
            raise self._refused(
                line, f"YAML reads {node.value!r} as a number to the base of 60", "Put the value into quotes"
            )
        if kind not in ("bool", "int", "float", "null"):
            raise self._refused(line, f"the value has the tag {brief(node.tag)!r}", "Leave the tag out")
        try:
            return self._yaml.SafeLoader("").construct_object(node)
        except ValueError:
            raise self._refused(
                line, f"{brief(node.value)!r} is not a number", "Write it in decimal digits"
            ) from None

    def _refused(self, line: int, reason: str, remedy: str) -> InvalidRequest:
        return InvalidRequest(f"{self._source}:{line}: {reason}. {remedy}.")


# -- members -------------------------------------------------------------------------------------------------------


def _quantity(kind: Any, value: Any) -> Any:
    if kind in _QUANTITIES:
        return kind.of(value)
    raise NotImplementedError(kind)


def _checked(value: Any, source: str, text: str, lines: Mapping[Path, int]) -> WrittenPolicy:
    try:
        policy = msgspec.convert(value, Policy, dec_hook=_quantity)
    except msgspec.ValidationError as error:
        raise _refusal(str(error), WrittenPolicy(Policy(), source, text, lines)) from None
    written = WrittenPolicy(policy, source, text, lines)
    for path, problem in _contradictions(policy):
        raise InvalidRequest(f"{_where(written, path)}: {problem}")
    return written


def _refusal(message: str, written: WrittenPolicy) -> InvalidRequest:
    found = _AT.fullmatch(message)
    what, path = (found[1], _path_of(found[3])) if found else (message, ())
    if unknown := _UNKNOWN.fullmatch(what):
        return _unknown_member(unknown[1], path, written)
    if missing := _MISSING.fullmatch(what):
        members = ", ".join(_members_at(path))
        return InvalidRequest(
            f"{_where(written, path)}: {missing[1]!r} is missing. Its members are {members}."
        )
    return InvalidRequest(f"{_where(written, path)}: {brief(_in_words(what), 300)}.{_hint(path)}")


def _in_words(what: str) -> str:
    """A message of msgspec in the words of YAML."""
    for theirs, ours in _WORDS.items():
        what = what.replace(theirs, ours)
    return what


def _unknown_member(name: str, path: Path, written: WrittenPolicy) -> InvalidRequest:
    known = _members_at(path)
    near = difflib.get_close_matches(name, known, 1)
    remedy = f"Did you mean {near[0]!r}? It" if near else "It"
    inside = f" of {_spelled(path)}" if path else ""
    where = _where(written, (*path, name), told=path)
    return InvalidRequest(
        f"{where}: there is no member {brief(name)!r}{inside}. {remedy} must be one of {', '.join(known)}."
    )


def _hint(path: Path) -> str:
    """What a member may be, from its description."""
    described = description_at(path)
    return f" {described[0].upper()}{described[1:]}" if described else ""


def _where(written: WrittenPolicy, path: Path, told: Path | None = None) -> str:
    name = _spelled(path if told is None else told)
    place = written.place(path)
    return f"{place}: {name}" if name else place


def _spelled(path: Path) -> str:
    """``('rules', 1, 'healthy')`` as ``rules[1].healthy``."""
    text = "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in path)
    return text.removeprefix(".")


def _path_of(text: str) -> Path:
    """The path in a message of msgspec. It writes ``[...]`` for a key of a mapping, which is then the first that is wrong."""
    found: list[str | int] = []
    for part in re.findall(r"\.[^.\[]+|\[\d+\]|\[\.\.\.\]", text):
        if part == "[...]":
            break
        found.append(int(part[1:-1]) if part.startswith("[") else part[1:])
    return tuple(found)


def _type_at(path: Path) -> Any:
    """The type of a member, as :mod:`msgspec.inspect` describes it; ``None``: there is no such member."""
    kind: Any = inspect.type_info(Policy)
    for part in path:
        kind = _inside(kind, part)
    return _without_none(kind)


def _inside(kind: Any, part: str | int) -> Any:
    kind = _without_none(kind)
    if isinstance(kind, inspect.StructType):
        return next((one.type for one in kind.fields if one.encode_name == part), None)
    if isinstance(kind, inspect.DictType):
        return kind.value_type
    return kind.item_type if isinstance(kind, inspect.VarTupleType) else None


def _without_none(kind: Any) -> Any:
    if isinstance(kind, inspect.UnionType):
        return next(one for one in kind.types if not isinstance(one, inspect.NoneType))
    return kind


def _members_at(path: Path) -> list[str]:
    kind = _type_at(path)
    return [one.encode_name for one in kind.fields] if isinstance(kind, inspect.StructType) else []


def description_at(path: Path) -> str:
    """What the docstring of its mapping says of a member; empty where there is none."""
    kind = _type_at(path[:-1])
    if not path or not isinstance(kind, inspect.StructType):
        return ""
    field = next((one.name for one in kind.fields if one.encode_name == path[-1]), None)
    return described_members(kind.cls).get(field or "", "")


def described_members(kind: type[Any]) -> dict[str, str]:
    """The texts of a docstring's ``:param`` lines, on one line each, by member. Those of base classes come first."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        for name, text in re.findall(r":param (\w+):\s*(.*(?:\n[ \t]+[^:\s].*)*)", one.__doc__ or ""):
            found[name] = re.sub(r"\s+", " ", text.replace("``", "")).strip()
    return found


# -- contradictions ------------------------------------------------------------------------------------------------


def _contradictions(policy: Policy) -> Iterator[tuple[Path, str]]:
    """The path of each contradiction, and what is wrong and what to do, for people."""
    if policy.tables.exclude and not policy.tables.include:
        yield ("tables", "exclude"), "tables are excluded, and none is included. Add include."
    if policy.budget.cost is not None and policy.prices is None:
        yield (
            ("budget", "cost"),
            "a cost cannot be known without prices, and so nothing would ever be done. Add prices, or leave cost out.",
        )
    for number, rule in enumerate(policy.rules):
        path: Path = ("rules", number)
        if rule.match.path is None and rule.match.property is None:
            yield (
                (*path, "match"),
                "the rule matches nothing. Give a path or a property; settings of all tables stand outside of rules.",
            )
        if not any(getattr(rule, name) is not None for name in rule.__struct_fields__ if name != "match"):
            yield path, "the rule sets nothing. Add a setting, or leave the rule out."
    for path, one in ((), policy), *((("rules", n), rule) for n, rule in enumerate(policy.rules)):
        yield from _contradictions_of(path, one)


def _contradictions_of(path: Path, rules: Any) -> Iterator[tuple[Path, str]]:
    trust = rules.trust
    if trust is not None and trust.new_table == "auto" and trust.after is not None:
        yield (
            (*path, "trust", "after"),
            "reports are counted, and new tables are maintained at once. Leave after out, or write new_table: report.",
        )
    if rules.failures is not None and rules.failures.retry == 0:
        yield (*path, "failures", "retry"), "a time of 0 would repeat a failure at once. Write 1h, or longer."
    if rules.within == 0:
        yield (*path, "within"), "no table is healthy at every moment. Write a time such as 24h."
