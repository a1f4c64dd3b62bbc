"""Options of operations: one table per operation, and what follows from it.

An operation describes its options once, in the ``options.py`` of its folder, one row each (:func:`option`). From the rows follow

* the options object of the operation, with every value checked (:class:`Options`);
* the flags of its command line (:mod:`delta_maintenance.cli.arguments`);
* the checks of its Airflow operator's arguments (``airflow_delta.operators.arguments``);
* the addresses that a fence of allowed roots has to know (:meth:`Operation.places`);
* the tables of the documentation.

A :class:`Kind` knows what a value may be, and reads it in two forms. :meth:`Kind.checked` takes the JSON value of a job spec and
is strict: a number has to be a number. :meth:`Kind.read` takes text of a command line, the value of an operator's argument, or
what its template rendered, where a number may be text.

DAG files import this module: it needs neither pyarrow nor pyspark.
"""

from __future__ import annotations

import ast
import json
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field, fields
from decimal import Decimal
from functools import cache
from typing import Any, ClassVar, TypeVar

from msgspec import Struct
from msgspec.structs import force_setattr

from delta_log.errors import InvalidRequest, brief
from delta_log.storage.table_uri import is_name, require_absolute
from delta_log.table_config import properties
from delta_maintenance.contract import ENGINES
from delta_maintenance.contract import EXECUTOR_CREDENTIALS as EXECUTOR_CREDENTIALS_CHOICES

_SHOWN_CHARACTERS = 300
_DIGEST_LENGTHS = range(12, 65)
#: No file comes near it, and sums of it fit into 64 bits.
_MAX_BYTES = 1 << 50
_MAX_COUNT = 1 << 40
#: A hundred years.
_MAX_HOURS = 876_600
_TEN_YEARS_OF_MINUTES = 10 * 366 * 24 * 60

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*(?:([KMGT])(?:i?B)?|B)?", re.IGNORECASE)
#: A comma outside of backticks.
_BETWEEN_NAMES = re.compile(r",(?=(?:[^`]*`[^`]*`)*[^`]*$)")
_POWERS = {"": 0, "K": 1, "M": 2, "G": 3, "T": 4}
_YES, _NO = frozenset({"true", "yes", "on", "1"}), frozenset({"false", "no", "off", "0"})


# -- kinds of values -------------------------------------------------------------------------------------------------


def shown(value: Any) -> str:
    """A value as a message quotes it."""
    try:
        return brief(repr(value), _SHOWN_CHARACTERS)
    except ValueError:
        return "a number of thousands of digits"


def is_empty(value: Any) -> bool:
    """Whether `value` is what is left of a template that rendered to nothing."""
    return isinstance(value, str) and value.strip() in ("", "None")


def text_of(value: Any) -> str:
    """A value as text; an integer of thousands of digits, which Python refuses to spell, as empty text."""
    try:
        return str(value)
    except ValueError:
        return ""


def whole_number(value: Any) -> int | None:
    """The number that decimal digits stand for; ``None`` if they are none, or more than 64 bits hold."""
    return None if isinstance(value, bool) else properties.whole_number(text_of(value))


def plan_within(value: Any) -> Any:
    """The plan in a report, in JSON text, or in the text that a template makes of a dictionary; another value as it is."""
    found = value
    if isinstance(found, str) and found.lstrip().startswith("{"):
        try:
            found = json.loads(found)
        except (ValueError, RecursionError):
            try:
                found = ast.literal_eval(found)
            except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
                return value
    if isinstance(found, Mapping) and isinstance(found.get("plan"), Mapping):
        return found["plan"]
    return found


class Kind:
    """What the values of an option may be.

    The messages of :meth:`read` do not name the option: callers put its name and a colon before them.
    """

    #: What ``--help`` calls the value of a flag; ``None``: it lists the choices, or the flag takes no value.
    metavar: str | None = None
    #: The only values that there are, where they can be listed.
    choices: Sequence[str] = ()

    def checked(self, name: str, value: Any) -> Any:
        """The JSON value of a job spec as the operation uses it; takes a checked value, too.

        :raises InvalidRequest: it is not of this kind.
        """
        raise NotImplementedError

    def read(self, value: Any) -> Any:
        """The value for a job spec.

        :param value: value of an operator's argument, or rendered text.
        :raises ValueError: it is not of this kind.
        """
        raise NotImplementedError

    def read_flag(self, text: str) -> Any:
        """The value for a job spec, from a command line.

        :raises ValueError: it is not of this kind.
        """
        return self.read(text)

    def places(self, value: str) -> tuple[str, ...]:
        """The addresses that a job opens because of a value; none but for :class:`Address`."""
        return ()


def _refused(name: str, value: Any, words: str) -> InvalidRequest:
    return InvalidRequest(f"{name} is {shown(value)}; it must be {words}.")


class Text(Kind):
    """Text that is not empty."""

    def __init__(self, metavar: str = "TEXT") -> None:
        self.metavar = metavar

    def checked(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or not value.strip():
            raise InvalidRequest(
                f"{name} is {shown(value)}; it must be a text. Give one, or leave the option out."
            )
        return value

    def read(self, value: Any) -> str:
        if not isinstance(value, str) or is_empty(value):
            raise ValueError(f"{shown(value)} is not a text, or an empty one. Give one.")
        return value

    def read_flag(self, text: str) -> str:
        return text


class Predicate(Text):
    """A predicate on partition columns, see :mod:`delta_maintenance.partitions.predicate`."""

    def __init__(self) -> None:
        super().__init__("EXPR")


class Address(Text):
    """A path, or a URI. An operator takes no relative path, since its task runs in any working directory."""

    def __init__(self) -> None:
        super().__init__("URI")

    def read(self, value: Any) -> str:
        address = super().read(value)
        if is_name(address):
            raise ValueError(
                f"{shown(address)} is a name in a catalog, and this has to be a place: a path, or a URI of a store."
            )
        try:
            require_absolute(address)
        except InvalidRequest as error:
            raise ValueError(str(error)) from None
        return address

    def places(self, value: str) -> tuple[str, ...]:
        return (value,)


class NewFile(Address):
    """The address of a file to be written; its directory is what is opened."""

    def places(self, value: str) -> tuple[str, ...]:
        return (value, value.rpartition("/")[0] or "/")


class Choice(Kind):
    """One of a few words."""

    def __init__(self, choices: Sequence[str]) -> None:
        self.choices = choices

    def checked(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or value not in self.choices:
            raise _refused(name, value, " or ".join(self.choices))
        return value

    def read(self, value: Any) -> str:
        if value not in self.choices:
            raise ValueError(f"{shown(value)} is not one of {', '.join(self.choices)}.")
        return str(value)


class Columns(Kind):
    """Names of columns, such as ``a, b.c``: nested ones with dots, and names with dots or commas in backticks."""

    def __init__(self) -> None:
        self.metavar = "COLUMNS"

    def checked(self, name: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, (list, tuple)) or not value or not all(map(_is_name, value)):
            raise _refused(name, value, "a list of names of columns")
        return tuple(value)

    def read(self, value: Any) -> list[str]:
        found = _literal_list(value) if isinstance(value, str) else value
        if isinstance(found, str):
            found = [part.strip() for part in _BETWEEN_NAMES.split(found)]
        if not isinstance(found, (list, tuple)) or not found or not all(map(_is_name, found)):
            raise ValueError(f"{shown(value)} names no columns. Write them as in a, b.c, or give a list.")
        return list(found)


def written_column(parts: Iterable[str]) -> str:
    """Write the path of a column as :class:`Columns` reads it."""
    return ".".join(part if part.isidentifier() else f"`{part.replace('`', '``')}`" for part in parts)


class Queries(Kind):
    """Predicates of typical queries: one text with semicolons between them, or a list of texts."""

    def __init__(self) -> None:
        self.metavar = "PREDICATES"

    def checked(self, name: str, value: Any) -> tuple[str, ...]:
        if not isinstance(value, (list, tuple)) or not value or not all(map(_is_name, value)):
            raise _refused(name, value, "a list of SQL predicates")
        return tuple(value)

    def read(self, value: Any) -> list[str]:
        found = _literal_list(value) if isinstance(value, str) else value
        found = [found] if isinstance(found, str) else found
        if not isinstance(found, (list, tuple)) or not found or not all(map(_is_name, found)):
            raise ValueError(
                f"{shown(value)} holds no predicates. Write them as in \"day >= '2026-01-31'; id = 7\", or give a list."
            )
        return list(found)


def _is_name(value: Any) -> bool:
    return isinstance(value, str) and not is_empty(value)


def _literal_list(text: str) -> Any:
    """The list that a template made text of; other text as it is."""
    try:
        return ast.literal_eval(text) if text.lstrip().startswith("[") else text
    except (ValueError, SyntaxError, TypeError, RecursionError, MemoryError):
        return text


class _Whole(Kind):
    """A whole number in a range."""

    def __init__(self, unit: str, lowest: int, highest: int) -> None:
        self.unit, self.lowest, self.highest = unit, lowest, highest

    @property
    def words(self) -> str:
        return f"a whole number of {self.unit}, at least {self.lowest}"

    def checked(self, name: str, value: Any) -> int:
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        if not is_whole or not self.lowest <= value <= self.highest:
            raise _refused(name, value, self.words)
        return int(value)


class Size(_Whole):
    """Bytes. Text may have a unit: ``256MiB``; ``256MB`` means the same, as in Delta's table properties."""

    def __init__(self, lowest: int = 1) -> None:
        super().__init__("bytes", lowest, _MAX_BYTES)
        self.metavar = "SIZE"

    @property
    def words(self) -> str:
        return f"a whole number of bytes from {self.lowest} to 1 PiB"

    def read(self, value: Any) -> int:
        match = _SIZE.fullmatch(text_of(value).strip()) if not isinstance(value, bool) else None
        size = Decimal(match[1]) * 1024 ** _POWERS[(match[2] or "").upper()] if match is not None else None
        if size is None or size > _MAX_BYTES:
            raise ValueError(
                f"{shown(value)} is not a size such as 512MB, 1GiB or 1048576, of at most 1 PiB."
            )
        return int(size)


class Count(_Whole):
    """A number of things, from 1 on; the operation may ask for more."""

    def __init__(
        self, unit: str, *, lowest: int = 1, highest: int = _MAX_COUNT, metavar: str | None = None
    ) -> None:
        super().__init__(unit, lowest, highest)
        self.metavar = metavar or "N"

    def read(self, value: Any) -> int:
        number = whole_number(value)
        if not number:
            raise ValueError(f"{shown(value)} is not a whole number from 1 on.")
        return number


def seconds() -> Count:
    return Count("seconds", highest=60 * _TEN_YEARS_OF_MINUTES, metavar="SECONDS")


def minutes() -> Count:
    return Count("minutes", highest=_TEN_YEARS_OF_MINUTES)


class Versions(Kind):
    """Versions of a table, such as ``3, 17``."""

    metavar = "VERSIONS"

    def checked(self, name: str, value: Any) -> tuple[int, ...]:
        if not isinstance(value, (list, tuple)) or not value or not all(map(_is_version, value)):
            raise _refused(name, value, "a list of version numbers from 0 on")
        return tuple(value)

    def read(self, value: Any) -> list[int]:
        found = _literal_list(value) if isinstance(value, str) else value
        parts = found if isinstance(found, (list, tuple)) else text_of(found).split(",")
        versions = [number for number in map(whole_number, parts) if number is not None]
        if not versions or len(versions) < len(parts):
            raise ValueError(f"{shown(value)} names no versions. Write them as in 3, 17, or give a list.")
        return versions


def _is_version(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


class _Fraction(Kind):
    """A number from 0 to some other."""

    highest: ClassVar[int]
    words: ClassVar[str]
    example: ClassVar[str] = ""

    def _number(self, value: Any) -> float:
        try:
            number = -1.0 if isinstance(value, bool) else float(value)
        except (TypeError, ValueError, OverflowError):
            number = -1.0
        return number if 0 <= number <= self.highest else math.nan

    def checked(self, name: str, value: Any) -> float:
        number = self._number(value) if isinstance(value, (int, float)) else math.nan
        if math.isnan(number):
            raise _refused(name, value, self.words)
        return number

    def read(self, value: Any) -> float:
        number = self._number(value)
        if math.isnan(number):
            raise ValueError(f"{shown(value)} is not {self.words}{self.example}.")
        return number


class Ratio(_Fraction):
    """A part of a whole."""

    metavar = "R"
    highest = 1
    words = "a number from 0 to 1"


class Hours(_Fraction):
    """A time in hours, up to a hundred years."""

    metavar = "H"
    highest = _MAX_HOURS
    words = f"a number of hours from 0 to {_MAX_HOURS:,}"
    example = ", such as 168"


class Switch(Kind):
    """On or off: ``true``, ``yes``, ``on``, ``1``; or ``false``, ``no``, ``off``, ``0``, in any case.

    Rendered text has to be one of these words: empty text is refused, since most likely a template went wrong.
    """

    def checked(self, name: str, value: Any) -> bool:
        if not isinstance(value, bool):
            raise _refused(name, value, "true or false")
        return value

    def read(self, value: Any) -> bool:
        text = text_of(value).strip().lower()
        if value is None or is_empty(value):
            raise ValueError(
                f"{shown(value)} is neither true nor false; most likely its template rendered to nothing. "
                "Write true or false."
            )
        if text not in _YES | _NO:
            raise ValueError(f"{shown(value)} is neither true nor false. Write one of these.")
        return text in _YES


class SafetySwitch(Switch):
    """A switch that protects the table while it is on. Only the word ``false`` switches it off."""

    def read(self, value: Any) -> bool:
        if text_of(value).strip().lower() == "false":
            return False
        if not super().read(value):
            raise ValueError(
                f"{shown(value)} would take away what protects the table; only the word false does that. "
                "Write false, or true."
            )
        return True


class PlanDigest(Text):
    """The digest of a plan. An operator takes the plan, too, and the report that holds it."""

    def __init__(self) -> None:
        super().__init__("DIGEST")

    def read(self, value: Any) -> str:
        found = plan_within(value)
        if isinstance(found, Mapping):
            found = found.get("digest")
        if (
            not isinstance(found, str)
            or len(found) not in _DIGEST_LENGTHS
            or not set(found) <= set("0123456789abcdef")
        ):
            raise ValueError(
                "it is neither a plan nor the digest of one. Give the output of this operator with dry_run=True."
            )
        return found


# -- options ---------------------------------------------------------------------------------------------------------

_DERIVED: Any = object()


class Option(Struct, frozen=True):
    """One row of a table: an option, and the names that it goes by.

    :param name: name in the job spec.
    :param help: one line, for ``--help``, the operator's docstring and the documentation; no full stop.
    :param default: default in the job spec.
    :param otherwise: what holds without the option, in words; else the default.
    :param group: heading in ``--help`` and in the documentation.
    :param flag: flag on the command line; else the name with hyphens. ``None``: no flag. A flag that begins with ``--no-``
        switches the option off.
    :param flag_help: the line for ``--help``, where the flag needs another.
    :param argument: argument of the operator; else the name.
    :param attribute: attribute of the operator; else the argument. Airflow has taken some names for itself.
    :param argument_default: default of the operator's argument; else the default of a switch, and ``None`` for other kinds.
    :param required: the argument needs a value: ``None`` and empty text are refused. Else so where it has a default.
    :param absence: what happens without the argument, where that is more than the user asked for. A template that rendered to
        nothing is refused then, instead of meaning that the argument is absent.
    :param templates: ``whole``: the argument may be a template. ``members``: only its values may. ``none``: it stands in the
        DAG file, since it decides which program runs.
    """

    name: str
    kind: Kind
    help: str
    default: Any = None
    otherwise: str = ""
    group: str = ""
    flag: str | None = ""
    flag_help: str = ""
    argument: str = ""
    attribute: str = ""
    argument_default: Any = _DERIVED
    required: bool | None = None
    absence: str | None = None
    templates: str = "whole"

    def __post_init__(self) -> None:
        derived = {
            "flag": f"--{self.name.replace('_', '-')}" if self.flag == "" else self.flag,
            "argument": self.argument or self.name,
            "attribute": self.attribute or self.argument or self.name,
        }
        if self.argument_default is _DERIVED:
            derived["argument_default"] = self.default if isinstance(self.kind, Switch) else None
        for name, value in derived.items():
            force_setattr(self, name, value)
        if self.required is None:
            force_setattr(self, "required", self.argument_default is not None)

    @property
    def default_words(self) -> str:
        """What holds without the option; empty where there is nothing to say."""
        if self.otherwise or isinstance(self.kind, Switch):
            return self.otherwise
        default = self.argument_default if self.default is None else self.default
        return "" if default is None else str(default)


def option(kind: Kind, help: str, *, default: Any = None, **more: Any) -> Any:  # noqa: A002 - argparse's word
    """One row: a field of an :class:`Options` class.

    :param more: further members of :class:`Option`.
    """
    row = {"kind": kind, "help": help, "default": default, **more}
    return field(default=default, metadata={"option": row})


@cache
def table_of(cls: type[Any]) -> tuple[Option, ...]:
    """The rows of an options class, in their order."""
    return tuple(Option(f.name, **f.metadata["option"]) for f in fields(cls) if "option" in f.metadata)


OptionsT = TypeVar("OptionsT", bound="Options")


class Options:
    """Base of the options of an operation: frozen dataclasses whose fields are made by :func:`option`.

    Every value is checked when an object is made; ``None`` means that an option is not given.
    """

    __slots__ = ()

    def __post_init__(self) -> None:
        kind: Any = type(self)
        for row in table_of(kind):
            value = getattr(self, row.name)
            if value is not None:
                object.__setattr__(self, row.name, row.kind.checked(row.name, value))

    @classmethod
    def from_spec(
        cls: type[OptionsT], operation: Operation, given: Mapping[str, Any], **more: Any
    ) -> OptionsT:
        """
        :param given: the options of a job spec.
        :param more: fields that are no options.
        :raises InvalidRequest: an option is unknown, or has a value of a wrong kind.
        """
        operation.require_known(given)
        return cls(**{name: value for name, value in given.items() if value is not None}, **more)


# -- operations ------------------------------------------------------------------------------------------------------

WHERE_ABSENCE = "every partition is meant, for which to write where='true'"
NO_APPROVAL = "the run would not be held to a plan that was approved"

HOW_TO_RUN = "how to run"

#: Settings of any job. They are members of a job spec, not options of an operation.
DRY_RUN = Option(
    "dry_run",
    SafetySwitch(),
    "only plan, and write nothing; the plan is the result",
    default=False,
)
ENGINE = Option(
    "engine",
    Choice(ENGINES),
    "what does the work: local processes, Spark, or auto: Spark where the work is too much for one machine",
    default="auto",
    group=HOW_TO_RUN,
    argument_default="auto",
)
PARALLELISM = Option(
    "parallelism",
    Count("threads or tasks"),
    "threads of the local engine, or Spark tasks, at a time",
    otherwise="what the machine or cluster has",
    group=HOW_TO_RUN,
)
EXECUTOR_CREDENTIALS = Option(
    "executor_credentials",
    Choice(EXECUTOR_CREDENTIALS_CHOICES),
    "credentials of Spark's executors: job: the job sends them its own; ambient: each uses the identity of its machine",
    default="job",
    group=HOW_TO_RUN,
    argument_default="job",
)
MEMORY_LIMIT = Option(
    "memory_limit_bytes",
    Size(),
    "ceiling for the memory of the local engine",
    default=1 << 30,
    otherwise="1GiB",
    group=HOW_TO_RUN,
    flag="--memory-limit",
    argument="memory_limit",
    argument_default="1GiB",
)
SPARK_ABOVE = Option(
    "spark_above_bytes",
    Size(),
    "size above which a rewrite of a fleet runs on Spark",
    otherwise="none does",
    group=HOW_TO_RUN,
    flag="--spark-above",
    argument="spark_above",
)


class Operation(Struct, frozen=True):
    """An operation as its callers see it.

    :param name: name in job specs, and as a command.
    :param summary: one line for ``--help``; no full stop.
    :param settings: settings that are members of a job spec and that the command line offers.
    :param is_resumable: a run may go on where an earlier one with its name and key has stopped.
    """

    name: str
    summary: str
    options: tuple[Option, ...] = ()
    settings: tuple[Option, ...] = (DRY_RUN,)
    is_resumable: bool = False

    def require_known(self, given: Iterable[str]) -> None:
        """
        :raises InvalidRequest: there is no such option.
        """
        known = [row.name for row in self.options]
        unknown = sorted(set(given) - set(known))
        if unknown:
            options = f"Its options are {', '.join(known)}" if known else "It has none"
            raise InvalidRequest(
                f"{self.name.upper()} has no option {', '.join(unknown)}. {options}; "
                "is the job's release older than the one that asks?"
            )

    def spec_options(self, values: Mapping[str, Any]) -> dict[str, Any]:
        """The options of a job spec: those that are given, and differ from the default.

        :param values: values by the names of the options; ``None`` means not given.
        """
        return {
            row.name: values[row.name]
            for row in self.options
            if values.get(row.name) is not None and values[row.name] != row.default
        }

    def places(self, options: Mapping[str, Any]) -> tuple[str, ...]:
        """The addresses that a job opens because its options name them.

        :param options: options of a job spec, which may hold anything.
        """
        return tuple(
            place
            for row in self.options
            if isinstance(options.get(row.name), str)
            for place in row.kind.places(options[row.name])
        )
