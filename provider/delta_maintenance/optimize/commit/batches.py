"""Commits finished bins: all at once, or in batches.

1. A batch is committed as soon as the finished bins have read ``batch_size_bytes``. The tags of its commit name the run and
   the batch. Only the commit that *finishes* the run carries ``txn``, so the run as a whole is done at most once, and a try
   that died between two batches does not count as done.
2. Every batch is checked for conflicts with all commits since the plan's snapshot. Bins whose sources changed are left out.
   A batch may lose all of its bins; the run goes on, since other batches are committed.
3. If no bin is left for the finishing commit (the time was over, or a later try found nothing to do), a commit without
   files carries the ``txn``.
4. With a gap to wait for, bins are committed at moments at which other writers lose least
   (:mod:`delta_maintenance.optimize.commit.commit_gap`): first the bins of partitions that no other writer writes to, then the
   other bins, each partition at a moment of its own. A full batch keeps the bins of busy partitions for later.
5. With remapping, a bin whose sources lost rows is committed with deletion vectors of its own
   (:mod:`delta_maintenance.optimize.commit.remapping`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from delta_log.errors import CommitFailed, ConcurrentDelete
from delta_log.log.actions import Add, DeletionVector, Remove
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.table_config.clustering import CLUSTERING_DOMAIN
from delta_log.transaction.commit_body import Change, FileGroup
from delta_log.transaction.conflict import RUN_TAG
from delta_log.transaction.transaction import CommitResult, Transaction
from delta_maintenance.optimize.commit.commit_gap import Partition, partition_key
from delta_maintenance.optimize.commit.compaction_tags import compaction_tags, without_compaction_tags
from delta_maintenance.optimize.commit.gap_wait import GapWait
from delta_maintenance.optimize.commit.remapping import Remapping, VectorFiles
from delta_maintenance.optimize.commit.resume import BATCH_TAG, EarlierTries
from delta_maintenance.optimize.forecast.duration_forecast import REWRITE_TIME_TAG
from delta_maintenance.optimize.metrics import commit_metrics
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.task import BinManifest, SourceFile
from delta_maintenance.units import counted


class CommitDetails(Struct, frozen=True):
    """The ``commitInfo`` of every commit of a run.

    :param transaction: application id and version; only the commit that finishes the run carries them.
    """

    operation: str
    parameters: Mapping[str, Any]
    run_id: str
    tags: Mapping[str, str]
    transaction: tuple[str, int] | None


class Batches(Struct):
    """The commits of one run.

    :param size_bytes: size of a batch; ``None``: everything in one commit.
    :param vectors: the writer of deletion vectors for bins whose sources lost rows; ``None``: such bins are left out.
    :param gap: wait for the moments to commit at; ``None``: every moment will do.
    :ivar committed: bins in the table, with the bins of earlier tries.
    :ivar remapped: how many of them took over deletions.
    :ivar dropped: bins that were left out, each with its conflict.
    :ivar version: version of the last commit.
    :ivar latest: the table as this try's last commit has left it, and the version of a checkpoint that followed.
    :ivar commit_ms: how long the commits took, without what was waited for a gap.
    :ivar already_done: ``True``: another try has finished the run.
    """

    transaction: Transaction
    details: CommitDetails
    size_bytes: int | None
    progress: ProgressReporter
    runtime: Runtime
    vectors: VectorFiles | None = None
    gap: GapWait | None = None
    committed: list[BinManifest] = field(default_factory=list)
    remapped: int = 0
    dropped: list[tuple[BinManifest, CommitFailed]] = field(default_factory=list)
    num_batches: int = 0
    version: int | None = None
    latest: tuple[Snapshot | None, int | None] = (None, None)
    already_done: bool = False
    commit_ms: int = 0
    _pending: list[BinManifest] = field(default_factory=list)
    _taken_over: frozenset[str] = frozenset()
    _since_ms: int = 0

    @classmethod
    def after(
        cls,
        earlier: EarlierTries,
        transaction: Transaction,
        details: CommitDetails,
        size_bytes: int | None,
        progress: ProgressReporter,
        runtime: Runtime,
        vectors: VectorFiles | None = None,
        gap: GapWait | None = None,
    ) -> Batches:
        return cls(
            transaction,
            details,
            size_bytes,
            progress,
            runtime,
            vectors,
            gap,
            committed=list(earlier.committed),
            num_batches=earlier.num_batches,
            version=earlier.version,
            _pending=list(earlier.finished),
            _taken_over=frozenset(manifest.bin_id for manifest in earlier.finished),
            _since_ms=runtime.now_ms(),
        )

    @property
    def is_divided(self) -> bool:
        """Whether the run has, or was to have, several commits."""
        return self.size_bytes is not None or self.num_batches > 1

    @property
    def has_some(self) -> bool:
        """Whether there is a bin of any try that is in the table, waits for a commit, or was left out of one."""
        return bool(self.committed or self._pending or self.dropped)

    def add(self, manifest: BinManifest, *, more_to_come: bool) -> None:
        """Add a finished bin, and commit if the batch is full.

        :raises CommitFailed: the table changed so that the plan does not hold any more.
        """
        self._pending.append(manifest)
        full = self.size_bytes is not None and sum(m.bytes_in for m in self._pending) >= self.size_bytes
        if full and more_to_come:
            later = self._take_out(self.gap.ready(self._partitions())) if self.gap is not None else []
            if self._pending:
                self._commit(finishes=False)
            self._pending = later

    def finish(self, order: Mapping[str, int]) -> None:
        """Commit the remaining bins, and that the run is finished.

        :param order: place of each bin in the plan, by bin id, so that equal work gives equal commits.
        :raises CommitFailed: nothing of the run was committed.
        :raises CommitPostponed: no gap came in time for the bins that are left.
        """
        if not self._pending and not self.num_batches and self.dropped:
            raise self.dropped[0][1]
        self._pending.sort(key=lambda manifest: (order.get(manifest.bin_id, -1), manifest.bin_id))
        while self.gap is not None and self._pending:
            waited_ms = self.gap.waited_ms
            later = self._take_out(self.gap.wait(self._partitions(), self._read_ahead))
            # Forecasts learn from the time that the rewriting took.
            self._since_ms += self.gap.waited_ms - waited_ms
            if not later:
                break
            self._commit(finishes=False)
            self._pending = later
        if self._pending or (self.num_batches and self.details.transaction is not None):
            self._commit(finishes=True)

    def _read_ahead(self) -> None:
        """Read what a remapping will need: when the moment to commit has come, every request counts."""
        if self.vectors is not None:
            self.vectors.read_ahead(self._pending)

    def _partitions(self) -> Counter[Partition]:
        """The partitions of the pending bins, with the number of their bins."""
        return Counter(partition_key(manifest.partition_values) for manifest in self._pending)

    def _take_out(self, ready: Collection[Partition]) -> list[BinManifest]:
        """Leave only bins of some partitions pending, and return the others."""
        later = [m for m in self._pending if partition_key(m.partition_values) not in ready]
        self._pending = [m for m in self._pending if partition_key(m.partition_values) in ready]
        return later

    def _commit(self, *, finishes: bool) -> None:
        manifests, self._pending = self._pending, []
        try:
            result, last = self._commit_bins(manifests, finishes)
        except ConcurrentDelete as error:
            if finishes and not self.num_batches:
                raise
            # The batch lost all of its bins.
            self.dropped += [(manifest, error) for manifest in manifests]
            if not finishes or self.details.transaction is None:
                return
            manifests = []
            result, last = self._commit_bins(manifests, finishes)
        self.version = result.version
        if result.already_done:
            self.already_done = True
            return
        self.latest = result.snapshot, result.checkpointed
        if manifests:
            self.num_batches += 1
        self.dropped += [(manifests[number], conflict) for number, conflict in result.dropped.items()]
        self.committed += [m for number, m in enumerate(last) if number not in result.dropped]
        self.remapped += len(result.remapped)
        for number, conflict in result.dropped.items():
            self.progress.message(f"left out bin {manifests[number].bin_id}: {conflict}")

    def _commit_bins(
        self, manifests: Sequence[BinManifest], finishes: bool
    ) -> tuple[CommitResult, Sequence[BinManifest]]:
        """Commit some bins; return the result, and the bins with their sources as the commit removed them."""
        number, now_ms = self.num_batches + bool(manifests), self.runtime.now_ms()
        batched = self.size_bytes is not None or self.num_batches > 0 or not finishes
        details = self.details
        tags = {**details.tags, RUN_TAG: details.run_id}
        if batched:
            tags[BATCH_TAG] = str(number)
        # How long an earlier try took to rewrite a bin is not known.
        if manifests and not any(manifest.bin_id in self._taken_over for manifest in manifests):
            tags[REWRITE_TIME_TAG] = str(max(1, now_ms - self._since_ms))
        what = f"{counted(len(manifests), 'bin')}" + (f" of batch {number}" if batched else "")
        self.progress.message(f"committing {what if manifests else 'that the run is finished'}")
        groups = [_group(manifest, now_ms) for manifest in manifests]
        remapping = None
        if self.vectors is not None:
            files = self.vectors
            remapping = Remapping(
                files.storage.uri, groups, manifests, files.read, files.write, files.new_places
            )

        def as_committed(number: int) -> BinManifest:
            return (remapping.done if remapping is not None else {}).get(number, manifests[number])

        change = Change(
            operation=details.operation,
            groups=groups,
            parameters=details.parameters,
            metrics=lambda kept: commit_metrics([as_committed(number) for number in kept]),
            transaction=details.transaction if finishes else None,
            tags=tags,
            # Clustering decides which files may be put together.
            rests_on_domains=frozenset({CLUSTERING_DOMAIN}),
            remap=remapping,
        )
        result = self.transaction.commit(change)
        self._since_ms = self.runtime.now_ms()
        self.commit_ms += max(0, self._since_ms - now_ms)
        return result, [as_committed(number) for number in range(len(manifests))]


def _group(manifest: BinManifest, now_ms: int) -> FileGroup:
    adds = [
        Add(
            path=output.path,
            partitionValues=dict(manifest.partition_values),
            size=output.size_bytes,
            modificationTime=output.modification_time_ms,
            dataChange=False,
            stats=output.stats,
            tags=dict(output.tags) or None,
            clusteringProvider=manifest.clustering_provider,
        )
        for output in manifest.outputs
    ]
    removes = [
        _remove(source, tags, now_ms)
        for source, tags in zip(manifest.sources, compaction_tags(manifest), strict=True)
    ]
    return FileGroup(adds, removes)


def _remove(source: SourceFile, compaction: Mapping[str, str], now_ms: int) -> Remove:
    vector = source.deletion_vector
    return Remove(
        path=source.path,
        deletionTimestamp=now_ms,
        dataChange=False,
        extendedFileMetadata=True,
        partitionValues=dict(source.partition_values),
        size=source.size_bytes,
        tags={**(without_compaction_tags(source.tags) or {}), **compaction} or None,
        deletionVector=DeletionVector(**vector) if vector is not None else None,
        baseRowId=source.base_row_id,
        defaultRowCommitVersion=source.default_row_commit_version,
    )
