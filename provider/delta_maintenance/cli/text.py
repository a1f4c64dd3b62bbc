"""The results of commands as short, aligned text for people.

Every line goes through :mod:`delta_log.printable`, so that text of a table can neither steer a terminal nor begin a line.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from delta_log.errors import CorruptLog, brief
from delta_log.printable import printable, printable_lines
from delta_maintenance.cli.plan_text import (
    foreign_lines,
    log_cleanup_lines,
    reason_lines,
    render_log_cleanup_plan,
    render_plan,
    render_vacuum_plan,
)
from delta_maintenance.units import format_bytes, format_time

#: What the second reading of the log rested on.
_PROOFS = {
    "commits": "every commit of the log",
    "checkpoint_and_checksum": "a checkpoint and the version's checksum",
    "checkpoint": "a checkpoint alone, which nothing vouches for",
}

#: What proves the right content of a version checksum.
_CHECKSUM_PROOFS = {
    "commits": "every commit of the log",
    "checksum": "an older checksum and the commits since",
}


def render_facts(facts: Mapping[str, Any]) -> str:
    """The facts of a version."""
    protocol, metadata = facts["protocol"], facts["metadata"]
    features = sorted({*(protocol["readerFeatures"] or ()), *(protocol["writerFeatures"] or ())})
    lines = [
        ("table", facts["table"]),
        ("name", metadata["name"]),
        ("version", f"{facts['version']}, committed {facts['timestamp']}"),
        ("protocol", f"reader {protocol['minReaderVersion']}, writer {protocol['minWriterVersion']}"),
        ("features", ", ".join(features)),
        ("files", f"{facts['numFiles']:,}, {format_bytes(facts['sizeInBytes'])}"),
        (
            "deletions",
            f"{facts['numDeletedRows']:,} rows in {facts['numDeletionVectors']:,} deletion vectors",
        ),
        ("tombstones", f"{facts['numTombstones']:,}"),
        ("partitioned by", ", ".join(metadata["partitionColumns"])),
        ("columns", ", ".join(_columns(metadata["schemaString"]))),
        *(("property", f"{name} = {value}") for name, value in sorted(metadata["configuration"].items())),
        *(
            ("transaction", f"{app_id}: {version}")
            for app_id, version in sorted(facts["transactions"].items())
        ),
        *(("domain", f"{name}: {text}") for name, text in sorted(facts["domainMetadata"].items())),
    ]
    return printable_lines(f"{name:<14}  {value}" for name, value in lines if value)


def _columns(schema: str) -> Iterator[str]:
    """Names and types of columns, including types that this release does not read.

    :raises CorruptLog: the text is not a schema.
    """
    try:
        for raw in json.loads(schema)["fields"]:
            kind = raw["type"]
            yield f"{raw['name']} {kind if isinstance(kind, str) else kind['type']}"
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise CorruptLog("metaData.schemaString", f"it is not a schema ({brief(repr(error))})") from error


def render_history(commits: Sequence[Mapping[str, Any]]) -> str:
    """Commits as a table, one a line."""
    rows = [("version", "time", "operation", "by", "added", "removed")]
    for commit in commits:
        metrics = commit.get("operationMetrics") or {}
        rows.append(
            (
                str(commit["version"]),
                format_time(commit["timestamp"], "%Y-%m-%d %H:%M:%SZ"),
                str(commit.get("operation", "?")),
                str(commit.get("engineInfo", "")),
                _first(metrics, "numAddedFiles", "num_added_files", "numFiles"),
                _first(metrics, "numRemovedFiles", "num_removed_files"),
            )
        )
    return _aligned(rows)


def _first(metrics: Mapping[str, Any], *names: str) -> str:
    return next((str(metrics[name]) for name in names if metrics.get(name) is not None), "")


def _aligned(rows: Sequence[Sequence[str]]) -> str:
    rows = [[printable(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return printable_lines(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def render_checkpoint(report: Mapping[str, Any]) -> str:
    """The report of a checkpoint that did not fail."""
    plan, version, metrics = report["plan"], report["read_version"], report.get("metrics", {})
    because = "; ".join(plan["reasons"])
    lines = []
    if report["status"] == "planned":
        lines.append(
            f"A checkpoint of version {version} is {'due' if plan['due'] else 'not due'}: {because}."
        )
        lines.append(f"  {plan['logCompaction']['reason']}")
    elif "sizeOfLogCompaction" in metrics:
        lines += [f"No checkpoint written: {because}.", f"  {_compacted(metrics)}"]
    elif report.get("version") is None:
        lines.append(f"No checkpoint written: {because}.")
    elif plan["checkpointWritten"]:
        seconds = (report["finished_ms"] - report["started_ms"]) / 1000
        lines.append(
            f"Wrote a checkpoint of version {version} in {seconds:.1f} s: {metrics['numOfAddFiles']:,} live files, "
            f"{metrics['size']:,} actions, {format_bytes(metrics['sizeInBytes'])} in {metrics['numCheckpointFiles']:,} files"
        )
        if metrics["numReusedSidecars"]:
            lines.append(
                f"  {metrics['numReusedSidecars']:,} of them did not change and were not written again"
            )
    else:
        lines.append(f"No checkpoint written: version {version} has one already.")
    lines += [f"  warning: {warning}" for warning in plan.get("warnings", ())]
    if "checksum" in plan:
        lines.append(f"  {_checksum(plan['checksum'])}")
    if "logCleanup" in plan:
        lines += _log_cleanup(plan["logCleanup"], metrics)
    return printable_lines(lines)


def _checksum(found: Mapping[str, Any]) -> str:
    what = f"the version checksum is {found['state']}"
    if found["disagreements"]:
        what += f" ({', '.join(found['disagreements'])})"
    if found.get("repaired"):
        return f"{what}, and was put right"
    if found["state"] == "right":
        return what
    if found["provedBy"] is None:
        return f"{what}, and what it should say cannot be proved: it was left as it is"
    return f"{what}; what it should say is proved by {_CHECKSUM_PROOFS[found['provedBy']]}"


def render_log_cleanup(report: Mapping[str, Any]) -> str:
    """The report of a log cleanup that did not fail."""
    plan = report["plan"]
    if report["status"] == "planned":
        return render_log_cleanup_plan(plan)
    return printable_lines(_log_cleanup(plan, report["metrics"]))


def _log_cleanup(plan: Mapping[str, Any], metrics: Mapping[str, Any]) -> list[str]:
    if "deleted" not in plan:
        if plan["numFilesToDelete"]:
            return render_log_cleanup_plan(plan).splitlines()
        return ["Nothing of the log to delete.", *log_cleanup_lines(plan, {})]
    first = f"Deleted {metrics['numDeletedFiles']:,} files of the log, {format_bytes(metrics['sizeOfDeletedData'])}"
    return [first, *log_cleanup_lines(plan, plan["deleted"])]


def render_log_compaction(report: Mapping[str, Any]) -> str:
    """The report of a log compaction that did not fail."""
    reason = str(report["plan"]["reason"])
    if report["status"] != "written":
        return f"{reason[0].upper()}{reason[1:]}."
    return _compacted(report["metrics"])


def _compacted(metrics: Mapping[str, Any]) -> str:
    before, after = metrics["sizeOfCompactedCommits"], metrics["sizeOfLogCompaction"]
    return (
        f"Put {metrics['numCompactedCommits']:,} commits into one file: {format_bytes(before)} became {format_bytes(after)}, "
        f"{metrics['numCompactedActions']:,} actions"
    )


def render_rewrite(report: Mapping[str, Any]) -> str:
    """The report of an OPTIMIZE or a purge that did not fail."""
    status = report["status"]
    if status == "planned":
        return render_plan(report["plan"])
    if status == "already_done":
        return f"Already done: version {report['version']} holds this very transaction."
    if status == "nothing_to_do":
        return printable_lines(
            [
                f"Nothing to do at version {report['read_version']}; nothing was committed.",
                *_left_lines(report),
            ]
        )
    if status != "committed":
        return f"{status}: {report.get('engine_reason', '')}"
    metrics = report["metrics"]
    seconds = (report["finished_ms"] - report["started_ms"]) / 1000
    before, after = format_bytes(metrics["numRemovedBytes"]), format_bytes(metrics["numAddedBytes"])
    rows = [
        ("files", f"{metrics['numRemovedFiles']:,}", f"{metrics['numAddedFiles']:,}"),
        ("bytes", before, after),
    ]
    batches = report.get("num_batches")
    within = f", the last of {batches:,} batches" if batches and batches > 1 else ""
    lines = [f"Committed version {report['version']} in {seconds:.1f} s{within}"]
    lines += [f"  {name:<8}{old:>10}  →  {new:>10}" for name, old, new in rows]
    if metrics["numDeletionVectorsRemoved"]:
        lines.append(f"  {metrics['numDeletionVectorsRemoved']:,} deletion vectors purged")
    lines.append(f"  engine {report['engine']}: {report['engine_reason']}")
    if report.get("remapped_bins"):
        lines.append(
            f"  {report['remapped_bins']:,} bins took over what was deleted of their files meanwhile"
        )
    if report.get("dropped_bins"):
        lines.append(f"  {report['dropped_bins']:,} bins left out, their files were changed meanwhile:")
        lines += [f"    {dropped['files']:,} files: {dropped['message']}" for dropped in report["dropped"]]
    if report.get("broken_bins"):
        lines.append(f"  {report['broken_bins']:,} bins left out, a file of theirs cannot be read:")
        lines += [f"    {broken['message']}" for broken in report["broken"]]
    return printable_lines([*lines, *_left_lines(report)])


def _left_lines(report: Mapping[str, Any]) -> list[str]:
    left, lines = report.get("left"), foreign_lines(report.get("foreign"))
    if not left:
        return lines
    return [
        f"  left for another run: {left['files']:,} files, {format_bytes(left['bytes'])}, in {left['bins']:,} bins",
        *lines,
    ]


def render_vacuum(report: Mapping[str, Any]) -> str:
    """The report of a VACUUM that did not fail."""
    plan = report.get("plan")
    if report["status"] == "already_done" or plan is None:
        return f"Already done: version {report['version']} holds this very transaction."
    if report["status"] == "planned":
        return printable_lines([*render_vacuum_plan(plan).split("\n"), *_quarantine_plan_lines(plan)])
    broken = plan.get("brokenQuarantines", {}).items()
    warnings = [f"  warning: {warning}" for warning in plan["warnings"]]
    warnings += [f"  warning: the quarantine {name} is broken: {why}" for name, why in broken]
    if report["status"] == "nothing_to_do":
        looked = f"{plan['numListedFiles']:,} files looked at"
        return printable_lines(
            [f"Nothing to delete at version {report['read_version']}; {looked}.", *warnings]
        )
    metrics, seconds = report["metrics"], (report["finished_ms"] - report["started_ms"]) / 1000
    purged = _purged_lines(metrics)
    if report["status"] == "cleaned":
        return printable_lines(
            [f"Nothing to delete at version {report['read_version']}.", *purged, *warnings]
        )
    done = "Moved into quarantine" if "quarantine" in plan else "Deleted"
    lines = [
        f"{done} {metrics['numDeletedFiles']:,} files, {format_bytes(metrics['sizeOfDeletedData'])}, in {seconds:.1f} s",
        *reason_lines(plan["reasons"]),
    ]
    if metrics["numDeletedDirectories"]:
        lines.append(f"  {metrics['numDeletedDirectories']:,} empty directories")
    if "quarantine" in plan:
        lines.append(f"  they wait in quarantine {plan['quarantine']}; restore-quarantine brings them back")
    lines += purged
    if plan["numSparedFiles"]:
        lines.append(f"  {plan['numSparedFiles']:,} files were left, newer commits name them")
    lines.append(
        f"  recorded as version {report['version']}; what has to stay was proved by {_PROOFS[plan['proof']]}"
    )
    where = "found in the store" if plan["confirmedBy"] == "listing" else "not among what was deleted"
    lines.append(f"  all {plan['liveFilesConfirmed']:,} live files were {where} afterwards")
    return printable_lines([*lines, *warnings])


def _quarantine_plan_lines(plan: Mapping[str, Any]) -> list[str]:
    broken = plan.get("brokenQuarantines", {}).items()
    lines = ["  into quarantine"] if plan.get("quarantine") else []
    lines += [f"  warning: the quarantine {name} is broken: {why}" for name, why in broken]
    if "numTemporaryFilesToDelete" in plan:
        lines.append(f"  and {plan['numTemporaryFilesToDelete']:,} temporary files of killed processes")
    if "numQuarantinedFilesToDelete" in plan:
        size = format_bytes(plan["sizeOfQuarantinedDataToDelete"])
        lines.append(f"  and {plan['numQuarantinedFilesToDelete']:,} files, {size}, of older quarantines")
    return lines


def _purged_lines(metrics: Mapping[str, int]) -> list[str]:
    lines = []
    if "numDeletedTemporaryFiles" in metrics:
        lines.append(
            f"  {metrics['numDeletedTemporaryFiles']:,} temporary files of killed processes were deleted"
        )
    if "numPurgedFiles" not in metrics:
        return lines
    size = format_bytes(metrics["sizeOfPurgedData"])
    lines += [f"  {metrics['numPurgedFiles']:,} files, {size}, of older quarantines were deleted"]
    if metrics.get("numNeededFilesInQuarantine"):
        lines.append(
            f"  warning: the table needs {metrics['numNeededFilesInQuarantine']:,} files of a quarantine; they stay. Run "
            "restore-quarantine."
        )
    return lines


def render_restoration(report: Mapping[str, Any]) -> str:
    """The report of a ``restore-quarantine`` that did not fail."""
    metrics, plan = report["metrics"], report["plan"]
    would = report["status"] == "planned"
    if not plan["quarantines"]:
        return "Nothing is in quarantine."
    what = f"{metrics['numRestoredFiles']:,} files, {format_bytes(metrics['sizeOfRestoredData'])}"
    lines = [f"{'Would bring' if would else 'Brought'} back {what}, from {', '.join(plan['quarantines'])}"]
    if metrics["numPresentFiles"]:
        lines.append(f"  {metrics['numPresentFiles']:,} files were in their place already")
    if metrics["numConflictingFiles"]:
        lines.append(
            f"  warning: {metrics['numConflictingFiles']:,} files stay in quarantine, since others are in their place: "
            f"{', '.join(plan['conflicts'])}"
        )
    left = metrics["numRefusedFiles"] + metrics["numUnnamedFiles"]
    if left:
        lines.append(
            f"  warning: {left:,} files stay in quarantine, since no vacuum took them from there: "
            f"{', '.join(plan['leftFiles'])}"
        )
    lines += [
        f"  warning: {name} is left as it is: {why}" for name, why in plan["refusedQuarantines"].items()
    ]
    return printable_lines(lines)


#: By operation, what renders its report.
RENDERERS: dict[str, Callable[[Mapping[str, Any]], str]] = {
    "optimize": render_rewrite,
    "purge": render_rewrite,
    "checkpoint": render_checkpoint,
    "vacuum": render_vacuum,
    "restore-quarantine": render_restoration,
    "cleanup-log": render_log_cleanup,
    "compact-log": render_log_compaction,
}


def render_report(report: Mapping[str, Any]) -> str:
    """The report of a job that did not fail."""
    return RENDERERS[report["operation"]](report)
