"""Reads the facts of a table: thin functions around the planners of the operations.

One reading takes the newest snapshot, its version checksum, one listing of the log, and at most a few small commits and looks
at removed files. The list of files is read where an answer depends on it. It does not where the checksum shows that at most one
file is small, and none has a deletion vector. No data file is opened, the table's directory is not listed, and nothing is
written.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import TypeVar

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from delta_log.errors import CorruptLog, InvalidProperty, TableError, UnsupportedFeature
from delta_log.log.log_replay import replay_commits
from delta_log.log.log_segment import LogListing, LogSegment, segment_of
from delta_log.snapshot.commit_info import ICT_ENABLED
from delta_log.snapshot.deletion_ratio import DeletedRows, DeletionLimits, deleted_rows, of_table
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.version_checksum import VersionChecksum, disagreements, read_version_checksum
from delta_log.storage.storage import Storage
from delta_log.table import Table
from delta_log.table_config import features as table_features
from delta_log.table_config.features import PROTECTED_BEFORE, Operation, supports
from delta_log.table_config.kept_versions import KeptVersions
from delta_log.table_config.properties import flag
from delta_log.transaction.post_commit import checkpoint_interval
from delta_log.upkeep.log_inventory import LogInventory, list_everything
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.health.facts import (
    FileFacts,
    FileTotal,
    HealthFacts,
    LogFacts,
    PlannedRewrite,
    Refusal,
    RemovedFiles,
)
from delta_maintenance.health.file_sizes import classes_of_checksum, in_classes, partition_needs, size_classes
from delta_maintenance.health.last_runs import last_runs
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.health.planned_rewrites import (
    has_no_vectors,
    looks_for_layout,
    most_files_to_merge,
    planned_layout,
    planned_rewrite,
)
from delta_maintenance.health.removed_files import removed_files
from delta_maintenance.log_upkeep.log_cleanup import expired_version
from delta_maintenance.log_upkeep.log_compaction import nothing_left
from delta_maintenance.log_upkeep.plan.checkpoint import ReplayCost, plan_checkpoint
from delta_maintenance.log_upkeep.plan.log_cleanup import (
    LogRetention,
    anchors,
    expired_leftovers,
    is_cleanup_enabled,
)
from delta_maintenance.log_upkeep.plan.log_compaction import LogCompactionPlan, LogPiece, plan_log_compaction
from delta_maintenance.log_upkeep.replay_cost import replay_cost
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import min_file_size
from delta_maintenance.optimize.plan.rewrite_tag import target_size
from delta_maintenance.optimize.plan.table_layout import clustered_columns
from delta_maintenance.optimize.tasks import require_rewritable
from delta_maintenance.vacuum.commit_reader import kept_files
from delta_maintenance.vacuum.plan.cutoff import retention_of
from delta_maintenance.vacuum.plan.protected_files import NO_KEYS

_Result = TypeVar("_Result")


def read_health(table: Table, options: HealthOptions, now_ms: int) -> HealthFacts:
    """Read the facts of the newest version.

    :param now_ms: retentions are counted back from this moment.
    :raises DeltaLogError: the table cannot be read.
    :raises InvalidRequest: the options make no sense for this table.
    """
    snapshot = table.snapshot()
    return read_facts(table.storage, snapshot, list_everything(table.storage), options, now_ms)


def read_facts(
    storage: Storage,
    snapshot: Snapshot,
    inventory: LogInventory,
    options: HealthOptions,
    now_ms: int,
    earlier: HealthFacts | None = None,
) -> HealthFacts:
    """Read the facts of a snapshot.

    :param inventory: listing of the log, made just now.
    :param now_ms: retentions are counted back from this moment.
    :param earlier: facts of an earlier version of the same log: what they say of its commits is not read again.
    :raises DeltaLogError: the table cannot be read.
    :raises InvalidRequest: the options make no sense for this table.
    """
    segment = segment_of(inventory.listing, storage, snapshot.version)
    tail, pieces = replay_cost(storage, snapshot, segment)
    refusals, properties = _refusals(snapshot, options), _Properties(snapshot.properties)
    interval = properties.read(checkpoint_interval, checkpoint_interval({}))
    # With a cutoff in 1970, nothing has expired.
    cutoff_ms = properties.read(lambda found: retention_of(found, now_ms).cutoff_ms, 0)
    kept = properties.read(lambda found: _kept_files(storage, snapshot, inventory.listing, found), NO_KEYS)
    checksum = _checksum(storage, snapshot.version, inventory)
    runs, commits, num_commits_read = last_runs(storage, snapshot, inventory.listing, earlier)
    return HealthFacts(
        version=snapshot.version,
        measured_ms=now_ms,
        files=_file_facts(snapshot, checksum, options, now_ms, refusals.keys()),
        checkpoint=plan_checkpoint(tail, interval),
        compaction=_compaction(storage, segment, pieces) if options.compact_log else None,
        log=properties.read(
            lambda found: _log_facts(storage, snapshot, inventory, found, now_ms), _log_counts(inventory)
        ),
        removed=removed_files(storage, snapshot, cutoff_ms, kept),
        features=_features(snapshot),
        refusals=refusals,
        last_runs=runs,
        num_commits_read=num_commits_read,
        commits=commits,
        invalid_properties=properties.invalid,
    )


def read_snapshot(
    snapshot: Snapshot, options: HealthOptions, now_ms: int, checkpointed: int | None
) -> HealthFacts:
    """Read the facts that a snapshot tells, with no request to the store. What is :data:`UNMEASURED` counts as nothing.

    :param checkpointed: the version of a checkpoint that was written since the snapshot was made.
    """
    refusals, properties = _refusals(snapshot, options), _Properties(snapshot.properties)
    commits, num_bytes, version = (
        snapshot.commits_since_checkpoint,
        snapshot.bytes_since_checkpoint,
        snapshot.checkpoint_version,
    )
    if checkpointed is not None:
        commits, num_bytes, version = min(commits, snapshot.version - checkpointed), 0, checkpointed
    nothing = FileTotal()
    return HealthFacts(
        version=snapshot.version,
        measured_ms=now_ms,
        files=_file_facts(snapshot, (None, "missing"), options, now_ms, refusals.keys()),
        checkpoint=plan_checkpoint(
            ReplayCost(snapshot.version, version, commits, num_bytes),
            properties.read(checkpoint_interval, checkpoint_interval({})),
        ),
        compaction=None,
        log=LogFacts(0, 0),
        removed=RemovedFiles(nothing, nothing, nothing, None, 0),
        features=_features(snapshot),
        refusals=refusals,
        last_runs={},
        num_commits_read=0,
    )


#: Findings that a snapshot alone does not tell.
UNMEASURED = ("poor_layout", "log_compaction_due", "reclaimable_files", "expired_log_files", "wrong_checksum")


class _Properties(Struct):
    """Reads properties for facts that a reading can do without.

    :param found: all properties of the table.
    :ivar invalid: text for people that says what is wrong with a property that could not be read, by the property's name.
    """

    found: Mapping[str, str]
    invalid: dict[str, str] = field(default_factory=dict)

    def read(self, read: Callable[[Mapping[str, str]], _Result], otherwise: _Result) -> _Result:
        """Return what the function reads; ``otherwise`` where a property cannot be read."""
        try:
            return read(self.found)
        except InvalidProperty as error:
            self.invalid[error.name] = str(error)
            return otherwise


def _features(snapshot: Snapshot) -> tuple[str, ...]:
    protocol = snapshot.protocol
    listed = {*table_features.reader_features(protocol), *table_features.writer_features(protocol)}
    return tuple(sorted(listed - snapshot.unused_features))


def _refusals(snapshot: Snapshot, options: HealthOptions) -> dict[str, Refusal]:
    """The operations that would refuse the table, by the checks with which they and their plans begin."""
    found: dict[str, Refusal] = {}
    for operation in (Operation.OPTIMIZE, Operation.PURGE, Operation.CHECKPOINT, Operation.VACUUM):
        try:
            if operation in (Operation.OPTIMIZE, Operation.PURGE):
                require_rewritable(snapshot, operation)
                clustered_columns(snapshot)
                target_size(snapshot, OptimizeOptions.from_mapping(options.optimize_request))
            else:
                table_features.require(snapshot.protocol, operation)
        except TableError as error:
            features = error.features if isinstance(error, UnsupportedFeature) else ()
            found[operation.value] = Refusal(features, str(error))
    return found


# -- files ---------------------------------------------------------------------------------------------------------


def _file_facts(
    snapshot: Snapshot,
    read_checksum: tuple[VersionChecksum | None, str],
    options: HealthOptions,
    now_ms: int,
    refused: Collection[str],
) -> FileFacts:
    """Read the facts of the live files.

    :param read_checksum: the version's checksum, and its state as long as it was not compared with the log.
    :param refused: names of the operations that refuse the table.
    """
    request = OptimizeOptions.from_mapping(options.optimize_request)
    can_optimize = "optimize" not in refused
    target = target_size(snapshot, request) if can_optimize else 0
    minimum = min_file_size(target, request) if can_optimize else 0
    checksum, state = read_checksum
    layout = can_optimize and looks_for_layout(snapshot, options)
    if checksum is not None and has_no_vectors(checksum) and not layout:
        if not can_optimize or most_files_to_merge(checksum, minimum) <= 1:
            nothing = PlannedRewrite.nothing(target, minimum) if can_optimize else None
            return FileFacts(
                checksum.numFiles,
                checksum.tableSizeBytes,
                counts_from="checksum",
                checksum="trusted",
                optimize=nothing,
                sizes=size_classes(classes_of_checksum(checksum), {}),
            )
    plan, num_foreign_files = None, 0
    if can_optimize:
        plan, foreign = planned_rewrite(snapshot, options.optimize_request, now_ms)
        num_foreign_files = foreign.files
    counts = snapshot.counts
    differences = disagreements(checksum, snapshot, counts) if checksum is not None else ()
    facts = FileFacts(
        num_files=counts.files,
        size_bytes=counts.size_bytes,
        num_deletion_vectors=counts.deletion_vectors,
        num_deleted_rows=counts.deleted_rows,
        checksum="wrong" if differences else state,
        checksum_differences=differences,
        optimize=plan,
        layout=planned_layout(snapshot, options, now_ms) if layout else None,
        num_foreign_files=num_foreign_files,
        sizes=size_classes(in_classes(counts.histogram), {} if plan is None else plan.merged_sizes),
    )
    partitions = deleted_rows(snapshot, options.deleted_rows_ratio) if counts.deleted_rows else []
    needs, num_needs = partition_needs(plan, partitions)
    facts = replace(facts, needs=needs, num_needs=num_needs)
    if not counts.deleted_rows:
        return facts
    return _with_deleted_rows(facts, partitions, snapshot, options, now_ms, refused)


def _with_deleted_rows(
    facts: FileFacts,
    partitions: Sequence[DeletedRows],
    snapshot: Snapshot,
    options: HealthOptions,
    now_ms: int,
    refused: Collection[str],
) -> FileFacts:
    limits = DeletionLimits(ratio=options.deleted_rows_ratio)
    over = sum(limits.are_passed_by(one) for one in partitions)
    plan = None
    if over and "purge" not in refused:
        plan, _ = planned_rewrite(snapshot, options.purge_request, now_ms, purge=True)
    return replace(
        facts,
        deleted=of_table(snapshot, partitions),
        worst=partitions[0] if partitions else None,
        partitions_over=over,
        purge=plan,
    )


def _checksum(storage: Storage, version: int, inventory: LogInventory) -> tuple[VersionChecksum | None, str]:
    """The checksum of a version, and its state as long as it was not compared with the log."""
    if all(file.version != version for file in inventory.checksums):
        return None, "missing"
    try:
        checksum = read_version_checksum(storage, version)
    except CorruptLog:
        return None, "broken"
    return checksum, "missing" if checksum is None else "right"


# -- the log -------------------------------------------------------------------------------------------------------


def _compaction(storage: Storage, segment: LogSegment, pieces: Sequence[LogPiece]) -> LogCompactionPlan:
    """Plan a log compaction, and look whether its commits have anything to compact."""
    plan = plan_log_compaction(pieces)
    if not plan.worth_it or plan.start is None:
        return plan
    files = [file for file in segment.tail if file.version >= plan.start]
    return nothing_left(plan) if replay_commits(storage, files, storage.uri).is_empty else plan


def _log_counts(inventory: LogInventory) -> LogFacts:
    return LogFacts(inventory.listing.earliest, len(inventory.keys))


def _kept_files(
    storage: Storage, snapshot: Snapshot, log: LogListing, properties: Mapping[str, str]
) -> pa.ChunkedArray:
    """Collect the files that VACUUM keeps; none where a version is gone, of which VACUUM itself tells."""
    try:
        return kept_files(storage, snapshot, log, KeptVersions.of(properties))
    except VacuumRefused:
        return NO_KEYS


def _log_facts(
    storage: Storage,
    snapshot: Snapshot,
    inventory: LogInventory,
    properties: Mapping[str, str],
    now_ms: int,
) -> LogFacts:
    """Count the files of the log, and those that a log cleanup would delete.

    The cleanup itself reads the checkpoint with which the log would begin, and refuses if that is not right.
    """
    listing = inventory.listing
    facts = _log_counts(inventory)
    is_protected = PROTECTED_BEFORE in properties and supports(snapshot.protocol, "checkpointProtection")
    if not is_cleanup_enabled(properties) or is_protected:
        return facts
    retention = LogRetention.of(properties, now_ms)
    times = [commit.info.modification_time_ms for commit in listing.commits.values()]
    if not listing.checkpoints or (
        not flag(properties, ICT_ENABLED) and min(times, default=0) > retention.cutoff_ms
    ):
        return facts
    expired = expired_version(storage, snapshot, retention.cutoff_ms)
    anchor = None if expired is None else next(anchors(inventory, expired), None)
    if anchor is None:
        return facts
    checkpoint, entry_points, rest = anchor
    files = [*entry_points, *rest]
    if files:
        gone = {file.key for file in files}
        files += expired_leftovers(inventory, gone, checkpoint.version, retention.leftover_cutoff_ms)
    total = FileTotal(len(files), sum(file.size for file in files))
    return replace(facts, expired=total, expired_before=checkpoint.version if files else None)
