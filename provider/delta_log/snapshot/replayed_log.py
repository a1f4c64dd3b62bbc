"""The log of one version as it was read: what a :class:`~delta_log.snapshot.snapshot.Snapshot` rests on.

Protocol section "Action Reconciliation". Reading starts from a checkpoint that can be read: where one is broken, the
same version is read from an older checkpoint, or from commits alone. A later version is read from this one, by its newer
commits only.

Where a careless writer left out a member that readers demand, it gets the value that readers assume in its absence (protocol
sections "Change Metadata" and "Add File and Remove File"). Checkpoints and version checksums hold completed actions only.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from delta_log.errors import CorruptLog, VersionNotFound
from delta_log.log.actions import Action, DomainMetadata, Metadata, Protocol, SetTransaction
from delta_log.log.checkpoint_reader import CheckpointReader, OtherActions, UnreadableCheckpoint
from delta_log.log.file_names import UNKNOWN_TIME_MS, LogFile
from delta_log.log.log_replay import ReplayedCommits, reconcile, replay_commits
from delta_log.log.log_segment import LogListing, LogSegment, find_log_segment, list_log
from delta_log.snapshot.live_files import FileActions
from delta_log.storage.storage import Storage


def complete_metadata(metadata: Metadata) -> Metadata:
    """Fill in the required members; nulls in the two maps of texts are dropped, since they mean nothing."""
    stated = metadata.format or {}
    options = {name: str(value) for name, value in (stated.get("options") or {}).items() if value is not None}
    return replace(
        metadata,
        format={"provider": stated.get("provider") or "parquet", "options": options},
        partitionColumns=list(metadata.partitionColumns or ()),
        configuration=dict(metadata.properties),
    )


def complete_adds(adds: pa.RecordBatch) -> pa.RecordBatch:
    """Fill in partition values (none) and modification times (1970)."""
    adds = _filled(adds, "partition_values", _without_null_maps)
    return _filled(adds, "modification_time", partial(pc.fill_null, fill_value=0))


def complete_removes(removes: pa.RecordBatch) -> pa.RecordBatch:
    """Fill in ``data_change`` (false)."""
    return _filled(removes, "data_change", partial(pc.fill_null, fill_value=False))


def _filled(batch: pa.RecordBatch, name: str, fill: Callable[[pa.Array], pa.Array]) -> pa.RecordBatch:
    index = batch.schema.get_field_index(name)
    if index < 0 or not batch.column(index).null_count:
        return batch
    return batch.set_column(index, name, fill(batch.column(index)))


def _without_null_maps(maps: pa.MapArray) -> pa.MapArray:
    return pc.if_else(pc.is_null(maps), pa.scalar([], maps.type), maps)


_Action = TypeVar("_Action", Protocol, Metadata)
#: A later version with so many commits after its checkpoint is read anew, if there is a newer checkpoint.
_LONG_TAIL = 1000


class ReplayedLog(Struct, frozen=True, eq=False):
    """The state of one version.

    :param tail: the commits that were read last: after the checkpoint, or after the version that was refreshed.
    :param unusable: keys of checkpoint files that could not be read.
    """

    storage: Storage
    segment: LogSegment
    tail: ReplayedCommits
    adds: FileActions
    removes: FileActions
    protocol: Protocol
    metadata: Metadata
    transactions: dict[str, SetTransaction]
    domains: dict[str, DomainMetadata]
    unusable: frozenset[str] = frozenset()

    @classmethod
    def read(
        cls, storage: Storage, segment: LogSegment, unusable: frozenset[str] = frozenset()
    ) -> ReplayedLog:
        """Read a version from its checkpoint, or from an older one where that cannot be read.

        :raises UnreadableCheckpoint: there is no older one that can be read, nor all commits.
        """
        first_failure: UnreadableCheckpoint | None = None
        while True:
            try:
                reader = CheckpointReader(storage, segment.checkpoint) if segment.checkpoint else None
                break
            except UnreadableCheckpoint as failure:
                first_failure = first_failure or failure
                unusable |= frozenset(failure.checkpoint_keys)
                segment = _segment_without(storage, segment.version, unusable, first_failure)
        tail = _replay(storage, segment)
        older = OtherActions() if reader is None else reader.other
        adds = FileActions("add", tail, reader, storage.uri)
        removes = FileActions("remove", tail, reader, storage.uri)
        return cls._of(storage, segment, tail, older, adds, removes, unusable)

    @classmethod
    def _of(
        cls,
        storage: Storage,
        segment: LogSegment,
        tail: ReplayedCommits,
        older: OtherActions,
        adds: FileActions,
        removes: FileActions,
        unusable: frozenset[str],
    ) -> ReplayedLog:
        return cls(
            storage,
            segment,
            tail,
            adds,
            removes,
            _present("protocol", tail.protocol or older.protocol, storage.uri),
            _present("metaData", tail.metadata or older.metadata, storage.uri),
            {**older.transactions, **tail.transactions},
            {**older.domains, **tail.domains},
            unusable,
        )

    def without_checkpoint(self, failure: UnreadableCheckpoint) -> ReplayedLog:
        """Read this version again, from an older checkpoint than the one that failed."""
        unusable = self.unusable | frozenset(failure.checkpoint_keys)
        segment = _segment_without(self.storage, self.segment.version, unusable, failure)
        return ReplayedLog.read(self.storage, segment, unusable)

    def refreshed(self, listing: LogListing | None) -> ReplayedLog:
        """The latest version; this very object where there is no newer one.

        :param listing: a listing of the log that was made just now, from this version or an earlier one on.
        """
        version = self.segment.version
        listing = listing or list_log(self.storage, version)
        newer = [commit for number, commit in sorted(listing.commits.items()) if number > version]
        gap = len(newer) != max(0, listing.latest - version)
        if gap or not _is_same(listing.commits.get(version), self.segment.last_commit):
            # Commits were cleaned, or the table was made anew: nothing that was read is certain any more.
            return ReplayedLog.read(self.storage, find_log_segment(self.storage))
        if not newer:
            return self
        has_checkpoint = any(checkpoint.version >= version for checkpoint in listing.checkpoints)
        if has_checkpoint and len(self.segment.commits) + len(newer) > _LONG_TAIL:
            return ReplayedLog.read(self.storage, find_log_segment(self.storage))
        return self._followed_by(newer, replay_commits(self.storage, newer, self.storage.uri))

    def advanced(self, newer: Sequence[tuple[LogFile, Sequence[Action]]]) -> ReplayedLog:
        """A later version, from the commits after this one and their actions."""
        tail = reconcile(reversed(newer), self.storage.uri)
        return self._followed_by([file for file, _ in newer], tail)

    def changes_since(self, version: int) -> tuple[FileActions, FileActions]:
        """The files added and removed by the commits after a version, in net.

        :raises VersionNotFound: not all of those commits come after this version's checkpoint.
        """
        uri, last = self.storage.uri, self.segment.version
        commits = [commit for commit in self.segment.commits if commit.version > version]
        if len(commits) != last - version:
            earliest = self.segment.commits[0].version - 1 if self.segment.commits else last
            raise VersionNotFound(uri, f"changes since version {version}", earliest, last)
        tail = replay_commits(self.storage, commits, uri)
        return FileActions("add", tail, None, uri), FileActions("remove", tail, None, uri)

    def _followed_by(self, newer: Sequence[LogFile], tail: ReplayedCommits) -> ReplayedLog:
        segment = LogSegment(
            version=newer[-1].version,
            checkpoint=self.segment.checkpoint,
            commits=(*self.segment.commits, *newer),
            tail=(*self.segment.tail, *newer),
            last_commit=newer[-1],
        )
        older = OtherActions(self.protocol, self.metadata, self.transactions, self.domains)
        adds, removes = self.adds.refreshed(tail), self.removes.refreshed(tail)
        return ReplayedLog._of(self.storage, segment, tail, older, adds, removes, self.unusable)


def _replay(storage: Storage, segment: LogSegment) -> ReplayedCommits:
    try:
        return replay_commits(storage, segment.tail, storage.uri)
    except CorruptLog:
        # A log compaction repeats commits; where one is broken, the commits are still there.
        if segment.tail == segment.commits:
            raise
        return replay_commits(storage, segment.commits, storage.uri)


def _segment_without(
    storage: Storage, version: int, unusable: frozenset[str], failure: UnreadableCheckpoint
) -> LogSegment:
    """The files of a version without some checkpoints.

    :raises UnreadableCheckpoint: the given failure; the log does not hold the version without them.
    """
    try:
        return find_log_segment(storage, version, unusable)
    except (CorruptLog, VersionNotFound):
        raise failure from None


def _present(name: str, action: _Action | None, table_uri: str) -> _Action:
    if action is None:
        raise CorruptLog(
            f"{table_uri}/_delta_log",
            f"there is no {name} action in it",
            "The log is incomplete: restore its first commits, or a checkpoint with the commits after it.",
        )
    return action


def _is_same(listed: LogFile | None, known: LogFile | None) -> bool:
    """Whether a listed commit is the one that was read, and not another table's in its place."""
    if listed is None or known is None or known.info.modification_time_ms != UNKNOWN_TIME_MS:
        return listed == known
    return listed.info.size == known.info.size
