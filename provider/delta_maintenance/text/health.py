"""The document of a health reading as aligned text for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from delta_log.printable import printable_lines
from delta_maintenance.units import counted, format_bytes, format_time


def render_health(document: Mapping[str, Any]) -> str:
    """The facts that people ask for first, then findings, then what to run."""
    return printable_lines(_lines(document))


def _lines(document: Mapping[str, Any]) -> Iterator[str]:
    facts = document["facts"]
    yield f"{document['table']}, version {document['version']}: {document['status']}"
    rows = [
        ("files", _files(facts)),
        ("deleted rows", _deleted(facts)),
        ("layout", _layout(facts.get("layout"))),
        ("log", _log(facts["log"])),
        ("removed", _removed(facts["removedFiles"])),
        *(("last", text) for text in _last_runs(facts)),
    ]
    yield from (f"  {name:<12} {text}" for name, text in rows if text)
    for finding in document["findings"]:
        yield f"{finding['severity']}: {finding['message']}"
    if not document["findings"]:
        yield "nothing exceeds its limit"
    for advice in document["recommendations"]:
        yield f"recommended: {advice['operation']}. {advice['why']}"
        yield f"  {advice['command']}"


def _files(facts: Mapping[str, Any]) -> str:
    plan = facts["optimize"]
    small = "" if plan is None else f"; OPTIMIZE would merge {plan['numFilesToMerge']:,} of them"
    foreign = f"; {facts['numForeignFiles']:,} lie elsewhere" if facts["numForeignFiles"] else ""
    return f"{facts['numFiles']:,}, {format_bytes(facts['sizeInBytes'])}{small}{foreign}"


def _deleted(facts: Mapping[str, Any]) -> str:
    if not facts["numDeletedRows"]:
        return ""
    return (
        f"{facts['numDeletedRows']:,} in {counted(facts['numDeletionVectors'], 'file')}, {facts['deletedRowsRatio']:.1%}; "
        f"of the worst partition {facts['worstDeletedRowsRatio']:.1%}"
    )


def _layout(layout: Mapping[str, Any] | None) -> str:
    if layout is None:
        return ""
    kind = "clustered" if layout["kind"] == "clustering" else layout["kind"]
    unusable = "".join(f"; {name} cannot be used" for name in layout["unusable"])
    return (
        f"queries skip {layout['skippedNow']:.0%} of the table; {layout['skippedAfter']:.0%} if it were {kind} by "
        f"{', '.join(layout['columns'])}{unusable}"
    )


def _log(log: Mapping[str, Any]) -> str:
    version = log["checkpointVersion"]
    since = "no checkpoint" if version is None else f"checkpoint of version {version}"
    return (
        f"{since}, {counted(log['numCommitsSinceCheckpoint'], 'commit')} after it (one is due after {log['checkpointInterval']:,}); "
        f"{counted(log['numFiles'], 'file')} since version {log['firstVersion']}"
    )


def _removed(removed: Mapping[str, Any]) -> str:
    if not removed["numFiles"]:
        return ""
    parts = [
        f"{counted(part['numFiles'], 'file')}, {format_bytes(part['sizeInBytes'])} {what}"
        for part, what in (
            (removed["reclaimable"], "that VACUUM may delete"),
            (removed["held"], "held by the retention"),
        )
        if part["numFiles"]
    ]
    return "; ".join(parts)


def _last_runs(facts: Mapping[str, Any]) -> Iterator[str]:
    for name, run in facts["lastRuns"].items():
        by = f" by {run['engineInfo']}" if "engineInfo" in run else ""
        yield f"{name}: version {run['version']}, {format_time(run['timestamp'], '%Y-%m-%d %H:%M:%SZ')}{by}"
