"""The results of the command line, for people: aligned, and no longer than they have to be."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

from delta_maintenance.plan.optimize_plan import render_plan
from delta_maintenance.plan.vacuum_plan import reason_lines, render_vacuum_plan
from delta_maintenance.progress import format_bytes

#: Of the second reading of the log.
_PROOFS = {
    "commits": "every commit of the log",
    "checkpoint_and_checksum": "a checkpoint and the version's checksum",
    "checkpoint": "a checkpoint alone, which nothing vouches for",
}


def render_facts(facts: Mapping[str, Any]) -> str:
    """Of ``inspect``."""
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
        ("columns", ", ".join(map(_column, json.loads(metadata["schemaString"])["fields"]))),
        *(("property", f"{name} = {value}") for name, value in sorted(metadata["configuration"].items())),
        *(
            ("transaction", f"{app_id}: {version}")
            for app_id, version in sorted(facts["transactions"].items())
        ),
        *(("domain", f"{name}: {text}") for name, text in sorted(facts["domainMetadata"].items())),
    ]
    return "\n".join(f"{name:<14}  {value}" for name, value in lines if value)


def _column(raw: Mapping[str, Any]) -> str:
    kind = raw["type"]
    return f"{raw['name']} {kind if isinstance(kind, str) else kind['type']}"


def render_history(commits: Sequence[Mapping[str, Any]]) -> str:
    """Of ``history``."""
    rows = [("version", "time", "operation", "by", "added", "removed")]
    for commit in commits:
        moment = datetime.fromtimestamp(commit["timestamp"] / 1000, timezone.utc)
        metrics = commit.get("operationMetrics") or {}
        rows.append(
            (
                str(commit["version"]),
                moment.strftime("%Y-%m-%d %H:%M:%SZ"),
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
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def render_checkpoint(report: Mapping[str, Any]) -> str:
    """Of a CHECKPOINT that did not fail."""
    plan, version = report["plan"], report["read_version"]
    because = "; ".join(plan["reasons"])
    if report["status"] == "planned":
        return f"A checkpoint of version {version} is {'due' if plan['due'] else 'not due'}: {because}."
    if report["status"] == "nothing_to_do":
        there = f"version {version} has one already" if report.get("version") is not None else because
        return f"No checkpoint written: {there}."
    metrics, seconds = report["metrics"], (report["finished_ms"] - report["started_ms"]) / 1000
    return (
        f"Wrote a checkpoint of version {version} in {seconds:.1f} s: {metrics['numOfAddFiles']:,} live files, "
        f"{metrics['size']:,} actions, {format_bytes(metrics['sizeInBytes'])} in {metrics['numCheckpointFiles']:,} files"
    )


def render_report(report: Mapping[str, Any]) -> str:
    """Of a job that did not fail."""
    status = report["status"]
    if status == "planned":
        return render_plan(report["plan"])
    if status == "already_done":
        return f"Already done: version {report['version']} holds this very transaction."
    if status == "nothing_to_do":
        return f"Nothing to do at version {report['read_version']}; nothing was committed."
    if status != "committed":
        return f"{status}: {report.get('engine_reason', '')}"
    metrics = report["metrics"]
    seconds = (report["finished_ms"] - report["started_ms"]) / 1000
    before, after = format_bytes(metrics["numRemovedBytes"]), format_bytes(metrics["numAddedBytes"])
    rows = [
        ("files", f"{metrics['numRemovedFiles']:,}", f"{metrics['numAddedFiles']:,}"),
        ("bytes", before, after),
    ]
    lines = [f"Committed version {report['version']} in {seconds:.1f} s"]
    lines += [f"  {name:<8}{old:>10}  →  {new:>10}" for name, old, new in rows]
    if metrics["numDeletionVectorsRemoved"]:
        lines.append(f"  {metrics['numDeletionVectorsRemoved']:,} deletion vectors purged")
    lines.append(f"  engine {report['engine']}: {report['engine_reason']}")
    if report.get("dropped_bins"):
        lines.append(f"  {report['dropped_bins']:,} bins left out, their files were changed meanwhile:")
        lines += [f"    {dropped['files']:,} files: {dropped['message']}" for dropped in report["dropped"]]
    return "\n".join(lines)


def render_vacuum(report: Mapping[str, Any]) -> str:
    """Of a VACUUM that did not fail."""
    plan = report.get("plan")
    if report["status"] == "already_done" or plan is None:
        return f"Already done: version {report['version']} holds this very transaction."
    if report["status"] == "planned":
        return render_vacuum_plan(plan)
    warnings = [f"  warning: {warning}" for warning in plan["warnings"]]
    if report["status"] == "nothing_to_do":
        looked = f"{plan['numListedFiles']:,} files looked at"
        return "\n".join([f"Nothing to delete at version {report['read_version']}; {looked}.", *warnings])
    metrics, seconds = report["metrics"], (report["finished_ms"] - report["started_ms"]) / 1000
    lines = [
        f"Deleted {metrics['numDeletedFiles']:,} files, {format_bytes(metrics['sizeOfDeletedData'])}, in {seconds:.1f} s",
        *reason_lines(plan["reasons"]),
    ]
    if metrics["numDeletedDirectories"]:
        lines.append(f"  {metrics['numDeletedDirectories']:,} empty directories")
    if plan["numSparedFiles"]:
        lines.append(f"  {plan['numSparedFiles']:,} files were left, newer commits name them")
    lines.append(
        f"  recorded as version {report['version']}; what has to stay was proved by {_PROOFS[plan['proof']]}"
    )
    where = "found in the store" if plan["confirmedBy"] == "listing" else "not among what was deleted"
    lines.append(f"  all {plan['liveFilesConfirmed']:,} live files were {where} afterwards")
    return "\n".join([*lines, *warnings])
