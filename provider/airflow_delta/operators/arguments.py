"""The values of operator arguments, which may be templates: checked early where they are known, and read late.

A value is *open* while it may still change: a Jinja template, or the output of another task. Everything else is
checked when the DAG is parsed. A rendered template is text, whatever it stands for, hence the readers here.

A template that rendered to nothing (empty text, blanks, or ``None``) is a mistake more often than a wish:

* A switch, and any other required argument, refuses it.
* An optional argument that protects something (which partitions, an approval, a retention, a verification, an identity)
  refuses it (:attr:`Argument.absence`).
* Any other optional argument is absent then.

The same holds for a reference to the output of another task, or a template of a DAG with native rendering, that comes out as
Python's ``None``. A ``None`` in the DAG file itself always means absent.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

from airflow.sdk.exceptions import AirflowFailException

from delta_log.errors import InvalidRequest
from delta_log.redaction import has_credentials, redact
from delta_log.storage.table_uri import require_absolute

_MAX_SIZE_BYTES = 1 << 50
_MAX_DIGITS, _SHOWN_CHARACTERS = 18, 300
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B)?\s*", re.IGNORECASE)
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_YES, _NO = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})


def is_open(value: Any) -> bool:
    """Whether `value` is known only when the task runs."""
    if isinstance(value, str):
        return "{{" in value or "{%" in value
    return not isinstance(value, bool | int | float | list | tuple | dict | None)


@dataclass(frozen=True, slots=True)
class Argument:
    """How the value of one argument is read, and whether it may be absent.

    :param name: as the user wrote it, for messages.
    :param absence: what happens without it, where that is more than was asked for; empty text is refused then.
    :param fixed: it is written in the DAG file, neither a template nor the output of another task.
    """

    name: str
    read: Callable[[str, Any], Any]
    required: bool = False
    absence: str | None = None
    fixed: bool = False

    def value(self, raw: Any) -> Any:
        """
        :raises ValueError: `raw` makes no sense; the message says what would.
        """
        if self.fixed and is_open(raw):
            raise ValueError(
                f"{self.name} is a template or the output of another task, and it decides which program the job "
                "runs. Write it in the DAG file."
            )
        if not self.required and (raw is None or _is_empty(raw)):
            if raw is not None:
                self.require_present(raw)
            return None
        try:
            return self.read(self.name, raw)
        except ValueError as error:
            raise ValueError(redact(str(error))) from None

    def require_present(self, raw: Any) -> None:
        """
        :param raw: what a template or a reference came out as; empty.
        :raises ValueError: the argument protects something.
        """
        if self.absence is not None:
            raise ValueError(
                f"{self.name}={raw!r} is empty; most likely its template rendered to nothing. Without it "
                f"{self.absence}. Give a value, or leave the argument out."
            )


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
        for name, argument in self.arguments.items():
            if argument.fixed or not is_open(getattr(self, name)):
                self.value_of(name)

    def check_all(self) -> None:
        """
        :raises AirflowFailException: an argument makes no sense, now that every value is known.
        """
        try:
            for name in self.arguments:
                self.value_of(name)
        except ValueError as error:
            raise AirflowFailException(str(error)) from None

    def _do_render_template_fields(self, parent: Any, *args: Any, **kwargs: Any) -> None:
        """Airflow's hook for this purpose, called for mapped tasks, too.

        Airflow shows the rendered fields to everyone who may see the task, so an address with credentials ends the task
        before they are stored. Only here is it known which values were open before.
        """
        opened = [name for name in self.arguments if is_open(getattr(self, name))]
        super()._do_render_template_fields(parent, *args, **kwargs)  # type: ignore[misc]
        for name in opened:
            if getattr(self, name) is None:
                try:
                    self.arguments[name].require_present(None)
                except ValueError as error:
                    raise AirflowFailException(str(error)) from None
        for name, argument in self.arguments.items():
            value = getattr(self, name)
            if argument.read is read_address and isinstance(value, str) and has_credentials(value):
                try:
                    self.value_of(name)
                except ValueError as error:
                    raise AirflowFailException(str(error)) from None


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
    if not isinstance(value, str) or _is_empty(value):
        raise ValueError(f"{name}={quoted(value)} is not a text, or an empty one. Give one.")
    return value


def read_address(name: str, value: Any) -> str:
    """A path that starts with a slash, or a URI; a task runs in any working directory."""
    address = read_text(name, value)
    try:
        require_absolute(address)
    except InvalidRequest as error:
        raise ValueError(f"{name}: {error}") from None
    return address


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
    """``true``, ``yes``, ``on``, ``1``; or ``false``, ``no``, ``off``, ``0``; in any case."""
    text = str(value).strip().lower()
    if value is None or _is_empty(value):
        raise ValueError(
            f"{name}={value!r} is neither true nor false; most likely its template rendered to nothing. "
            "Write true or false."
        )
    if text not in _YES | _NO:
        raise ValueError(f"{name}={value!r} is neither true nor false. Write one of these.")
    return text in _YES


def read_safety_switch(name: str, value: Any) -> bool:
    """A switch that protects the table while it is on; only ``false`` switches it off."""
    if str(value).strip().lower() == "false":
        return False
    if not read_switch(name, value):
        raise ValueError(
            f"{name}={value!r} would take away what protects the table; only the word false does that. "
            "Write false, or true."
        )
    return True


def _is_empty(value: Any) -> bool:
    """Whether `value` is what a template leaves that rendered to nothing."""
    return isinstance(value, str) and value.strip() in ("", "None")


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


NO_APPROVAL = "the run would not be held to a plan that somebody agreed to"
WHERE = Argument("where", read_text, absence="every partition is meant, for which to write where='true'")
DELTA_CONN_ID = Argument(
    "delta_conn_id",
    read_text,
    absence="the machine's own identity is used, and no fence of a connection holds",
)
