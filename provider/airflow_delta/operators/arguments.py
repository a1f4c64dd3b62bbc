"""The values of operator arguments, which may be templates: checked early where they are known, and read late.

A value is *open* while it may still change: a Jinja template, or the output of another task. Everything else is
checked when the DAG is parsed. A rendered template is text, whatever it stands for, hence the readers here.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

_MAX_SIZE_BYTES = 1 << 50
_MAX_DIGITS, _SHOWN_CHARACTERS = 18, 300
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B)?\s*", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_YES, _NO = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0", ""})


def is_open(value: Any) -> bool:
    """Whether `value` is known only when the task runs."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    return not isinstance(value, bool | int | float | list | tuple | dict | None)


@dataclass(frozen=True, slots=True)
class Argument:
    """How the value of one argument is read, and whether it may be absent.

    :param name: as the user wrote it, for messages.
    """

    name: str
    read: Callable[[str, Any], Any]
    required: bool = False

    def value(self, raw: Any) -> Any:
        """Absent is absent; so is a template that rendered to nothing.

        :raises ValueError: `raw` makes no sense; the message says what would.
        """
        if not self.required and (raw is None or (isinstance(raw, str) and raw.strip() in ("", "None"))):
            return None
        return self.read(self.name, raw)


class CheckedArguments:
    """For operators and sensors: each argument is an attribute as the user wrote it, and `arguments` says how to read it."""

    arguments: ClassVar[Mapping[str, Argument]] = {}

    def value_of(self, name: str) -> Any:
        """An attribute, read.

        :raises ValueError: it makes no sense.
        """
        return self.arguments[name].value(getattr(self, name))

    def check_known(self) -> None:
        """Refuse a senseless argument when the DAG is parsed, as far as its value is known then.

        Called by subclasses at the end of ``__init__``.
        """
        for name in self.arguments:
            if not is_open(getattr(self, name)):
                self.value_of(name)


def text_of(value: Any) -> str:
    """A value as text; an integer of thousands of digits, which Python refuses to spell, as nothing."""
    try:
        return str(value)
    except ValueError:
        return ""


def quoted(value: Any) -> str:
    """A value as a message shows it: only the beginning where it is long."""
    try:
        text = repr(value)
    except ValueError:
        return "a number of thousands of digits"
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:_SHOWN_CHARACTERS]}…"


def whole_number(value: Any) -> int | None:
    """The number that decimal digits stand for, in 64 bits; ``None``: the value is none."""
    text = "" if isinstance(value, bool) else text_of(value).strip()
    return int(text) if text.isdecimal() and len(text) <= _MAX_DIGITS else None


def read_text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise ValueError(f"{name}={quoted(value)} is not a text. Give one.")
    return value


def read_size(name: str, value: Any) -> int:
    """Bytes from a number, or from text such as ``256MiB``; ``256MB`` is the same, as in Delta's table properties."""
    match = _SIZE.fullmatch(text_of(value)) if not isinstance(value, bool) else None
    size = Decimal(match[1]) * 1024 ** _POWERS[(match[2] or "").upper()] if match is not None else None
    if size is None or size > _MAX_SIZE_BYTES:
        raise ValueError(
            f"{name}={quoted(value)} is not a size. Write bytes, or for example 256MiB; at most 1 PiB."
        )
    return int(size)


def read_count(name: str, value: Any) -> int:
    number = whole_number(value)
    if not number:
        raise ValueError(f"{name}={quoted(value)} is not a whole number from 1 on.")
    return number


def read_ratio(name: str, value: Any) -> float:
    try:
        ratio = float(value)
    except (TypeError, ValueError, OverflowError):
        ratio = -1.0
    if not 0.0 <= ratio <= 1.0:
        raise ValueError(f"{name}={quoted(value)} is not a ratio between 0 and 1.")
    return ratio


def read_switch(name: str, value: Any) -> bool:
    text = str(value).strip().lower()
    if text not in _YES | _NO:
        raise ValueError(f"{name}={value!r} is neither true nor false.")
    return text in _YES


def read_mapping(name: str, value: Any) -> dict[str, Any]:
    if not isinstance(value, dict) or not all(isinstance(key, str) for key in value):
        raise ValueError(f"{name}={value!r} is not a dictionary with text keys.")
    return value


def read_one_of(choices: Sequence[str]) -> Callable[[str, Any], str]:
    def read(name: str, value: Any) -> str:
        if value not in choices:
            raise ValueError(f"{name}={value!r} is not one of {', '.join(choices)}.")
        return str(value)

    return read


def plan_within(value: Any) -> Any:
    """Of a report the plan that it holds, of the text of either what it says; anything else is given back."""
    found = value
    if isinstance(found, str) and found.lstrip().startswith("{"):
        try:
            found = json.loads(found)
        except (ValueError, RecursionError):
            try:
                found = ast.literal_eval(found)  # what a template makes of a dictionary
            except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
                return value
    if isinstance(found, Mapping) and isinstance(found.get("plan"), Mapping):
        return found["plan"]
    return found
