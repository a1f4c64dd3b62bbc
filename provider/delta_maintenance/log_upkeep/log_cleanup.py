"""Runs CLEANUP LOG: finds the anchor of the log, checks it, and deletes the files below it.

See :mod:`delta_maintenance.log_upkeep.plan.log_cleanup` for what may go and in which order. All that can refuse does so in
:func:`plan_log_cleanup`, which writes nothing. A run that dies anywhere leaves every version from the anchor on readable, and its
repetition deletes what is left.
"""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from delta_log.errors import CorruptLog, InvalidProperty, TableReplaced, UnsupportedFeature, VersionNotFound
from delta_log.log.actions import Protocol, decode_commit
from delta_log.log.checkpoint_reader import CheckpointReader, UnreadableCheckpoint
from delta_log.log.file_names import LogFileKind, commit_key
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.table_identity import require_same_log
from delta_log.snapshot.time_travel import version_at
from delta_log.storage.storage import Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.features import PROTECTED_BEFORE, Operation, supports
from delta_log.table_config.kept_versions import KEEP_LAST, KEEP_VERSIONS, KeptVersions
from delta_log.upkeep.checkpoint_audit import audit, read_whole, referenced_sidecars
from delta_log.upkeep.classic_copy import is_needed
from delta_log.upkeep.log_inventory import LogInventory, list_everything
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.job_context import JobContext
from delta_maintenance.log_upkeep.log_deletion import LogDeletion
from delta_maintenance.log_upkeep.options import CLEANUP_LOG
from delta_maintenance.log_upkeep.plan.log_cleanup import (
    CLEANUP_ENABLED,
    ExpiredFile,
    LogCleanupPlan,
    LogRetention,
    anchors,
    expired_leftovers,
    expired_sidecars,
    is_cleanup_enabled,
)
from delta_maintenance.progress import ProgressReporter


def run(spec: JobSpec, context: JobContext) -> JobReport:
    """Delete files of the log that no version in retention needs, or plan it.

    :raises DeltaLogError: see :func:`plan_log_cleanup` and :func:`clean_up`.
    """
    CLEANUP_LOG.require_known(spec.options)
    storage, snapshot = context.table.storage, context.table.snapshot()
    plan = plan_log_cleanup(storage, snapshot, context.started_ms, context.progress)
    if spec.dry_run:
        return context.report(spec, "planned", plan.version, plan=plan.to_dict())
    done, metrics = clean_up(storage, snapshot, plan, context.runtime, context.progress)
    status = "nothing_to_do" if plan.is_empty else "cleaned"
    return context.report(spec, status, plan.version, metrics=metrics, plan={**plan.to_dict(), **done})


def clean_up(
    storage: Storage, snapshot: Snapshot, plan: LogCleanupPlan, runtime: Runtime, progress: ProgressReporter
) -> tuple[dict[str, Any], dict[str, int]]:
    """Execute a plan; return facts and metrics for the report.

    :param snapshot: snapshot that the plan was made on.
    :raises TableReplaced: another table is at its address; nothing was deleted.
    :raises LogCleanupRefused: the table forbids it; nothing was deleted.
    :raises ClockAhead: this machine's clock is ahead of the store's, so young files look old; nothing was deleted.
    :raises LogCleanupIncomplete: some files were deleted; running again continues.
    """
    if plan.is_empty:
        return {}, {"numDeletedFiles": 0, "sizeOfDeletedData": 0}
    storage.require_writable()
    deletion = LogDeletion(storage, snapshot, plan, progress)
    deletion.run(runtime)
    return deletion.facts(), deletion.metrics()


def plan_log_cleanup(
    storage: Storage, snapshot: Snapshot, now_ms: int, progress: ProgressReporter
) -> LogCleanupPlan:
    """Plan a cleanup; write nothing.

    :param snapshot: the latest version.
    :raises UnsupportedFeature: the table may need files that this release does not know.
    :raises CorruptLog: a commit after the anchor is missing.
    :raises CheckpointAuditFailed: the anchor is not what the log says of its version.
    """
    table_features.require(snapshot.protocol, Operation.CHECKPOINT)
    retention = LogRetention.of(snapshot.properties, now_ms)
    kept = KeptVersions.of(snapshot.properties).oldest(snapshot.version)
    reasons = (
        f"the table keeps version {kept} ({KEEP_VERSIONS}, {KEEP_LAST}), so the log stays from there on",
    )
    plan = LogCleanupPlan(
        snapshot.version,
        retention,
        reasons=reasons if kept < snapshot.version else (),
        warnings=retention.warnings,
    )
    if not is_cleanup_enabled(snapshot.properties):
        return replace(plan, reasons=(f"the table forbids it: {CLEANUP_ENABLED} is false",))
    inventory = list_everything(storage)
    if inventory.listing.latest < snapshot.version:
        raise TableReplaced(
            storage.uri, snapshot.version, f"its log ends at version {inventory.listing.latest}"
        )
    require_same_log(storage, snapshot, inventory.listing)
    plan = replace(
        plan,
        version=inventory.listing.latest,
        expired_version=expired_version(storage, snapshot, retention.cutoff_ms),
    )
    plan = _with_anchor(storage, snapshot, inventory, plan, now_ms, progress)
    return _with_leftovers(storage, inventory, plan)


def expired_version(storage: Storage, snapshot: Snapshot, cutoff_ms: int) -> int | None:
    """The newest version that was committed at or before a moment, and not after a version that the table keeps.

    :raises InvalidProperty: a property of the table names no versions to keep.
    """
    oldest_kept = KeptVersions.of(snapshot.properties).oldest(snapshot.version)
    if snapshot.timestamp_ms <= cutoff_ms:
        return min(snapshot.version, oldest_kept)
    try:
        return min(version_at(storage, cutoff_ms), oldest_kept)
    except VersionNotFound:
        return None


# -- the anchor ----------------------------------------------------------------------------------------------------


def _with_anchor(
    storage: Storage,
    snapshot: Snapshot,
    inventory: LogInventory,
    plan: LogCleanupPlan,
    now_ms: int,
    progress: ProgressReporter,
) -> LogCleanupPlan:
    """Add the anchor and the files below it to a plan."""
    expired, listing = plan.expired_version, inventory.listing
    if expired is None:
        return _because(plan, "no version is older than the log's retention")
    for checkpoint, entry_points, rest in anchors(inventory, expired):
        version = checkpoint.version
        if not entry_points and not rest:
            return replace(_because(plan, f"nothing is left below version {version}"), anchor=checkpoint)
        progress.message(f"reading the checkpoint of version {version}, which the log would begin with")
        try:
            content = read_whole(storage, checkpoint)
        except UnreadableCheckpoint as error:
            plan = replace(plan, warnings=(*plan.warnings, f"{error.path} cannot be read: {error.why}"))
            continue
        assert content.other.protocol is not None
        table_features.require(content.other.protocol, Operation.CHECKPOINT)
        _require_commits(inventory, version)
        why = _protected(storage, snapshot, inventory, version)
        if why is not None:
            return _because(plan, why)
        witness = audit(storage, checkpoint, content, listing, now_ms)
        stays = [other for other in listing.checkpoints if other.version >= version]
        copied = supports(snapshot.protocol, "v2Checkpoint") and is_needed(stays)
        return replace(
            plan,
            anchor=checkpoint,
            witness=witness,
            entry_points=entry_points,
            rest=rest,
            compatible_copy_of=checkpoint if copied else None,
        )
    return _because(plan, f"no checkpoint that can be read is at or before version {expired}")


def _because(plan: LogCleanupPlan, why: str) -> LogCleanupPlan:
    return replace(plan, reasons=(*plan.reasons, why))


def _require_commits(inventory: LogInventory, anchor: int) -> None:
    """
    :raises CorruptLog: a version after the anchor cannot be reconstructed from it.
    """
    listing = inventory.listing
    for version in range(anchor + 1, listing.latest + 1):
        if version not in listing.commits:
            raise CorruptLog(
                commit_key(version),
                f"this commit is missing between the checkpoint of version {anchor} and {listing.latest}, so older files "
                "of the log may be needed to repair it, and none of them was deleted",
            )


def _protected(storage: Storage, snapshot: Snapshot, inventory: LogInventory, anchor: int) -> str | None:
    """Why the table's history below an anchor has to stay, by the feature ``checkpointProtection``.

    It may go as a whole, all of it below the protected version, or where each of its versions is one that we could
    have written.
    """
    stated = snapshot.properties.get(PROTECTED_BEFORE)
    if stated is None or not supports(snapshot.protocol, "checkpointProtection"):
        return None
    if not stated.strip().isdecimal():
        raise InvalidProperty(PROTECTED_BEFORE, stated, "a version", "0")
    if anchor >= int(stated):
        return None
    why = (
        f"history before version {int(stated)} is protected ({PROTECTED_BEFORE}), and would not go as a whole"
    )
    try:
        for protocol in _protocols_below(storage, inventory, anchor):
            table_features.require(protocol, Operation.CHECKPOINT)
    except UnsupportedFeature as error:
        return f"{why}; it needs {', '.join(error.features)}, which this release does not support"
    except CorruptLog as error:
        return f"{why}; what it needs cannot be told ({error.path}: {error.why})"
    return None


def _protocols_below(storage: Storage, inventory: LogInventory, anchor: int) -> list[Protocol]:
    listing = inventory.listing
    found = []
    if 0 not in listing.commits:
        other = CheckpointReader(storage, listing.checkpoints[0]).other
        if other.protocol is not None:
            found.append(other.protocol)
    commits = [commit.key for version, commit in sorted(listing.commits.items()) if version <= anchor]
    for key, body in zip(commits, storage.read_many(commits), strict=True):
        found += [action.protocol for action in decode_commit(body, key) if action.protocol is not None]
    return found


# -- leftovers -----------------------------------------------------------------------------------------------------


def _with_leftovers(storage: Storage, inventory: LogInventory, plan: LogCleanupPlan) -> LogCleanupPlan:
    cutoff_ms = plan.retention.leftover_cutoff_ms
    anchor = plan.anchor.version if plan.anchor is not None else None
    orphans: tuple[ExpiredFile, ...] = ()
    # Mostly there are none, and no checkpoint has to be opened.
    if any(expired_sidecars(inventory, (), cutoff_ms)):
        stays = [
            checkpoint
            for checkpoint in inventory.listing.checkpoints
            if (anchor is None or checkpoint.version >= anchor)
            and checkpoint.files[0].kind is not LogFileKind.MULTI_PART_CHECKPOINT
        ]
        try:
            orphans = tuple(expired_sidecars(inventory, referenced_sidecars(storage, stays), cutoff_ms))
        except UnreadableCheckpoint as error:
            plan = _because(
                plan, f"no sidecar goes, since {error.path} cannot be read and may name any of them"
            )
    gone = {file.key for file in (*plan.entry_points, *plan.rest, *orphans)}
    leftovers = tuple(expired_leftovers(inventory, gone, anchor, cutoff_ms))
    return replace(plan, rest=(*plan.rest, *leftovers), sidecars=orphans)
