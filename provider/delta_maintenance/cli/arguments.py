"""The arguments of the command line. Those of an operation follow from its table of options."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, NoReturn

from delta_log.errors import brief
from delta_log.version import VERSION
from delta_maintenance.contract import TransactionId
from delta_maintenance.job_interface import RUN_KEY_VARIABLE, STORAGE_OPTIONS_VARIABLE
from delta_maintenance.operations import OPERATIONS, READINGS
from delta_maintenance.options import (
    ENGINE,
    EXECUTOR_CREDENTIALS,
    HOW_TO_RUN,
    MEMORY_LIMIT,
    PARALLELISM,
    SPARK_ABOVE,
    Count,
    Kind,
    Operation,
    Option,
    Switch,
    Text,
    whole_number,
)

Command = Callable[[argparse.Namespace], Any]

#: Commands that only read.
_READING = {
    "inspect": "what a version of a table is: protocol, schema, files, deletions",
    "history": "the commits of a table, newest first",
    "changes": "the rows that commits inserted, deleted and updated",
}

_DISCOVER = "the tables below some places, and in databases of catalogs"
_DOCTOR = "whether jobs could do their work: what is installed, what the store allows, what Spark has"


class UsageError(Exception):
    """The command line is wrong; the message says what to change."""

    at_fault = "the request"
    kind, retryable = "refused", False


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. Try: {self.prog} --help")


def make_parser(commands: Mapping[str, Command], only: str | None = None) -> argparse.ArgumentParser:
    """The parser; its result has the function of the chosen command as ``command``.

    :param only: the one command that it has to know, as the first argument names it; by default, all.
    """
    parser = _Parser(prog="delta-maintenance", description="Look after Delta Lake tables.")
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {VERSION}", help="print it and exit"
    )
    group = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=_Parser)
    for name, summary in _READING.items():
        if only in (None, name):
            add_options = _add_range if name == "changes" else _add_moment
            add_options(_add_command(group, name, commands[name], summary), name)
    for operations in (READINGS, OPERATIONS):
        for name, operation in operations.items():
            if only in (None, name):
                _add_operation(_add_command(group, name, commands[name], operation.summary), operation)
    if only in (None, "doctor"):
        _add_doctor(group, commands["doctor"])
    if only in (None, "discover"):
        _add_discover(group, commands["discover"])
    if only in (None, "policy"):
        _add_policy(group, commands)
    if only in (None, "fleet"):
        _add_fleet(group, commands)
    return parser


def _with_parts(group: Any, name: str, summary: str) -> Any:
    """A command that has commands of its own."""
    parser = group.add_parser(name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.")
    return parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=_Parser)


def _add_policy(group: Any, commands: Mapping[str, Command]) -> None:
    parts = _with_parts(group, "policy", "the policy of a fleet: check, explain and compare")
    check = _named(parts, "check", commands["policy check"], "whether a policy can be read")
    check.add_argument("policy", type=Path, metavar="FILE", help="the policy, a YAML file")
    explain = _named(
        parts, "explain", commands["policy explain"], "what a policy makes of one table, and why"
    )
    explain.add_argument("policy", type=Path, metavar="FILE", help="the policy, a YAML file")
    explain.add_argument("table", metavar="TABLE", help="a path, a URI or a name in a catalog")
    explain.add_argument(
        "--state", metavar="URI", help="memory of the fleet; without it, the table counts as new"
    )
    diff = _named(
        parts, "diff", commands["policy diff"], "what a new policy would have done otherwise in past nights"
    )
    diff.add_argument("old", type=Path, metavar="OLD", help="a policy, a YAML file")
    diff.add_argument("new", type=Path, metavar="NEW", help="another policy")
    diff.add_argument("--state", metavar="URI", required=True, help="memory of the fleet")
    diff.add_argument(
        "--replay",
        dest="replay_days",
        type=_days,
        default=30,
        metavar="DAYS",
        help="nights of this time, such as 30d (default: 30d)",
    )
    for parser in (check, explain, diff):
        _add_output_and_options(parser)


def _add_fleet(group: Any, commands: Mapping[str, Command]) -> None:
    parts = _with_parts(group, "fleet", "many tables, kept healthy by a policy")
    run = _named(parts, "run", commands["fleet run"], "do what is due, within the policy and its budget")
    run.add_argument("policy", type=Path, metavar="FILE", help="the policy, a YAML file")
    run.add_argument("--dry-run", action="store_true", help="only decide, and write nothing")
    run.add_argument("--max-minutes", type=_positive, metavar="N", help="begin no table after this time")
    run.add_argument(
        "--approve",
        action="append",
        default=[],
        metavar="PATTERN",
        help="approve deletions of the tables that match, which the policy leaves to a person; may be repeated",
    )
    _add_flag(run, MEMORY_LIMIT)
    _add_flag(run, PARALLELISM)
    _add_flag(run, SPARK_ABOVE)
    report = _named(parts, "report", commands["fleet report"], "the report of the newest night")
    for parser in (run, report):
        parser.add_argument(
            "--state", metavar="URI", required=True, help="directory in which the fleet keeps its memory"
        )
        _add_output_and_options(parser)


def _add_command(group: Any, name: str, command: Command, summary: str) -> argparse.ArgumentParser:
    parser = _named(group, name, command, summary)
    parser.add_argument(
        "table",
        metavar="TABLE",
        help="a path, a URI such as s3://bucket/table, or a name such as glue://database.table",
    )
    _add_output_and_options(parser)
    return parser


def _named(group: Any, name: str, command: Command, summary: str) -> argparse.ArgumentParser:
    description = f"{summary[0].upper()}{summary[1:]}."
    parser: argparse.ArgumentParser = group.add_parser(name, help=summary, description=description)
    parser.set_defaults(command=command, operation=name)
    return parser


def _add_output_and_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--storage-options",
        type=_json_object,
        metavar="JSON|@FILE",
        help=f"for the store of the table, and for its catalog; else ${STORAGE_OPTIONS_VARIABLE}",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")


def _add_doctor(group: Any, command: Command) -> None:
    parser = _named(group, "doctor", command, _DOCTOR)
    parser.add_argument(
        "--table", metavar="TABLE", help="look at this table's store, with probes beside the table"
    )
    parser.add_argument(
        "--spark", action="store_true", help="start a Spark session, and look at its executors"
    )
    parser.add_argument(
        "--master", metavar="URL", help="the Spark master (default: $SPARK_MASTER, or local[*])"
    )
    _add_flag(parser, EXECUTOR_CREDENTIALS)
    _add_output_and_options(parser)


def _add_discover(group: Any, command: Command) -> None:
    parser = _named(group, "discover", command, _DISCOVER)
    parser.add_argument(
        "patterns",
        nargs="+",
        metavar="PATTERN",
        help="s3://bucket/**, /data/*/events (** stands for any depth), glue://database.*, an address, or @FILE with one a line",
    )
    parser.add_argument(
        "--exclude",
        action="append",
        default=[],
        metavar="PATTERN",
        help="leave out what matches, and what is below it, such as **/tmp_*; may be repeated",
    )
    _add_output_and_options(parser)


def _add_range(parser: argparse.ArgumentParser, _name: str) -> None:
    parser.add_argument(
        "--from-version", type=_natural, metavar="N", required=True, help="the first version to read"
    )
    parser.add_argument("--to-version", type=_natural, metavar="N", help="the last one (default: the latest)")
    parser.add_argument(
        "--output", metavar="FILE", help="write the rows to a new file; its ending is .parquet or .arrow"
    )


def _add_moment(parser: argparse.ArgumentParser, name: str) -> None:
    if name == "history":
        parser.add_argument("--limit", type=_positive, metavar="N", help="at most this many commits")
    moment = parser.add_mutually_exclusive_group()
    moment.add_argument("--version", type=_natural, metavar="N", help="as of this version")
    moment.add_argument(
        "--timestamp", type=_timestamp, metavar="T", help="as of this time, such as 2026-01-31T12:00:00Z"
    )


def _days(text: str) -> int:
    number = whole_number(text.removesuffix("d"))
    if not number:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of days such as 30d")
    return number


class _Transaction(Kind):
    metavar = "APP_ID:VERSION"

    def read(self, value: Any) -> TransactionId:
        return TransactionId.parse(value)


#: What the command line alone has, since an operator takes it from its connection, or from Airflow.
_OF_ENGINES = (
    Option(
        "master", Text("URL"), "the Spark master", otherwise="$SPARK_MASTER, or local[*]", group=HOW_TO_RUN
    ),
    Option(
        "transaction",
        _Transaction(),
        "name of this piece of work; if the table has it already, do nothing",
        group=HOW_TO_RUN,
        flag="--txn",
    ),
)
_OF_RESUMABLE = (
    Option(
        "run_id",
        Text("ID"),
        f"go on where the run of this name stopped, if it had the same key (${RUN_KEY_VARIABLE})",
        otherwise="a new run",
        group=HOW_TO_RUN,
    ),
)


def rows_of(operation: Operation) -> tuple[Option, ...]:
    """The rows of an operation that have a flag, in the order of ``--help``."""
    rows = (
        *operation.options,
        *operation.settings,
        *(_OF_ENGINES if ENGINE in operation.settings else ()),
        *(_OF_RESUMABLE if operation.is_resumable else ()),
    )
    return tuple(row for row in rows if row.flag is not None)


def _add_operation(parser: argparse.ArgumentParser, operation: Operation) -> None:
    groups: dict[str, Any] = {"": parser}
    for row in rows_of(operation):
        if row.group not in groups:
            groups[row.group] = parser.add_argument_group(row.group)
        _add_flag(groups[row.group], row)


def _add_flag(group: Any, row: Option) -> None:
    assert row.flag is not None
    about: dict[str, Any] = {"dest": row.name, "default": row.default, "help": flag_help(row)}
    if isinstance(row.kind, Switch):
        about["action"] = "store_false" if row.flag.startswith("--no-") else "store_true"
    elif row.kind.choices:
        about["choices"] = row.kind.choices
    else:
        about |= {"type": _argument(row.kind.read_flag), "metavar": row.kind.metavar}
    group.add_argument(row.flag, **about)


def flag_help(row: Option) -> str:
    """The line of ``--help``; argparse takes a percent sign for its own."""
    default = f" (default: {row.default_words})" if row.default_words else ""
    return f"{row.flag_help or row.help}{default}".replace("%", "%%")


def _argument(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """Make a converter for argparse, which shows the converter's own message."""

    def checked(text: str) -> Any:
        try:
            return convert(text)
        except (ValueError, OSError) as error:
            raise argparse.ArgumentTypeError(str(error).rstrip(".")) from error

    return checked


_positive = _argument(Count("commits").read_flag)


@_argument
def _natural(text: str) -> int:
    number = whole_number(text)
    if number is None:
        raise ValueError(f"{brief(text)!r} is not a version number")
    return number


@_argument
def _timestamp(text: str) -> datetime:
    try:
        moment = datetime.fromisoformat(re.sub(r"[Zz]$", "+00:00", text.strip()))
    except ValueError:
        raise ValueError(f"{brief(text)!r} is not a time such as 2026-01-31T12:00:00Z") from None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)


@_argument
def _json_object(text: str) -> dict[str, Any]:
    try:
        value = json.loads(Path(text[1:]).read_text(encoding="utf-8") if text.startswith("@") else text)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):  # not quoted back: it may hold a secret
        raise ValueError("it is not a JSON object")  # noqa: TRY004 - argparse knows ValueError
    return value


def storage_options(given: Mapping[str, Any] | None, environment: Mapping[str, str]) -> dict[str, Any]:
    """The storage options of the command line, else of the environment; empty for the ambient identity."""
    if given is not None:
        return dict(given)
    text = environment.get(STORAGE_OPTIONS_VARIABLE)
    try:
        return dict(_json_object(text)) if text else {}
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"${STORAGE_OPTIONS_VARIABLE}: {error}") from error
