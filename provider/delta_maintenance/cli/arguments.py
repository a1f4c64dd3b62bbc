"""The arguments of the command line: which there are, and what their texts mean."""

from __future__ import annotations

import argparse
import json
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn

from delta_log.errors import brief
from delta_log.table_config.properties import whole_number
from delta_log.version import VERSION
from delta_maintenance.contract import (
    BROKEN_SOURCES,
    CHECKPOINT_POLICIES,
    CHECKPOINT_TOP_FORMATS,
    ENGINES,
    HOT_PARTITIONS,
    RUN_KEY_VARIABLE,
    STORAGE_OPTIONS_VARIABLE,
    VERIFICATIONS,
    TransactionId,
)

_MAX_SIZE_BYTES = 1 << 50
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30, "t": 40}

Command = Callable[[argparse.Namespace], Any]


class UsageError(Exception):
    """The command line is wrong; the message says how."""


class _Parser(argparse.ArgumentParser):
    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{message}. Try: {self.prog} --help")


def make_parser(commands: Mapping[str, Command]) -> argparse.ArgumentParser:
    """The parser; what it gives has the chosen command as ``command``."""
    parser = _Parser(prog="delta-maintenance", description="Look after Delta Lake tables.")
    parser.add_argument(
        "--version", action="version", version=f"%(prog)s {VERSION}", help="print it and exit"
    )
    group = parser.add_subparsers(title="commands", required=True, metavar="COMMAND", parser_class=_Parser)
    added = {name: _add_command(group, name, commands[name], summary) for name, summary in _SUMMARIES.items()}
    added["history"].add_argument("--limit", type=_positive, metavar="N", help="at most so many commits")
    for name in ("inspect", "history"):
        moment = added[name].add_mutually_exclusive_group()
        moment.add_argument("--version", type=_natural, metavar="N", help="as of this version")
        moment.add_argument(
            "--timestamp", type=_timestamp, metavar="T", help="as of this time, such as 2026-01-31T12:00:00Z"
        )
    _add_optimize(added["optimize"])
    _add_rewrite(added["purge"], "0; any other looks for nothing but deleted rows")
    _add_checkpoint(added["checkpoint"])
    _add_vacuum(added["vacuum"])
    added["cleanup-log"].add_argument("--dry-run", action="store_true", help="print the plan; delete nothing")
    added["restore-quarantine"].add_argument(
        "--name", metavar="NAME", help="of one quarantine (default: all of them)"
    )
    added["restore-quarantine"].add_argument(
        "--dry-run", action="store_true", help="say what would come back; move nothing"
    )
    added["compact-log"].add_argument(
        "--dry-run", action="store_true", help="say what it would put together; write nothing"
    )
    return parser


_SUMMARIES = {
    "inspect": "what a version of a table is: protocol, schema, files, deletions",
    "history": "the commits of a table, newest first",
    "optimize": "compact small files, purge deleted rows",
    "purge": "take deleted rows and dropped columns out of the files that hold them",
    "checkpoint": "write a checkpoint, so that readers need no commits before it",
    "vacuum": "delete files that no version in retention needs",
    "restore-quarantine": "bring back what a vacuum put into quarantine",
    "cleanup-log": "delete files of the log that no version in retention needs",
    "compact-log": "put the commits since the newest checkpoint into one file",
}


def _add_command(group: Any, name: str, command: Command, summary: str) -> argparse.ArgumentParser:
    description = f"{summary[0].upper()}{summary[1:]}."
    parser: argparse.ArgumentParser = group.add_parser(name, help=summary, description=description)
    parser.set_defaults(command=command)
    parser.add_argument("table", metavar="TABLE", help="a path, or a URI such as s3://bucket/table")
    parser.add_argument(
        "--storage-options",
        type=_json_object,
        metavar="JSON|@FILE",
        help=f"for the fsspec file system of the table; else ${STORAGE_OPTIONS_VARIABLE}",
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    return parser


def _add_checkpoint(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--policy", choices=CHECKPOINT_POLICIES, help="its kind (default: what the table's properties say)"
    )
    parser.add_argument(
        "--top-format", choices=CHECKPOINT_TOP_FORMATS, help="of a V2 checkpoint's first file (default: json)"
    )
    parser.add_argument(
        "--full", action="store_true", help="take over no sidecar of the newest V2 checkpoint"
    )
    parser.add_argument(
        "--if-due", action="store_true", help="only where readers have much of the log to replay"
    )
    parser.add_argument(
        "--compact-log",
        action="store_true",
        help="where no checkpoint is due, put many commits into one file (with --if-due)",
    )
    parser.add_argument(
        "--cleanup-log",
        action="store_true",
        help="then delete files of the log that no version in retention needs",
    )
    parser.add_argument(
        "--repair-checksum",
        action="store_true",
        help="put the version's checksum file right, where it can be proved what is right",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="say whether one is due, and why; write nothing"
    )


def _add_optimize(parser: argparse.ArgumentParser) -> None:
    what = _add_rewrite(parser, "0.05")
    what.add_argument("--full", action="store_true", help="every file, not only those that gain by it")
    what.add_argument(
        "--min-file-size",
        type=_size,
        metavar="SIZE",
        help="smaller files are compacted (default: 3/4 of the target)",
    )
    what.add_argument(
        "--max-file-size",
        type=_size,
        metavar="SIZE",
        help="larger files are split into files of the target size (default: none is)",
    )


def _add_rewrite(parser: argparse.ArgumentParser, default_ratio: str) -> Any:
    what = parser.add_argument_group("what to rewrite")
    what.add_argument("--where", metavar="EXPR", help="only partitions for which this SQL predicate is true")
    what.add_argument(
        "--target-size", type=_size, metavar="SIZE", help="of new files (default: the table's, or 1GiB)"
    )
    what.add_argument(
        "--max-deleted-rows-ratio",
        type=_ratio,
        metavar="R",
        help=f"files with a greater part of deleted rows are rewritten, even alone (default: {default_ratio})",
    )
    limits = parser.add_argument_group("how much in this run; the rest is left for the next")
    limits.add_argument("--max-bytes", type=_size, metavar="SIZE", help="read at most so much")
    limits.add_argument("--max-files", type=_positive, metavar="N", help="replace at most so many files")
    limits.add_argument(
        "--max-duration", type=_positive, metavar="SECONDS", help="begin nothing more after so long"
    )
    limits.add_argument(
        "--quiet-minutes",
        type=_positive,
        metavar="N",
        help="partitions that somebody wrote to so recently come last",
    )
    limits.add_argument(
        "--hot-partitions", choices=HOT_PARTITIONS, help="those come last, or wait for another run"
    )
    how = parser.add_argument_group("how to run")
    how.add_argument("--dry-run", action="store_true", help="print the plan; write nothing")
    how.add_argument(
        "--output", metavar="URI", help="with --dry-run: write the whole plan there, as JSON lines"
    )
    how.add_argument(
        "--approved", metavar="DIGEST", help="of the plan that was agreed to; another one is refused"
    )
    how.add_argument(
        "--batch-size", type=_size, metavar="SIZE", help="commit whenever so many bytes have been rewritten"
    )
    how.add_argument(
        "--run-id",
        metavar="ID",
        help=f"of a run that died: go on where it stopped, if it had the same key (${RUN_KEY_VARIABLE})",
    )
    how.add_argument(
        "--verify",
        choices=VERIFICATIONS,
        help="count rows, or read new files back and compare all (default: counts)",
    )
    how.add_argument(
        "--on-broken-source",
        choices=BROKEN_SOURCES,
        help="where a file is missing or broken: stop, or leave its bin out (default: fail)",
    )
    how.add_argument(
        "--remap",
        action="store_true",
        help="take over what others delete meanwhile, by deletion vectors on the new files",
    )
    how.add_argument("--engine", choices=ENGINES, default="auto", help="who does the work (default: auto)")
    how.add_argument("--master", metavar="URL", help="Spark master (default: $SPARK_MASTER, or local[*])")
    how.add_argument(
        "--parallelism", type=_positive, metavar="N", help="worker processes or Spark tasks at a time"
    )
    how.add_argument(
        "--memory-limit",
        type=_size,
        default=1 << 30,
        metavar="SIZE",
        help="ceiling for the local engine (default: 1GiB)",
    )
    how.add_argument(
        "--txn",
        type=_transaction,
        metavar="APP_ID:VERSION",
        help="names this piece of work; if it was committed before, do nothing",
    )
    return what


def _add_vacuum(parser: argparse.ArgumentParser) -> None:
    what = parser.add_argument_group("what to delete")
    what.add_argument(
        "--retain-hours",
        type=_hours,
        metavar="H",
        help="keep what was needed so recently (default: the table's)",
    )
    what.add_argument("--where", metavar="EXPR", help="only partitions for which this SQL predicate is true")
    found = what.add_mutually_exclusive_group()
    found.add_argument(
        "--lite", action="store_true", help="what the log removed; list nothing, find no orphans"
    )
    found.add_argument(
        "--inventory", metavar="URI", help="a Parquet or CSV listing, or an S3 Inventory's manifest.json"
    )
    how = parser.add_argument_group("how to run")
    how.add_argument("--dry-run", action="store_true", help="print the plan; delete nothing")
    how.add_argument("--output", metavar="URI", help="write every path there, one JSON object a line")
    how.add_argument(
        "--require-proof", action="store_true", help="refuse where the log cannot prove what has to stay"
    )
    how.add_argument(
        "--no-retention-check",
        action="store_true",
        help="allow less than the table's retention; deletes what others may be using",
    )
    how.add_argument(
        "--quarantine",
        action="store_true",
        help="keep what goes in a hidden directory; on an object store every file is copied",
    )
    how.add_argument(
        "--purge-quarantine",
        type=_hours,
        metavar="H",
        help="delete what has been in quarantine for so many hours",
    )
    how.add_argument("--engine", choices=ENGINES, default="auto", help="who lists the files (default: auto)")
    how.add_argument("--master", metavar="URL", help="Spark master (default: $SPARK_MASTER, or local[*])")
    how.add_argument("--parallelism", type=_positive, metavar="N", help="Spark tasks at a time")
    how.add_argument(
        "--txn",
        type=_transaction,
        metavar="APP_ID:VERSION",
        help="names this piece of work; if it was done before, do nothing",
    )


def _argument(convert: Callable[[str], Any]) -> Callable[[str], Any]:
    """A converter for argparse whose own message is shown."""

    def checked(text: str) -> Any:
        try:
            return convert(text)
        except (ValueError, OSError) as error:
            raise argparse.ArgumentTypeError(str(error)) from error

    return checked


@_argument
def _size(text: str) -> int:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?", text.strip().lower())
    size = Decimal(match[1]) * (1 << _UNITS[match[2]]) if match is not None else None
    if size is None or size > _MAX_SIZE_BYTES:
        raise ValueError(f"{brief(text)!r} is not a size such as 512MB, 1GiB or 1048576, of at most 1 PiB")
    return int(size)


@_argument
def _ratio(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 1:
        raise ValueError(f"{brief(text)!r} is not a number from 0 to 1")
    return value


@_argument
def _hours(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1
    if not 0 <= value <= 876_600:
        raise ValueError(f"{brief(text)!r} is not a number of hours, such as 168")
    return value


@_argument
def _positive(text: str) -> int:
    number = whole_number(text)
    if not number:
        raise ValueError(f"{brief(text)!r} is not a number from 1 on")
    return number


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
def _transaction(text: str) -> TransactionId:
    return TransactionId.parse(text)


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
    """What the command line says, else what the environment says, else nothing: the ambient identity."""
    if given is not None:
        return dict(given)
    text = environment.get(STORAGE_OPTIONS_VARIABLE)
    try:
        return dict(_json_object(text)) if text else {}
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"${STORAGE_OPTIONS_VARIABLE}: {error}") from error
