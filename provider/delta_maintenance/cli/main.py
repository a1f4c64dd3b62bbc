"""The command line: ``delta-maintenance COMMAND TABLE``, with the commands of :data:`COMMANDS`; ``discover`` takes patterns of tables.

With ``--json`` standard output is exactly one JSON object in any case; progress and logs go to standard error. The exit code is
0 if the work is done or there is nothing to do, 2 if the table or the request is at fault, 3 if a concurrent commit won, and 1
for anything else.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from importlib.util import find_spec
from typing import Any, TextIO

from delta_log.printable import print_traceback, printable, printable_lines
from delta_log.redaction import redact, redacted
from delta_maintenance.cli.arguments import UsageError, make_parser, storage_options
from delta_maintenance.contract import ErrorReport, JobSpec
from delta_maintenance.job_interface import EXIT_DONE, EXIT_FAILED, ContractError, exit_code_of
from delta_maintenance.operations import OPERATIONS
from delta_maintenance.options import ENGINE
from delta_maintenance.process.fast_start import start_fast


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        # Each further command takes half a millisecond.
        only = given[0] if given and given[0] in {name.partition(" ")[0] for name in COMMANDS} else None
        options = make_parser(COMMANDS, only).parse_args(given)
    except UsageError as error:
        return _end(sys.stdout, "--json" in given, {"error": _described(error)}, "")
    code: list[int] = []
    with _output() as output:
        try:
            if arguments is None:  # this process belongs to the command, not to a caller
                start_fast()
            result, text, *code = options.command(options)
        except KeyboardInterrupt:
            result, text = {"error": {"type": "Interrupted", "message": "Interrupted.", "kind": "failed"}}, ""
        except Exception as error:  # noqa: BLE001 - every error is reported in the promised form
            result, text = {"error": _described(error)}, ""
        return _end(output, options.json, result, text, *code)


def _end(output: TextIO, as_json: bool, result: Mapping[str, Any], text: str, code: int = EXIT_DONE) -> int:
    # The text of a log, an argument or a client library may hold an address with credentials.
    result, text = redacted(result), redact(text)
    error = result.get("error")
    code = code if error is None else exit_code_of(error["kind"])
    try:
        if as_json:
            print(json.dumps(result, sort_keys=True), file=output, flush=True)
        elif error is None:
            print(printable_lines(text.split("\n")), file=output, flush=True)
    except BrokenPipeError:
        # The reader has what it wanted, as `head` does. What was done stays done.
        _discard(output)
    except OSError as failed:
        _discard(output)
        code = code or EXIT_FAILED
        what = (
            ""
            if error is not None
            else " The command itself has ended well; look at the table before you repeat it."
        )
        error = {
            "message": f"the result cannot be written to standard output ({failed.strerror or failed}).{what}"
        }
    if error is not None and not (as_json and "type" in error):
        with suppress(OSError):
            print(f"delta-maintenance: {printable(error['message'])}", file=sys.stderr, flush=True)
    return code


def _discard(output: TextIO) -> None:
    """Let what a stream still holds go nowhere, so that closing it does not fail."""
    with suppress(OSError, ValueError):
        nowhere = os.open(os.devnull, os.O_WRONLY)
        os.dup2(nowhere, output.fileno())
        os.close(nowhere)


def _described(error: Exception) -> dict[str, Any]:
    from delta_log.errors import DeltaLogError
    from delta_maintenance.errors import error_report, refusal_report

    if isinstance(error, UsageError):
        return refusal_report(error).to_dict()
    if not isinstance(error, (DeltaLogError, ContractError)):
        print_traceback(error)
    return error_report(error).to_dict()


@contextmanager
def _output() -> Iterator[TextIO]:
    """Keep standard output for the result; what libraries and Spark's JVM print goes to standard error."""
    try:
        whole_process = sys.stdout.fileno() == 1
    except (OSError, ValueError, AttributeError):
        whole_process = False
    if not whole_process:  # in a test or a notebook
        yield sys.stdout
        return
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with os.fdopen(os.dup(kept), "w", encoding=sys.stdout.encoding, errors="replace") as output:
            yield output
    finally:
        sys.stdout.flush()
        os.dup2(kept, 1)
        os.close(kept)


# -- commands: each returns its result as JSON values, as text for people, and perhaps an exit code -----------
# Each imports what it needs when it runs, so that --help and a wrong argument load nothing heavy.


def inspect(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """The facts of one version."""
    from delta_log.table import Table
    from delta_maintenance.cli.text import render_facts

    table = Table(options.table, storage_options(options.storage_options, os.environ))
    snapshot = table.snapshot(options.version, options.timestamp)
    protocol, metadata = snapshot.protocol, snapshot.metadata
    facts = {
        **_addresses(options.table, table.uri),
        "version": snapshot.version,
        "timestamp": snapshot.timestamp.isoformat().replace("+00:00", "Z"),
        "protocol": {
            "minReaderVersion": protocol.minReaderVersion,
            "minWriterVersion": protocol.minWriterVersion,
            "readerFeatures": protocol.readerFeatures,
            "writerFeatures": protocol.writerFeatures,
        },
        "metadata": {
            "id": metadata.id,
            "name": metadata.name,
            "description": metadata.description,
            "schemaString": metadata.schemaString,
            "partitionColumns": list(metadata.partition_columns),
            "configuration": snapshot.properties,
            "createdTime": metadata.createdTime,
        },
        "numFiles": snapshot.num_files,
        "sizeInBytes": snapshot.size_bytes,
        "numDeletionVectors": snapshot.num_deletion_vectors,
        "numDeletedRows": snapshot.num_deleted_rows,
        "numTombstones": snapshot.tombstones(["key"]).num_rows,
        "transactions": snapshot.transactions,
        "domainMetadata": snapshot.domain_metadata,
    }
    return facts, render_facts(facts)


def history(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """The commits that the log still holds."""
    from delta_log.table import Table
    from delta_maintenance.cli.text import render_history

    table = Table(options.table, storage_options(options.storage_options, os.environ))
    if options.version is None and options.timestamp is None:
        commits = table.history(options.limit)
    else:
        newest = table.snapshot(options.version, options.timestamp).version
        commits = [commit for commit in table.history() if commit["version"] <= newest][: options.limit]
    return {**_addresses(options.table, table.uri), "history": commits}, render_history(commits)


def changes(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """What a range of commits has changed, and on request its rows in a file."""
    from delta_log.changes.change_reader import plan_changes, read_changes
    from delta_log.table import Table
    from delta_maintenance.cli.change_file import counted_changes
    from delta_maintenance.cli.text import render_changes

    table = Table(options.table, storage_options(options.storage_options, os.environ))
    plan = plan_changes(table.storage, options.from_version, options.to_version)
    commits = counted_changes(plan, read_changes(plan, table.storage), options.output)
    result = {
        **_addresses(options.table, table.uri),
        "fromVersion": plan.first_version,
        "toVersion": plan.last_version,
        "output": options.output,
        "commits": commits,
    }
    return result, render_changes(result)


def _addresses(given: str, uri: str) -> dict[str, str]:
    """Where a table is; and before it the name by which it was given."""
    from delta_log.storage.table_uri import is_name

    return {"table": given, "location": uri} if is_name(given) else {"table": uri}


def health(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """What a table needs."""
    from delta_log.runtime import Runtime
    from delta_log.table import Table
    from delta_maintenance.health.document import health_of
    from delta_maintenance.health.options import HEALTH, HealthOptions
    from delta_maintenance.text.health import render_health

    limits = HealthOptions.from_mapping(HEALTH.spec_options(vars(options)))
    table = Table(options.table, storage_options(options.storage_options, os.environ))
    document = health_of(table, options.table, limits, Runtime())
    return document, render_health(document)


def doctor(options: argparse.Namespace) -> tuple[dict[str, Any], str, int]:
    """Whether jobs could do their work; the exit code is 1 if a check failed."""
    from delta_log.runtime import Runtime
    from delta_maintenance.doctor.check import FAILURE
    from delta_maintenance.doctor.examination import examine
    from delta_maintenance.progress import HumanProgress
    from delta_maintenance.text.doctor import render_doctor

    document = examine(
        options.table,
        storage_options(options.storage_options, os.environ),
        with_spark=options.spark,
        master=options.master,
        executor_credentials=options.executor_credentials,
        runtime=Runtime(),
        progress=HumanProgress(sys.stderr),
    )
    return document, render_doctor(document), EXIT_FAILED if document["status"] == FAILURE else EXIT_DONE


def discover(options: argparse.Namespace) -> tuple[dict[str, Any], str, int]:
    """The tables that patterns find; the exit code is 1 if a place could not be listed."""
    from delta_maintenance.cli.text import render_discovery
    from delta_maintenance.fleet import discovery

    given = storage_options(options.storage_options, os.environ)
    include: list[str] = []
    for pattern in options.patterns:
        is_file = pattern.startswith("@")
        include += (
            discovery.read_addresses(_absolute(pattern[1:]), given) if is_file else [_absolute(pattern)]
        )
    found = discovery.discover(include, options.exclude, given)
    document = {
        "tables": [{"table": one.table, "location": one.location} for one in found.tables],
        "unlisted": [{"table": one.table, "error": one.error.to_dict()} for one in found.unlisted],
        "withoutTables": list(found.without_tables),
    }
    return document, render_discovery(document), EXIT_FAILED if found.unlisted else EXIT_DONE


def _absolute(place: str) -> str:
    """Return an address with a relative path below the working directory of the command."""
    from delta_log.storage.table_uri import local_path

    return os.path.abspath(place) if local_path(place) == place else place


def run_operation(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Run the operation that is named as the command; the result is the job's report."""
    from delta_log.runtime import Runtime
    from delta_maintenance.job import JobSite, run_job
    from delta_maintenance.progress import HumanProgress
    from delta_maintenance.rewrite.manifest.manifest_file import RunKey
    from delta_maintenance.text.report import render_report

    given, operation = vars(options), OPERATIONS[options.operation]
    uses_engines = ENGINE in operation.settings
    runtime = Runtime()
    spec = JobSpec(
        operation=operation.name,
        table=options.table,
        run_id=given.get("run_id") or f"cli-{runtime.new_id()}",
        options=operation.spec_options(given),
        transaction=given.get("transaction"),
        **{"engine": "local", **{row.name: given[row.name] for row in operation.settings}},
    )
    # Without a cluster, "auto" means the local engine.
    master = given.get("master") or os.environ.get("SPARK_MASTER") or "local[*]"
    site = JobSite(
        storage_options(options.storage_options, os.environ),
        spark_master=master if uses_engines else None,
        can_use_spark=uses_engines and find_spec("pyspark") is not None,
        runtime=runtime,
        run_key=RunKey.from_environment(os.environ) if operation.is_resumable else None,
    )
    report = _or_spark_missing(run_job(spec, site, HumanProgress(sys.stderr)).to_dict(), master)
    return report, "" if "error" in report else render_report(report)


def _or_spark_missing(report: dict[str, Any], master: str) -> dict[str, Any]:
    if report["status"] == "needs_spark":
        problem = f"{report['engine_reason']}, and PySpark is not installed here to reach {master}."
        remedy = "Install airflow-provider-delta[spark], or use the local engine (--engine local)."
        error = ErrorReport("SparkMissing", f"{problem} {remedy}", "refused", retryable=False)
        report["error"] = error.to_dict()
    return report


def _of_fleet(name: str) -> Callable[[argparse.Namespace], Any]:
    """A command of :mod:`delta_maintenance.cli.fleet`, which is imported when it runs."""

    def command(options: argparse.Namespace) -> Any:
        from delta_maintenance.cli.fleet import FLEET_COMMANDS

        return FLEET_COMMANDS[name](options)

    return command


#: By name; :data:`~delta_maintenance.operations.OPERATIONS` says which operations there are.
COMMANDS = {
    "inspect": inspect,
    "history": history,
    "changes": changes,
    "health": health,
    **dict.fromkeys(OPERATIONS, run_operation),
    "doctor": doctor,
    "discover": discover,
    **{
        name: _of_fleet(name)
        for name in ("policy check", "policy explain", "policy diff", "fleet run", "fleet report")
    },
}


if __name__ == "__main__":
    sys.exit(main())
