"""The command line: ``delta-maintenance COMMAND TABLE``, with the commands of :data:`COMMANDS`.

With ``--json`` standard output is exactly one JSON object, whatever happens; progress and logs go to standard
error. Exit code: 0 done, or nothing to do; 2 refused, the table or the request is at fault; 3 lost to a
concurrent commit; 1 anything else.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from typing import Any, TextIO

from delta_log.printable import print_traceback, printable, printable_lines
from delta_log.redaction import redact, redacted
from delta_maintenance.cli.arguments import UsageError, make_parser, storage_options
from delta_maintenance.contract import (
    EXIT_CONFLICT,
    EXIT_DONE,
    EXIT_FAILED,
    EXIT_REFUSED,
    ContractError,
    JobSpec,
)

_EXIT_CODES = {"refused": EXIT_REFUSED, "conflict": EXIT_CONFLICT}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        options = make_parser(COMMANDS).parse_args(given)
    except UsageError as error:
        return _end(sys.stdout, "--json" in given, {"error": _described(error)}, "")
    with _output() as output:
        try:
            result, text = options.command(options)
        except KeyboardInterrupt:
            result, text = {"error": {"type": "Interrupted", "message": "Interrupted.", "kind": "failed"}}, ""
        except Exception as error:  # noqa: BLE001 - whatever it is, it is told in the promised form
            result, text = {"error": _described(error)}, ""
        return _end(output, options.json, result, text)


def _end(output: TextIO, as_json: bool, result: Mapping[str, Any], text: str) -> int:
    # Whatever a log, an argument or a client library says may hold an address with credentials.
    result, text = redacted(result), redact(text)
    error = result.get("error")
    if as_json:
        print(json.dumps(result, sort_keys=True), file=output, flush=True)
    elif error is None:
        print(printable_lines(text.split("\n")), file=output, flush=True)
    else:
        print(f"delta-maintenance: {printable(error['message'])}", file=sys.stderr)
    return EXIT_DONE if error is None else _EXIT_CODES.get(error.get("kind", ""), EXIT_FAILED)


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
    """Standard output for the result alone: what libraries and Spark's JVM print goes to standard error."""
    try:
        whole_process = sys.stdout.fileno() == 1
    except (OSError, ValueError, AttributeError):
        whole_process = False
    if not whole_process:  # a test's, or a notebook's
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


# -- commands: each gives its result as JSON values, and as a text for people --------------------------------
# What they need is imported when they run: --help and a wrong argument need none of it.


def inspect(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """The facts of one version."""
    from delta_log.table import Table
    from delta_maintenance.cli.text import render_facts

    table = Table(options.table, storage_options(options.storage_options, os.environ))
    snapshot = table.snapshot(options.version, options.timestamp)
    protocol, metadata = snapshot.protocol, snapshot.metadata
    facts = {
        "table": table.uri,
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
    return {"table": table.uri, "history": commits}, render_history(commits)


def optimize(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Compact a table; the result is the job's report."""
    wanted = {
        "full": options.full or None,
        "min_file_size_bytes": options.min_file_size,
        "max_file_size_bytes": options.max_file_size,
    }
    return _rewrite("optimize", options, wanted)


def purge(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Take deleted rows and dropped columns out of the files; the result is the job's report."""
    return _rewrite("purge", options, {})


def _rewrite(
    operation: str, options: argparse.Namespace, wanted: Mapping[str, Any]
) -> tuple[dict[str, Any], str]:
    from delta_log.runtime import Runtime
    from delta_maintenance.cli.text import render_report
    from delta_maintenance.job import JobSite, run_job
    from delta_maintenance.progress import HumanProgress
    from delta_maintenance.rewrite.manifest_file import RunKey

    wanted = {
        **wanted,
        "where": options.where,
        "target_size_bytes": options.target_size,
        "max_deleted_rows_ratio": options.max_deleted_rows_ratio,
        "max_bytes": options.max_bytes,
        "max_files": options.max_files,
        "max_duration_seconds": options.max_duration,
        "batch_size_bytes": options.batch_size,
        "quiet_minutes": options.quiet_minutes,
        "hot_partitions": options.hot_partitions,
        "verify": options.verify,
        "on_broken_source": options.on_broken_source,
        "remap": options.remap or None,
        "approved_digest": options.approved,
        "output": options.output,
    }
    runtime = Runtime()
    spec = JobSpec(
        operation=operation,
        table=options.table,
        run_id=options.run_id or f"cli-{runtime.new_id()}",
        options={name: value for name, value in wanted.items() if value is not None},
        engine=options.engine,
        transaction=options.txn,
        memory_limit_bytes=options.memory_limit,
        parallelism=options.parallelism,
        dry_run=options.dry_run,
    )
    # Without a cluster to go to, "auto" stays here however much there is to do.
    master = options.master or os.environ.get("SPARK_MASTER") or "local[*]"
    has_spark = find_spec("pyspark") is not None
    site = JobSite(
        storage_options(options.storage_options, os.environ),
        master,
        has_spark,
        runtime,
        RunKey.from_environment(os.environ),
    )
    report = _or_spark_missing(run_job(spec, site, HumanProgress(sys.stderr)).to_dict(), master)
    return report, "" if "error" in report else render_report(report)


def _or_spark_missing(report: dict[str, Any], master: str) -> dict[str, Any]:
    if report["status"] == "needs_spark":
        report["error"] = {
            "type": "SparkMissing",
            "message": f"{report['engine_reason']}, and PySpark is not installed here to reach {master}. "
            "Install airflow-provider-delta[spark], or say --engine local.",
            "kind": "refused",
            "retryable": False,
        }
    return report


def checkpoint(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Write a checkpoint; the result is the job's report."""
    from delta_log.runtime import Runtime
    from delta_maintenance.cli.text import render_checkpoint
    from delta_maintenance.job import JobSite, run_job
    from delta_maintenance.progress import HumanProgress

    wanted = {
        "policy": options.policy,
        "top_format": options.top_format,
        "full": options.full or None,
        "if_due": options.if_due or None,
        "compact_log": options.compact_log or None,
        "cleanup_log": options.cleanup_log or None,
        "repair_checksum": options.repair_checksum or None,
    }
    runtime = Runtime()
    spec = JobSpec(
        operation="checkpoint",
        table=options.table,
        run_id=f"cli-{runtime.new_id()}",
        options={name: value for name, value in wanted.items() if value is not None},
        engine="local",
        dry_run=options.dry_run,
    )
    site = JobSite(storage_options(options.storage_options, os.environ), runtime=runtime)
    report = run_job(spec, site, HumanProgress(sys.stderr)).to_dict()
    return report, "" if "error" in report else render_checkpoint(report)


def cleanup_log(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Delete what of the log nobody needs any more; the result is the job's report."""
    from delta_maintenance.cli.text import render_log_cleanup

    report = _log_job("cleanup-log", options)
    return report, "" if "error" in report else render_log_cleanup(report)


def compact_log(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Put commits into a log compaction; the result is the job's report."""
    from delta_maintenance.cli.text import render_log_compaction

    report = _log_job("compact-log", options)
    return report, "" if "error" in report else render_log_compaction(report)


def _log_job(
    operation: str, options: argparse.Namespace, wanted: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    from delta_log.runtime import Runtime
    from delta_maintenance.job import JobSite, run_job
    from delta_maintenance.progress import HumanProgress

    runtime = Runtime()
    spec = JobSpec(
        operation=operation,
        table=options.table,
        run_id=f"cli-{runtime.new_id()}",
        options=wanted or {},
        engine="local",
        dry_run=options.dry_run,
    )
    site = JobSite(storage_options(options.storage_options, os.environ), runtime=runtime)
    return run_job(spec, site, HumanProgress(sys.stderr)).to_dict()


def vacuum(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Delete what nobody needs any more; the result is the job's report."""
    from delta_log.runtime import Runtime
    from delta_maintenance.cli.text import render_vacuum
    from delta_maintenance.job import JobSite, run_job
    from delta_maintenance.progress import HumanProgress

    wanted = {
        "retain_hours": options.retain_hours,
        "retention_check": False if options.no_retention_check else None,
        "lite": options.lite or None,
        "inventory": options.inventory,
        "where": options.where,
        "require_proof": options.require_proof or None,
        "output": options.output,
        "quarantine": options.quarantine or None,
        "purge_quarantine_hours": options.purge_quarantine,
    }
    runtime = Runtime()
    spec = JobSpec(
        operation="vacuum",
        table=options.table,
        run_id=f"cli-{runtime.new_id()}",
        options={name: value for name, value in wanted.items() if value is not None},
        engine=options.engine,
        transaction=options.txn,
        parallelism=options.parallelism,
        dry_run=options.dry_run,
    )
    master = options.master or os.environ.get("SPARK_MASTER") or "local[*]"
    has_spark = find_spec("pyspark") is not None
    site = JobSite(storage_options(options.storage_options, os.environ), master, has_spark, runtime)
    report = _or_spark_missing(run_job(spec, site, HumanProgress(sys.stderr)).to_dict(), master)
    return report, "" if "error" in report else render_vacuum(report)


def restore_quarantine(options: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Bring files back that a vacuum put into quarantine; the result is the job's report."""
    from delta_maintenance.cli.text import render_restoration

    report = _log_job("restore-quarantine", options, {} if options.name is None else {"name": options.name})
    return report, "" if "error" in report else render_restoration(report)


COMMANDS = {
    "inspect": inspect,
    "history": history,
    "optimize": optimize,
    "purge": purge,
    "checkpoint": checkpoint,
    "vacuum": vacuum,
    "restore-quarantine": restore_quarantine,
    "cleanup-log": cleanup_log,
    "compact-log": compact_log,
}


if __name__ == "__main__":
    sys.exit(main())
