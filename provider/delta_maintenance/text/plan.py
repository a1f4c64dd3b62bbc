"""Plans as text for people, from the summaries that reports carry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from delta_log.errors import brief
from delta_log.printable import printable_lines
from delta_maintenance.text.selection import chosen_text, left_rows, left_text
from delta_maintenance.units import HOUR_MS, counted, format_bytes, format_time

#: Why a vacuum deletes a file, by the reasons of its plan.
VACUUM_REASONS = {
    "orphan": "the newest version neither has them nor remembers their removal",
    "expired_tombstone": "removed from the table, and the retention is over",
    "dead_deletion_vector": "deletion vectors that no version in retention needs",
    "old_change_data": "change data, older than the retention",
}
#: Why a log cleanup deletes a file, by the reasons of its plan.
LOG_CLEANUP_REASONS = {
    "expired_commit": "older than the log's retention, and a checkpoint stands for it",
    "expired_checkpoint": "a newer checkpoint is older than the retention, too",
    "expired_compaction": "of commits that a checkpoint stands for",
    "expired_checksum": "of a version that goes",
    "staged_commit": "of a version that goes",
    "unfinished_checkpoint": "empty, or a part of a set that was never completed",
    "orphan_sidecar": "no checkpoint names it",
    "temporary_file": "its writer died",
    "hadoop_checksum": "of a file that goes, or is gone",
}
#: Reasons that a plan tells in a line of their own.
_TOLD_APART = ("hot", "over_budget", "foreign")
#: Partitions that the log of a run names before it begins; a dry run names more.
_NAMED_PARTITIONS = 3


def _copied_lines(summary: Mapping[str, Any]) -> list[str]:
    """How many bytes are copied, and why the others are decoded; none if the plan does not tell."""
    decoded: Mapping[str, int] = summary.get("numBytesToDecode") or {}
    ways = [("copy", summary.get("numBytesToCopyEstimate"), "of row groups as they are")]
    ways += [("decode", size, f"since {reason}") for reason, size in decoded.items()]
    return [f"  {name:<11}{'':>15}  {format_bytes(size):>10}  {note}" for name, size, note in ways if size]


#: The layouts of a plan, as people call them.
_LAYOUTS = {
    "clustering": "clustering",
    "zorder": "Z-order",
    "hilbert": "Hilbert curve",
    "kd": "tree of quantiles",
}


def _layout_text(summary: Mapping[str, Any]) -> str:
    """The layout that the new files get; empty if rows keep their order."""
    layout = summary.get("layout")
    if not layout:
        return ""
    return f"{_LAYOUTS.get(layout['kind'], layout['kind'])} by {', '.join(layout['columns'])}"


def _skipping_lines(summary: Mapping[str, Any]) -> list[str]:
    """Which part of the files queries skip, now and after the layout."""
    lines = []
    for column in summary.get("skipping") or ():
        if "now" not in column:
            lines.append(
                f"  {'skipped':<11}  {column['column']}: not known, since files have no bounds of it"
            )
            continue
        value = f"{column['now']:.0%} → {column['after']:.0%} of the files by one value"
        lines.append(
            f"  {'skipped':<11}  {column['column']}: {value}, {column['rangeNow']:.0%} → {column['rangeAfter']:.0%} by a range"
        )
    return lines


def render_plan(summary: Mapping[str, Any]) -> str:
    """The summary of a plan of OPTIMIZE or of a purge."""
    left, hot = summary["numBinsLeftByBudget"], summary["numBinsLeftAsHot"]
    considered = f"{summary['numConsideredFiles']:,} files, {format_bytes(summary['numConsideredBytes'])}"
    if not summary["numBins"]:
        undone = f"; the budget left {_bins(left)} undone" if left else ""
        undone += f"; {_bins(hot)} of partitions that are being written to wait" if hot else ""
        nothing = (
            f"Nothing to do at version {summary['readVersion']}: {considered}, none worth rewriting{undone}."
        )
        return printable_lines(
            [
                nothing,
                *_left_lines(summary),
                *foreign_lines(summary.get("foreign")),
                *_warning_lines(summary),
            ],
        )
    target = format_bytes(summary["targetSizeBytes"])
    rows = [
        ("considered", summary["numConsideredFiles"], summary["numConsideredBytes"], ""),
        (
            "rewrite",
            summary["numFilesToRemove"],
            summary["numBytesToRemove"],
            f"in {_bins(summary['numBins'])}",
        ),
        (
            "into about",
            summary["numFilesToAddEstimate"],
            summary["numBytesToAddEstimate"],
            f"of up to {target}",
        ),
    ]
    lines = [f"Plan {summary['digest'][:12]} on version {summary['readVersion']}"]
    lines += [
        f"  {name:<11}{files:>9,} files  {format_bytes(size):>10}  {note}".rstrip()
        for name, files, size, note in rows
    ]
    lines += _copied_lines(summary)
    if layout := _layout_text(summary):
        lines.append(f"  {'layout':<11}  {layout}")
    lines += _skipping_lines(summary)
    if left:
        size = format_bytes(summary["numBytesLeftByBudget"])
        lines.append(f"  {'left':<11}{left:>9,} bins   {size:>10}  to the next run")
    if hot:
        size = format_bytes(summary["numBytesLeftAsHot"])
        lines.append(f"  {'waiting':<11}{hot:>9,} bins   {size:>10}  for quiet partitions")
    if summary.get("estimatedSeconds") is not None:
        runs = summary["numRunsOfEstimate"]
        lines.append(
            f"  {'time':<11}  about {summary['estimatedSeconds']:,} s, by {runs} earlier "
            f"{'run' if runs == 1 else 'runs'} on this table"
        )
    lines += foreign_lines(summary.get("foreign"))
    reasons = (f"{name.replace('_', ' ')} {count:,}" for name, count in summary["numChosenFiles"].items())
    lines.append(f"  {'chosen for':<11}  {', '.join(reasons)}")
    lines += [*_left_lines(summary), *_warning_lines(summary)]
    partitions = summary["partitions"]
    if any(partition["partitionValues"] for partition in partitions):
        lines.append("  partitions   most bytes first")
        lines += [
            f"  {'':<11}{partition['numFiles']:>9,} files  {format_bytes(partition['numBytes']):>10}  "
            f"in {_bins(partition['numBins']):<9} {_partition_name(partition['partitionValues'])}"
            for partition in partitions
        ]
        if summary["numPartitions"] > len(partitions):
            lines.append(f"  {'':<11}  … and {summary['numPartitions'] - len(partitions):,} partitions more")
    return printable_lines(lines)


def _left_lines(summary: Mapping[str, Any]) -> list[str]:
    """A line for each reason to leave files; none if the plan does not tell."""
    return [
        f"  {'left':<11}{files:>9,} files  {format_bytes(size):>10}  {words}"
        for reason, files, size, words in left_rows(summary.get("selection") or {"left": {}})
        if reason not in _TOLD_APART
    ]


def rewrite_lines(summary: Mapping[str, Any]) -> list[str]:
    """Say which files a rewrite is about to read, why, and which it leaves; for the log, before the work begins.

    :param summary: summary of a plan with at least one bin.
    """
    selection = summary["selection"]
    lines = [f"chosen at version {summary['readVersion']}: {chosen_text(selection)}"]
    if layout := _layout_text(summary):
        lines.append(f"layout: {layout}")
    named = [partition for partition in summary["partitions"] if partition["partitionValues"]]
    if named:
        shown = [
            f"{brief(_partition_name(partition['partitionValues']), 200)} ({counted(partition['numFiles'], 'file')}, "
            f"{format_bytes(partition['numBytes'])})"
            for partition in named[:_NAMED_PARTITIONS]
        ]
        more = summary["numPartitions"] - len(shown)
        lines.append(
            f"partitions, most bytes first: {', '.join(shown)}{f' and {more:,} more' if more else ''}"
        )
    left = left_text(selection)
    return [*lines, *([f"left: {left}"] if left else []), *summary.get("warnings", ())]


def _warning_lines(summary: Mapping[str, Any]) -> list[str]:
    return [f"  warning: {warning}" for warning in summary.get("warnings", ())]


def foreign_lines(foreign: Mapping[str, Any] | None) -> list[str]:
    """A line about files outside of the table, if there are any."""
    if not foreign or not foreign["files"]:
        return []
    more = foreign["files"] - len(foreign["examples"])
    names = ", ".join(foreign["examples"]) + (f" and {more:,} more" if more else "")
    size = format_bytes(foreign["bytes"])
    return [f"  {foreign['files']:,} files, {size}, lie outside of the table and stay as they are: {names}"]


def _partition_name(values: Mapping[str, str | None]) -> str:
    return "/".join(f"{name}={'null' if value in (None, '') else value}" for name, value in values.items())


def _bins(count: int) -> str:
    return f"{count:,} {'bin' if count == 1 else 'bins'}"


def render_vacuum_plan(plan: Mapping[str, Any]) -> str:
    """The summary of a plan of VACUUM."""
    lines = [
        f"Would delete {plan['numFilesToDelete']:,} files, {format_bytes(plan['sizeOfDataToDelete'])}",
        f"  planned on version {plan['readVersion']}",
        f"  what was needed since {format_time(plan['cutoffMs'], '%Y-%m-%d %H:%MZ')} stays (retention {plan['retentionMs'] / HOUR_MS:g} hours)",
        *kept_lines(plan),
        *reason_lines(plan["reasons"]),
    ]
    if plan["numDirectoriesToDelete"]:
        lines.append(f"  {plan['numDirectoriesToDelete']:,} empty directories")
    lines.append(
        f"  {plan['numListedFiles']:,} files looked at in {plan['numVacuumedDirectories']:,} directories ({plan['mode']})"
    )
    lines += [f"  warning: {warning}" for warning in plan["warnings"]]
    if plan["files"]:
        lines.append("  for example")
        lines += [f"    {row['reason']:<21} {row['path']}" for row in plan["files"]]
    return printable_lines(lines)


def kept_lines(plan: Mapping[str, Any]) -> list[str]:
    """Say which versions a vacuum keeps besides the retention; reports of older releases do not know of any."""
    named, num_last = plan.get("keptVersions", []), plan.get("numKeptLastVersions", 1)
    which = [f"version {version}" for version in named]
    which += [f"the last {num_last:,} versions"] if num_last > 1 else []
    if not which:
        return []
    return [f"  {counted(plan['numFilesOfKeptVersions'], 'file')} stay for {', '.join(which)} alone"]


def reason_lines(reasons: Mapping[str, Mapping[str, int]]) -> list[str]:
    """A line for each reason to delete files."""
    return _reason_lines(reasons, VACUUM_REASONS)


def _reason_lines(counted_by: Mapping[str, Mapping[str, int]], words: Mapping[str, str]) -> list[str]:
    return [
        f"  {counts['numFiles']:>9,} {format_bytes(counts['numBytes']):>10}  {reason}: {words.get(reason, '')}"
        for reason, counts in counted_by.items()
    ]


def vacuum_lines(plan: Mapping[str, Any]) -> list[str]:
    """Say what a vacuum is about to delete, and why; for the log, before the work begins."""
    reasons = "; ".join(
        f"{reason} {counts['numFiles']:,} ({VACUUM_REASONS.get(reason, '')})"
        for reason, counts in plan["reasons"].items()
    )
    chosen = (
        f"to delete at version {plan['readVersion']}: {plan['numFilesToDelete']:,} of "
        f"{counted(plan['numListedFiles'], 'file')}, {format_bytes(plan['sizeOfDataToDelete'])}"
    )
    kept = f"kept: what was needed since {cutoff_text(plan)}"
    young = plan.get("numYoungFiles")
    return [
        f"{chosen}: {reasons}" if reasons else chosen,
        f"{kept}, and {counted(young, 'younger file')} that no version names" if young else kept,
    ]


def cutoff_text(plan: Mapping[str, Any]) -> str:
    """The moment since which a vacuum keeps everything: ``2026-01-01 05:00Z (retention 168 hours)``."""
    hours = plan["retentionMs"] / HOUR_MS
    return f"{format_time(plan['cutoffMs'], '%Y-%m-%d %H:%MZ')} (retention {hours:g} hours)"


def render_log_cleanup_plan(plan: Mapping[str, Any]) -> str:
    """The summary of a plan of a log cleanup."""
    lines = [
        f"Would delete {plan['numFilesToDelete']:,} files of the log, {format_bytes(plan['sizeOfDataToDelete'])}",
        f"  versions since {format_time(plan['cutoffMs'], '%Y-%m-%dZ')} stay (retention {plan['retentionMs'] / HOUR_MS:g} hours)",
    ]
    return printable_lines([*lines, *log_cleanup_lines(plan, plan["kinds"])])


def log_cleanup_lines(plan: Mapping[str, Any], kinds: Mapping[str, Mapping[str, int]]) -> list[str]:
    """The lines after the first, of a plan or of a report."""
    lines = _reason_lines(kinds, LOG_CLEANUP_REASONS)
    if plan["anchorVersion"] is not None:
        lines.append(f"  every version from {plan['anchorVersion']} on can be read, by the checkpoint there")
    if plan["compatibleCheckpointVersion"] is not None:
        lines.append(
            f"  a copy of the checkpoint of version {plan['compatibleCheckpointVersion']} under the classic name comes first"
        )
    lines += [f"  {reason}" for reason in plan["reasons"]]
    return lines + [f"  warning: {warning}" for warning in plan["warnings"]]
