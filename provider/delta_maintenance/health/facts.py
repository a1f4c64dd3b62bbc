"""What a reading has found about one version of a table, as values without any judgement.

Numbers of a rewrite come from the plan that OPTIMIZE or a purge would make of this version.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from msgspec import Struct, field

from delta_log.snapshot.deletion_ratio import DeletedRows
from delta_maintenance.log_upkeep.plan.checkpoint import CheckpointPlan
from delta_maintenance.log_upkeep.plan.log_compaction import LogCompactionPlan


class FileTotal(Struct, frozen=True):
    """A number of files, and their bytes as far as the log tells them."""

    files: int = 0
    size_bytes: int = 0

    def plus(self, files: int, size_bytes: int) -> FileTotal:
        return FileTotal(self.files + files, self.size_bytes + size_bytes)

    def to_dict(self) -> dict[str, int]:
        return {"numFiles": self.files, "sizeInBytes": self.size_bytes}


class PlannedRewrite(Struct, frozen=True):
    """What one OPTIMIZE or purge would do.

    :param num_files_to_merge: files in bins of at least two; the others are rewritten for their deleted rows.
    :param merged_sizes: these files by size, see :mod:`~delta_maintenance.health.file_sizes`.
    :param merged_by_partition: these files by partition: the raw values of the partition columns.
    :param options: options of the job spec that was planned.
    :param where: a predicate that selects just the partitions concerned; ``None``: every partition, or they cannot be
        named in short.
    """

    num_bins: int
    num_files: int
    num_files_to_merge: int
    bytes_in: int
    num_outputs: int
    live_bytes: int
    target_size_bytes: int
    min_file_size_bytes: int
    num_partitions: int
    options: Mapping[str, Any] = field(default_factory=dict)
    where: str | None = None
    merged_sizes: Mapping[int, FileTotal] = field(default_factory=dict)
    merged_by_partition: Mapping[tuple[tuple[str, str | None], ...], FileTotal] = field(default_factory=dict)

    @classmethod
    def nothing(cls, target_size_bytes: int, min_file_size_bytes: int) -> PlannedRewrite:
        return cls(0, 0, 0, 0, 0, 0, target_size_bytes, min_file_size_bytes, 0)

    def to_dict(self) -> dict[str, Any]:
        """Named as in the plan of a dry run."""
        return {
            "numBins": self.num_bins,
            "numFilesToMerge": self.num_files_to_merge,
            "numFilesToRemove": self.num_files,
            "numBytesToRemove": self.bytes_in,
            "numFilesToAddEstimate": self.num_outputs,
            "numBytesToAddEstimate": self.live_bytes,
            "numPartitions": self.num_partitions,
            "targetSizeBytes": self.target_size_bytes,
            "minFileSizeBytes": self.min_file_size_bytes,
        }


class PlannedLayout(Struct, frozen=True):
    """What a layout would gain, by a forecast from statistics.

    :param kind: kind of the layout; ``clustering``: the table's own clustering.
    :param columns: columns of the layout; ``unusable`` are columns of the queries that a layout cannot use, with the reason.
    :param skipped_now: the part of the table that queries skip, and ``skipped_after`` the run.
    """

    kind: str
    columns: tuple[str, ...]
    skipped_now: float
    skipped_after: float
    rewrite: PlannedRewrite
    unusable: Mapping[str, str] = field(default_factory=dict)

    @property
    def gain(self) -> float:
        return self.skipped_after - self.skipped_now

    def to_dict(self) -> dict[str, Any]:
        return {
            "kind": self.kind,
            "columns": list(self.columns),
            "skippedNow": round(self.skipped_now, 3),
            "skippedAfter": round(self.skipped_after, 3),
            "unusable": dict(self.unusable),
            **self.rewrite.to_dict(),
        }


class SizeClass(Struct, frozen=True):
    """The live files from a size on, up to the next class.

    :param to_merge: files that OPTIMIZE would put together with others.
    """

    from_bytes: int
    all: FileTotal
    to_merge: FileTotal

    def to_dict(self) -> dict[str, Any]:
        return {"fromBytes": self.from_bytes, **self.all.to_dict(), "toMerge": self.to_merge.to_dict()}


class PartitionNeed(Struct, frozen=True):
    """What one partition needs.

    :param values: logical column names to raw values, shortened.
    :param deleted_rows_ratio: ``None``: it has no deleted rows.
    """

    values: Mapping[str, str | None]
    to_merge: FileTotal
    deleted_rows_ratio: float | None

    def to_dict(self) -> dict[str, Any]:
        ratio = self.deleted_rows_ratio
        return {
            "partition": dict(self.values),
            "toMerge": self.to_merge.to_dict(),
            "deletedRowsRatio": 0.0 if ratio is None else round(ratio, 6),
        }


class CommitFact(Struct, frozen=True):
    """One version, by what its writer noted. A writer may note nothing, or anything."""

    version: int
    timestamp_ms: int
    operation: str | None
    engine: str | None

    def to_dict(self) -> dict[str, Any]:
        return {
            "version": self.version,
            "timestamp": self.timestamp_ms,
            "operation": self.operation,
            "engineInfo": self.engine,
        }


class RemovedFiles(Struct, frozen=True):
    """The removed files that the log still names, and that no live file shares.

    :param named: all removed files.
    :param reclaimable: files removed before VACUUM's cutoff, and not deleted yet, as far as a few looks at the store tell.
    :param held: files removed since the cutoff: time travel and running queries may need them.
    :param looks: how many files were looked at; ``None``: the store denied it, and `reclaimable` is an upper bound.
    :param cutoff_ms: cutoff of a VACUUM at the moment of the reading.
    """

    named: FileTotal
    reclaimable: FileTotal
    held: FileTotal
    looks: int | None
    cutoff_ms: int

    def to_dict(self) -> dict[str, Any]:
        return {
            **self.named.to_dict(),
            "reclaimable": self.reclaimable.to_dict(),
            "held": self.held.to_dict(),
            "numFilesLookedAt": self.looks,
            "cutoffMs": self.cutoff_ms,
        }


class LogFacts(Struct, frozen=True):
    """The files of the log.

    :param first_version: first version that can be reconstructed.
    :param expired: files that a log cleanup would delete, without sidecars of V2 checkpoints.
    :param expired_before: the first version that the cleanup would keep; ``None``: it would delete nothing.
    """

    first_version: int
    num_files: int
    expired: FileTotal = field(default_factory=FileTotal)
    expired_before: int | None = None


class Refusal(Struct, frozen=True):
    """Why an operation does not work on the table.

    :param features: table features that stop it; empty where something else does.
    """

    features: tuple[str, ...]
    why: str

    def to_dict(self) -> dict[str, Any]:
        return {"features": list(self.features), "why": self.why}


class LastRun(Struct, frozen=True):
    """The newest commit of an operation, by any writer. A checkpoint has no writer that the log names."""

    version: int
    timestamp_ms: int
    engine: str | None = None

    def to_dict(self) -> dict[str, Any]:
        members = {"version": self.version, "timestamp": self.timestamp_ms, "engineInfo": self.engine}
        return {name: value for name, value in members.items() if value is not None}


class FileFacts(Struct, frozen=True):
    """The live files.

    :param counts_from: ``checksum``: the list of files was not read, since the version's checksum shows that there is nothing
        to rewrite; ``log``: it was read.
    :param checksum: ``right``, ``wrong``, ``missing``, ``broken``, or ``trusted`` where it was not compared with the log.
    :param checksum_differences: members of a wrong checksum that differ from the log.
    :param optimize: ``None``: OPTIMIZE refuses the table.
    :param purge: purge of files above the limit of deleted rows; ``None``: no partition is above it, or a purge is refused.
    :param layout: ``None``: queries were not given and the table is not clustered, or no layout would change anything.
    :param deleted: deleted rows of the whole table; ``worst``: deleted rows of the partition with the highest ratio. ``None``: no
        row is deleted.
    :param partitions_over: partitions above the limit of deleted rows.
    :param num_foreign_files: files outside of the table's directory, which no operation touches.
    :param sizes: files by size, without empty classes; ``None``: the list of files was not read, and no checksum tells.
    :param needs: the partitions with the most to do, ``num_needs`` how many there are with something to do.
    """

    num_files: int
    size_bytes: int
    num_deletion_vectors: int = 0
    num_deleted_rows: int = 0
    counts_from: str = "log"
    checksum: str = "missing"
    checksum_differences: tuple[str, ...] = ()
    optimize: PlannedRewrite | None = None
    purge: PlannedRewrite | None = None
    layout: PlannedLayout | None = None
    deleted: DeletedRows | None = None
    worst: DeletedRows | None = None
    partitions_over: int = 0
    num_foreign_files: int = 0
    sizes: tuple[SizeClass, ...] | None = None
    needs: tuple[PartitionNeed, ...] = ()
    num_needs: int = 0

    def to_dict(self) -> dict[str, Any]:
        return {
            "numFiles": self.num_files,
            "sizeInBytes": self.size_bytes,
            "numForeignFiles": self.num_foreign_files,
            "countsFrom": self.counts_from,
            "checksum": self.checksum,
            "numDeletionVectors": self.num_deletion_vectors,
            "numDeletedRows": self.num_deleted_rows,
            "deletedRowsRatio": 0.0 if self.deleted is None else round(self.deleted.ratio, 6),
            "worstDeletedRowsRatio": 0.0 if self.worst is None else round(self.worst.ratio, 6),
            "optimize": None if self.optimize is None else self.optimize.to_dict(),
            "purge": None if self.purge is None else self.purge.to_dict(),
            "layout": None if self.layout is None else self.layout.to_dict(),
            "fileSizes": None if self.sizes is None else [one.to_dict() for one in self.sizes],
            "partitionsInNeed": [one.to_dict() for one in self.needs],
            "numPartitionsInNeed": self.num_needs,
        }


class HealthFacts(Struct, frozen=True):
    """One reading of one version.

    :param measured_ms: time at which it was made; retentions are counted back from here.
    :param checkpoint: whether one is due, with what a reader replays until then.
    :param compaction: ``None``: was not asked for.
    :param refusals: refusals of the table, by operation.
    :param last_runs: last run of each operation within the `num_commits_read` newest commits, by operation.
    :param commits: the newest of these, newest first.
    :param invalid_properties: text that says what is wrong with a property without which a fact could not be read, by its name.
    """

    version: int
    measured_ms: int
    files: FileFacts
    checkpoint: CheckpointPlan
    compaction: LogCompactionPlan | None
    log: LogFacts
    removed: RemovedFiles
    features: tuple[str, ...]
    refusals: Mapping[str, Refusal]
    last_runs: Mapping[str, LastRun]
    num_commits_read: int
    commits: tuple[CommitFact, ...] = ()
    invalid_properties: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values; what was not measured is ``None``."""
        tail = self.checkpoint.tail
        return {
            "measured": self.measured_ms,
            **self.files.to_dict(),
            "log": {
                "checkpointVersion": tail.checkpoint_version,
                "numCommitsSinceCheckpoint": tail.commits,
                "sizeOfCommitsSinceCheckpoint": tail.size_bytes,
                "checkpointInterval": self.checkpoint.interval,
                "firstVersion": self.log.first_version,
                "numFiles": self.log.num_files,
                "expired": self.log.expired.to_dict(),
                "compaction": None if self.compaction is None else self.compaction.to_dict(),
            },
            "removedFiles": self.removed.to_dict(),
            "features": list(self.features),
            "refusals": {name: refusal.to_dict() for name, refusal in self.refusals.items()},
            "lastRuns": {name: run.to_dict() for name, run in self.last_runs.items()},
            "numCommitsRead": self.num_commits_read,
            "commits": [one.to_dict() for one in self.commits],
        }
