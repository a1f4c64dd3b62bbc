"""The report of a job as short, aligned text for people.

The command line prints it, and an Airflow task writes it to its log. Every line goes through :mod:`delta_log.printable`, so that
text of a table can neither steer a terminal nor begin a line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from delta_log.printable import printable_lines
from delta_maintenance.text.plan import (
    cutoff_text,
    foreign_lines,
    kept_lines,
    log_cleanup_lines,
    reason_lines,
    render_log_cleanup_plan,
    render_plan,
    render_vacuum_plan,
)
from delta_maintenance.text.selection import left_text, taken_over_text
from delta_maintenance.units import counted, format_bytes, format_duration

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
        lines.append(
            f"Wrote a checkpoint of version {version}{_in_time(report)}: {metrics['numOfAddFiles']:,} live files, "
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
        return _already_done(report)
    if status == "nothing_to_do":
        left = left_text(report["selection"]) if report.get("selection") else ""
        lines = [
            f"Nothing to do at version {report['read_version']}; nothing was committed.",
            *([f"  {left}"] if left else []),
            *_left_lines(report),
        ]
        return printable_lines(lines)
    if status != "committed":
        return f"{status}: {report.get('engine_reason', '')}"
    batches = report.get("num_batches")
    within = f", the last of {batches:,} batches" if batches and batches > 1 else ""
    lines = [f"Committed version {report['version']}{_in_time(report)}{within}", *_gained_lines(report)]
    lines += [
        f"  a query for one {column['column']} skips {column['after']:.0%} of these files; before, {column['before']:.0%}"
        for column in report.get("skipping") or ()
        if "after" in column
    ]
    earlier = report.get("earlier_tries")
    if earlier:
        chosen = (report.get("selection") or {}).get("chosen", {})
        lines.append(f"  {taken_over_text(earlier, chosen.get('bins', 0))}")
    if report.get("engine"):
        lines.append(f"  engine {report['engine']}: {report.get('engine_reason', '')}")
    if report.get("commit_wait"):
        lines.append(f"  {_waited(report['commit_wait'])}")
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


def _already_done(report: Mapping[str, Any]) -> str:
    return (
        f"Already done: an earlier try committed version {report['version']} with this very transaction; nothing was "
        "done again."
    )


def _in_time(report: Mapping[str, Any]) -> str:
    """How long the job took; empty if the report does not tell."""
    started, finished = report.get("started_ms"), report.get("finished_ms")
    return (
        "" if started is None or finished is None else f" in {format_duration((finished - started) / 1000)}"
    )


def _gained_lines(report: Mapping[str, Any]) -> list[str]:
    """What was rewritten, and what became of the table, before and after."""
    metrics, table = report.get("metrics") or {}, report.get("table_size")
    rows = []
    if "numRemovedFiles" in metrics:
        rows = [
            ("files", f"{metrics['numRemovedFiles']:,}", f"{metrics['numAddedFiles']:,}"),
            ("bytes", format_bytes(metrics["numRemovedBytes"]), format_bytes(metrics["numAddedBytes"])),
        ]
    lines = [f"  {name:<8}{old:>10}  →  {new:>10}" for name, old, new in rows]
    if table:
        lines.append(
            f"  of the whole table: {table['files_before']:,} → {counted(table['files_after'], 'file')}, "
            f"{format_bytes(table['bytes_before'])} → {format_bytes(table['bytes_after'])}"
        )
    if metrics.get("numDeletionVectorsRemoved"):
        lines.append(f"  {metrics['numDeletionVectorsRemoved']:,} deletion vectors purged")
    return lines


#: By the decision of the last moment, how a wait for a gap between statements of other writers ended.
_WAITS = {
    "quiet": "no other writer was changing rows",
    "behind": "committed behind a statement of another writer",
    "between": "committed between statements of other writers",
    "silence": "committed when the other writers had fallen silent",
    "give_up": "committed when no gap had come in time",
}


def _waited(wait: Mapping[str, Any]) -> str:
    last = wait.get("moments", [])[-1:]
    how = _WAITS.get(str(last[0].get("decision")), "committed") if last else "nothing was committed"
    return (
        f"{how}, after a wait of {format_duration(wait.get('waited_ms', 0) / 1000)}: "
        f"{counted(wait.get('commits_seen', 0), 'commit')} of others meanwhile, {counted(wait.get('requests', 0), 'request')}"
    )


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
        return _already_done(report)
    if report["status"] == "planned":
        return printable_lines([*render_vacuum_plan(plan).split("\n"), *_quarantine_plan_lines(plan)])
    broken = plan.get("brokenQuarantines", {}).items()
    warnings = [f"  warning: {warning}" for warning in plan["warnings"]]
    warnings += [f"  warning: the quarantine {name} is broken: {why}" for name, why in broken]
    if report["status"] == "nothing_to_do":
        looked = f"{plan['numListedFiles']:,} files looked at"
        return printable_lines(
            [
                f"Nothing to delete at version {report['read_version']}; {looked}.",
                *_kept_lines(plan),
                *warnings,
            ]
        )
    metrics = report["metrics"]
    purged = _purged_lines(metrics)
    if report["status"] == "cleaned":
        return printable_lines(
            [
                f"Nothing to delete at version {report['read_version']}.",
                *_kept_lines(plan),
                *purged,
                *warnings,
            ]
        )
    done = "Moved into quarantine" if "quarantine" in plan else "Deleted"
    lines = [
        f"{done} {counted(metrics['numDeletedFiles'], 'file')}, {format_bytes(metrics['sizeOfDeletedData'])},{_in_time(report)}",
        *kept_lines(plan),
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


def _kept_lines(plan: Mapping[str, Any]) -> list[str]:
    """Why a vacuum had nothing to delete."""
    lines = [f"  kept: what was needed since {cutoff_text(plan)}"]
    lines += kept_lines(plan)
    young = plan.get("numYoungFiles")
    if young:
        lines.append(f"  {counted(young, 'file')} that no version names: younger than that, so kept, too")
    return lines


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


def render_restore(report: Mapping[str, Any]) -> str:
    """The report of a ``restore`` that did not fail."""
    if report["status"] == "already_done":
        return _already_done(report)
    plan = report["plan"]
    if report["status"] == "nothing_to_do":
        return f"Nothing to do: version {report['read_version']} is what version {plan['version']} was."
    began = (
        "Would restore"
        if report["status"] == "planned"
        else f"Committed version {report['version']}, which restores"
    )
    changed = [what for what in ("Metadata", "Protocol", "Clustering") if plan[f"changes{what}"]]
    lines = [
        f"{began} version {plan['version']}{'' if report['status'] == 'planned' else _in_time(report)}",
        f"  {plan['numRestoredFiles']:,} files are added again, {format_bytes(plan['restoredFilesSize'])}",
        f"  {plan['numRemovedFiles']:,} files are removed, {format_bytes(plan['removedFilesSize'])}",
        f"  the table has {plan['numOfFilesAfterRestore']:,} files then, {format_bytes(plan['tableSizeAfterRestore'])}",
        *([f"  also restored: {', '.join(changed).lower()}"] if changed else []),
    ]
    return printable_lines(lines)


def render_expiry(report: Mapping[str, Any]) -> str:
    """The report of an ``expire`` that did not fail."""
    plan = report.get("plan")
    if plan is None:
        return _already_done(report)
    rows, status = counted(plan["numExpiredRows"], "row"), report["status"]
    which = f"with {plan['column']} before {plan['before']}"
    if status == "planned":
        lines = [f"Would remove {rows} {which}"]
    elif status == "nothing_to_do":
        lines = [f"Nothing to do: no {'file' if plan['numFilesNotRead'] else 'row'} {which}"]
    else:
        lines = [f"Committed version {report['version']}, without {rows} {which}{_in_time(report)}"]
    if plan["numExpiredFiles"]:
        lines.append(
            f"  {counted(plan['numExpiredFiles'], 'file')} as a whole, {format_bytes(plan['sizeOfExpiredFiles'])}: "
            f"{counted(plan['numRowsOfExpiredFiles'], 'row')}"
        )
    if plan["numPartlyExpiredFiles"]:
        lines.append(
            f"  rows of {counted(plan['numPartlyExpiredFiles'], 'other file')}, by {plan['by']}: "
            f"{counted(plan['numRowsOfPartlyExpiredFiles'], 'row')}"
        )
    if plan["numFilesNotRead"]:
        lines.append(
            f"  {counted(plan['numFilesNotRead'], 'file')} may hold expired rows and others, and stay"
        )
    return printable_lines(lines)


def render_drop(report: Mapping[str, Any]) -> str:
    """The report of a ``drop-feature`` that did not fail."""
    plan, status = report["plan"], report["status"]
    feature = plan["feature"]
    if status == "nothing_to_do":
        return f"Nothing to do: the protocol of version {report['read_version']} does not have {feature}."
    first = (
        f"Would drop {feature}:"
        if status == "planned"
        else f"Committed version {report['version']}, without {feature}{_in_time(report)}"
    )
    steps = [f"  {number}. {step['step']}: {step['does']}" for number, step in enumerate(plan["steps"], 1)]
    return printable_lines([first, *steps])


def render_analyze(report: Mapping[str, Any]) -> str:
    """The report of an ``analyze`` that did not fail."""
    if report["status"] == "already_done":
        return _already_done(report)
    plan = report["plan"]
    began = {
        "nothing_to_do": "Nothing to do: no file gets other statistics",
        "planned": f"Would write the statistics of {counted(plan['numFilesToUpdate'], 'file')}",
    }.get(report["status"])
    if began is None:
        updated = counted(report["metrics"]["numUpdatedFiles"], "file")
        began = f"Committed version {report['version']} with the statistics of {updated}{_in_time(report)}"
    missing, untrue = plan["numFilesWithoutStatistics"], plan["numFilesWithUntrueStatistics"]
    looked = f"  {counted(plan['numFilesAnalyzed'], 'file')} looked at"
    lines = [
        began,
        f"{looked}: {missing:,} without statistics, {untrue:,} with untrue ones",
        f"  {plan['numFilesWithColumnsRead']:,} of them had columns that the footer does not tell, and that were read",
    ]
    if plan["numUnreadableFiles"]:
        lines.append(
            f"  warning: {counted(plan['numUnreadableFiles'], 'file')} could not be read, for example"
        )
        lines += [f"    {path}: {why}" for path, why in plan["unreadable"].items()]
    return printable_lines(lines)


def render_repair(report: Mapping[str, Any]) -> str:
    """The report of a ``repair`` that did not fail."""
    if report["status"] == "already_done":
        return _already_done(report)
    plan = report["plan"]
    if report["status"] == "nothing_to_do":
        return f"Nothing to do: all {plan['numFilesScanned']:,} files of version {report['read_version']} are there."
    records, vectors = plan["numMissingRecords"], plan["numLostDeletionVectors"]
    rows = "an unknown number of rows" if records is None else counted(records, "row")
    lost = f"{format_bytes(plan['numMissingBytes'])}, {rows}"
    ended = "  nothing was changed; remove_missing takes the files out of the log"
    if report["status"] == "committed":
        ended = f"  committed as version {report['version']}{_in_time(report)}"
    lines = [
        f"Missing at version {report['read_version']}: {plan['numMissingFiles']:,} of {plan['numFilesScanned']:,} files, {lost}",
        *([f"  {counted(vectors, 'file')} lost their deletion vector"] if vectors else []),
        *(f"    {file['missing']:<15}  {file['path']}" for file in plan["files"]),
        f"  plan {plan['digest'][:12]}: {counted(plan['numFilesToRemove'], 'file')} leave the log",
        *(
            [f"  {plan['numFilesToAdd']:,} of them come back without a vector"]
            if plan["numFilesToAdd"]
            else []
        ),
        ended,
    ]
    return printable_lines(lines)


def render_generate(report: Mapping[str, Any]) -> str:
    """The report of a ``generate`` that did not fail."""
    plan = report["plan"]
    began = {"planned": "Would write", "written": "Wrote"}.get(report["status"])
    if began is None:
        return f"Nothing to do: the manifests name the {plan['numFiles']:,} files of version {report['read_version']}."
    lines = [
        f"{began} {counted(plan['numManifestsToWrite'], 'manifest')} of version {report['read_version']}",
        f"  {plan['numUnchangedManifests']:,} are right already; together they name {counted(plan['numFiles'], 'file')}",
    ]
    if plan["numManifestsToDelete"]:
        lines.append(f"  {plan['numManifestsToDelete']:,} of partitions without files go")
    return printable_lines(lines)


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
    "restore": render_restore,
    "expire": render_expiry,
    "drop-feature": render_drop,
    "restore-quarantine": render_restoration,
    "analyze": render_analyze,
    "repair": render_repair,
    "generate": render_generate,
    "cleanup-log": render_log_cleanup,
    "compact-log": render_log_compaction,
}


def render_report(report: Mapping[str, Any]) -> str:
    """The report of a job that did not fail."""
    return RENDERERS[report["operation"]](report)
