"""Reads JSON of another process, which may be broken, and checks its members.

1. The only error is :class:`ContractError`, whatever the text is.
2. Every later reader can read the values, too: integers have 64 bits, fractions are finite, and nesting is limited.
3. A message quotes only a few characters of the text.

Standard library only, since the contract uses it.
"""

from __future__ import annotations

import json
import math
import reprlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
#: A plan has half a dozen levels.
_MAX_DEPTH = 50


class ContractError(ValueError):
    """This release cannot read a spec or a report; the message says which side is wrong."""

    at_fault = "the program that wrote it, mostly of another release"
    kind, retryable = "refused", False


class _OddValue(ValueError):
    """Well-formed JSON holds a value that cannot be used."""


def first_object(what: str, text: str) -> tuple[dict[str, Any], int]:
    """Read the JSON object at the beginning of a text; return it and its end.

    :param what: names the object in messages.
    :raises ContractError: the text does not begin with a usable object.
    """
    try:
        raw, end = _DECODER.raw_decode(text)
        _require_shallow(raw)
    except _OddValue as error:
        raise ContractError(f"This {what} cannot be read: {error}.") from None
    except RecursionError:
        raise ContractError(f"This {what} cannot be read: it is nested too deeply.") from None
    except ValueError as error:
        raise ContractError(f"This {what} is not JSON: {error}. Was it cut short?") from None
    if not isinstance(raw, dict):
        raise ContractError(f"This {what} is not a JSON object.")
    return raw, end


def whole_object(what: str, text: str) -> dict[str, Any]:
    """Read a text that is one JSON object.

    :raises ContractError: it is not a usable object.
    """
    text = text.strip()
    raw, end = first_object(what, text)
    if end != len(text):
        raise ContractError(f"This {what} is not JSON: there is more behind its end.")
    return raw


def storable(value: Any) -> Any:
    """Make a JSON value that every database and wire accepts.

    Lone surrogates, which stand for bytes of a path that are not UTF-8, and zero characters become escapes.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    if isinstance(value, dict):
        return {storable(name): storable(held) for name, held in value.items()}
    return [storable(held) for held in value] if isinstance(value, list) else value


def _integer(digits: str) -> int:
    # Python fails on some thousands of digits, and databases and wires on fewer.
    value = int(digits) if len(digits) <= len(str(_LEAST)) else _MOST + 1
    if not _LEAST <= value <= _MOST:
        raise _OddValue("it has an integer that 64 bits do not hold")
    return value


def _fraction(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise _OddValue("it has a number that is out of range")
    return value


def _no_number(name: str) -> NoReturn:
    raise _OddValue(f"{name} is not a number")


def _require_shallow(value: Any) -> None:
    level = [value]
    for _ in range(_MAX_DEPTH):
        inner: list[Any] = []
        for held in level:
            inner += held.values() if isinstance(held, dict) else held if isinstance(held, list) else ()
        if not inner:
            return
        level = inner
    raise _OddValue(f"it is nested more than {_MAX_DEPTH} levels deep")


_DECODER = json.JSONDecoder(parse_int=_integer, parse_float=_fraction, parse_constant=_no_number)


# -- members ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Kind:
    """What a member must be.

    :param words: name it in messages.
    :param schema: the same as JSON Schema, for the published schemas (:mod:`delta_maintenance.published_schemas`).
    """

    words: str
    fits: Callable[[Any], bool]
    schema: Mapping[str, Any]

    def or_none(self) -> Kind:
        return Kind(
            f"{self.words} or null",
            lambda value: value is None or self.fits(value),
            {"anyOf": [self.schema, {"type": "null"}]},
        )


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _object_of(fits: Callable[[Any], bool]) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, dict) and all(map(fits, value.values()))


TEXT = Kind("text", lambda value: isinstance(value, str), {"type": "string"})
FLAG = Kind("true or false", lambda value: isinstance(value, bool), {"type": "boolean"})
INTEGER = Kind("an integer", _is_integer, {"type": "integer"})
OBJECT = Kind("an object", lambda value: isinstance(value, dict), {"type": "object"})
TEXTS = Kind(
    "an object of texts",
    _object_of(TEXT.fits),
    {"type": "object", "additionalProperties": TEXT.schema},
)
INTEGERS = Kind(
    "an object of integers",
    _object_of(INTEGER.fits),
    {"type": "object", "additionalProperties": INTEGER.schema},
)


def list_of(words: str, kind: Kind) -> Kind:
    return Kind(
        words,
        lambda value: isinstance(value, list) and all(map(kind.fits, value)),
        {"type": "array", "items": kind.schema},
    )


OBJECTS = list_of("a list of objects", OBJECT)
NAMES = list_of("a list of texts", TEXT)


def one_of(names: Collection[str]) -> Kind:
    return Kind(
        f"one of {', '.join(names)}",
        lambda value: isinstance(value, str) and value in names,
        {"enum": list(names)},
    )


def object_with(kinds: Mapping[str, Kind], *, required: bool = False) -> Kind:
    """An object whose named members are of these kinds.

    :param required: it must have these members and no others; else members may be missing, and others may be there.
    """

    def fits(value: Any) -> bool:
        if not isinstance(value, dict) or (required and value.keys() != kinds.keys()):
            return False
        return all(kind.fits(value[name]) for name, kind in kinds.items() if name in value)

    schema: dict[str, Any] = {
        "type": "object",
        "properties": {name: kind.schema for name, kind in kinds.items()},
    }
    if required:
        schema |= {"required": list(kinds), "additionalProperties": False}
    words = ", ".join(f"{name}: {kind.words}" for name, kind in kinds.items())
    return Kind(f"an object with {words}", fits, schema)


def checked_members(
    what: str, raw: Mapping[str, Any], kinds: Mapping[str, Kind], required: Collection[str]
) -> dict[str, Any]:
    """Return the members that have a kind, and leave out those of later releases.

    :raises ContractError: a required member is missing, or a member is not of its kind.
    """
    missing = [name for name in required if name not in raw]
    if missing:
        raise ContractError(f"This {what} cannot be read: {', '.join(missing)} is missing.")
    known = {name: value for name, value in raw.items() if name in kinds}
    for name, value in known.items():
        if not kinds[name].fits(value):
            raise ContractError(
                f"This {what} cannot be read: {name} is {reprlib.repr(value)}, and has to be {kinds[name].words}."
            )
    return known
