"""Reads JSON of another process, which may be broken, into values of a type.

1. The only error is :class:`~delta_maintenance.job_interface.ContractError`, whatever the text is.
2. Every later reader can read the values, too: integers have 64 bits, fractions are finite, and nesting is limited.
3. A message names the member that is wrong and the type that it must have. It quotes only a few characters of the text.

The standard library parses the text, since other output may follow the object, and since paths that are not UTF-8 have lone
surrogates. msgspec accepts neither, and checks what has been parsed.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

from delta_maintenance.job_interface import ContractError

T = TypeVar("T")

_LEAST, _MOST = -(1 << 63), (1 << 63) - 1
#: A plan has half a dozen levels.
_MAX_DEPTH = 50
_DECODER = json.JSONDecoder()


def first_object(what: str, text: str) -> tuple[dict[str, Any], int]:
    """Read the JSON object at the beginning of a text; return it and its end.

    :param what: name of the object in messages.
    :raises ContractError: the text does not begin with a usable object.
    """
    try:
        raw, end = _DECODER.raw_decode(text)
    except RecursionError:
        raise ContractError(f"This {what} cannot be read: it is nested too deeply.") from None
    except ValueError as error:
        raise ContractError(f"This {what} is not JSON: {error}. Was it cut short?") from None
    if not isinstance(raw, dict):
        raise ContractError(f"This {what} is not a JSON object.")
    problem = _problem_of(raw, _MAX_DEPTH)
    if problem:
        raise ContractError(f"This {what} cannot be read: {problem}.")
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


def converted(what: str, raw: Mapping[str, Any], kind: type[T]) -> T:
    """Make a value of its JSON object. Members of later releases are left out.

    :param what: name of the object in messages.
    :param kind: a Struct.
    :raises ContractError: a required member is missing, or a member has another type than the Struct says.
    """
    try:
        return msgspec.convert(raw, kind)
    except msgspec.ValidationError as error:
        if isinstance(error.__cause__, ContractError):  # of the Struct's own check
            raise error.__cause__ from None
        raise ContractError(f"This {what} cannot be read: {error}.") from None
    except UnicodeEncodeError:
        raise ContractError(f"This {what} cannot be read: the name of a member is not UTF-8.") from None


def storable(value: Any) -> Any:
    """Make a JSON value that every database and wire accepts.

    Lone surrogates, which stand for bytes of a path that are not UTF-8, and zero characters become escapes.
    """
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
    if isinstance(value, dict):
        return {storable(name): storable(held) for name, held in value.items()}
    return [storable(held) for held in value] if isinstance(value, list) else value


def _problem_of(value: Any, levels: int) -> str:
    """Say why a reader could not use a JSON value; empty if it can.

    :param levels: levels of nesting that the value may have.
    """
    if isinstance(value, (dict, list)):
        if not levels:
            return f"it is nested more than {_MAX_DEPTH} levels deep"
        held = value.values() if isinstance(value, dict) else value
        return next(filter(None, (_problem_of(one, levels - 1) for one in held)), "")
    if isinstance(value, int) and not _LEAST <= value <= _MOST:
        return "it has an integer that 64 bits do not hold"
    if isinstance(value, float) and not math.isfinite(value):
        return "it has a number that is out of range"
    return ""
