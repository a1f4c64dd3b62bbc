"""One version of a table, immutable.

A :class:`Snapshot` knows its protocol, metadata and small state at once; files and tombstones are Arrow tables, read
when they are asked for, in the columns that are asked for, and never as a Python object per file. Opening one is the
gate: a table whose reader features we do not implement is refused here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta, timezone
from functools import cached_property
from itertools import chain, islice
from typing import Any, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds

from delta_log.data.scan import FILE_COLUMNS as SCANNED_FILE_COLUMNS
from delta_log.data.scan import ROW_TRACKING_SCHEMA, RowTracking, scan_files
from delta_log.errors import CorruptLog, InvalidRequest, VersionNotFound
from delta_log.log.actions import Action, DomainMetadata, Metadata, Protocol, SetTransaction
from delta_log.log.checkpoint_reader import CheckpointReader, OtherActions, UnreadableCheckpoint
from delta_log.log.file_columns import ADD_SCHEMA, REMOVE_SCHEMA
from delta_log.log.file_names import UNKNOWN_TIME_MS, LogFile, commit_key
from delta_log.log.log_replay import ReplayedCommits, reconcile, replay_commits
from delta_log.log.log_segment import LogListing, LogSegment, find_log_segment, list_log
from delta_log.snapshot.commit_info import commit_timestamp_ms, is_moment
from delta_log.snapshot.live_files import Counts, FileActions
from delta_log.stats.file_stats import NUM_INDEXED_COLUMNS, StatsColumn, stats_columns
from delta_log.stats.stats_columns import parse_stats_column, stats_type
from delta_log.storage.storage import Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.column_mapping import mapping_mode
from delta_log.table_config.partition_values import parse_column
from delta_log.table_config.schema import (
    PrimitiveType,
    StructField,
    StructType,
    arrow_field,
    arrow_schema,
    leaf_types,
    parse_schema,
)

FILE_COLUMNS = ("path", "key", *ADD_SCHEMA.names[1:])
TOMBSTONE_COLUMNS = ("path", "key", *REMOVE_SCHEMA.names[1:])
_Action = TypeVar("_Action", Protocol, Metadata)
_Read = TypeVar("_Read")
#: A refreshed snapshot with so many commits after its checkpoint is opened anew, if there is a newer checkpoint.
_LONG_TAIL = 1000
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)


class Snapshot:
    """See the module. Made by :meth:`delta_log.table.Table.snapshot`."""

    def __init__(self, storage: Storage, segment: LogSegment) -> None:
        self._storage = storage
        self._unusable: frozenset[str] = frozenset()
        self._load(segment)
        table_features.require(self.protocol, table_features.Operation.READ)

    def _load(self, segment: LogSegment) -> None:
        first_failure: UnreadableCheckpoint | None = None
        while True:
            try:
                reader = CheckpointReader(self._storage, segment.checkpoint) if segment.checkpoint else None
                break
            except UnreadableCheckpoint as failure:
                first_failure = first_failure or failure
                segment = self._segment_without(failure, segment.version, first_failure)
        tail = self._replay(segment)
        adds = FileActions("add", tail, reader, self._storage.uri)
        removes = FileActions("remove", tail, reader, self._storage.uri)
        self._take(segment, tail, reader.other if reader else OtherActions(), adds, removes)

    def _replay(self, segment: LogSegment) -> ReplayedCommits:
        try:
            return replay_commits(self._storage, segment.tail, self._storage.uri)
        except CorruptLog:
            # A log compaction only repeats commits; where one is broken, they are still there.
            if segment.tail == segment.commits:
                raise
            return replay_commits(self._storage, segment.commits, self._storage.uri)

    def _take(
        self,
        segment: LogSegment,
        tail: ReplayedCommits,
        older: OtherActions,
        adds: FileActions,
        removes: FileActions,
    ) -> None:
        uri = self._storage.uri
        self._segment, self._tail, self._adds, self._removes = segment, tail, adds, removes
        self.version: int = segment.version
        self.protocol: Protocol = _present("protocol", tail.protocol or older.protocol, uri)
        self.metadata: Metadata = _present("metaData", tail.metadata or older.metadata, uri)
        self._transactions = {**older.transactions, **tail.transactions}
        self._domains = {**older.domains, **tail.domains}

    def _segment_without(
        self, failure: UnreadableCheckpoint, version: int, first_failure: UnreadableCheckpoint
    ) -> LogSegment:
        """The same version from an older checkpoint, or from commits alone."""
        self._unusable |= frozenset(failure.checkpoint_keys)
        try:
            return find_log_segment(self._storage, version, self._unusable)
        except (CorruptLog, VersionNotFound):
            raise first_failure from None

    def refreshed(self, listing: LogListing | None = None) -> Snapshot:
        """The latest version, from this one: only newer commits are read. This very snapshot where there are none.

        :param listing: a listing of the log that was made just now, from this version or an earlier one on.
        :raises UnsupportedFeature: the table has come to need what this package does not implement.
        """
        listing = listing or list_log(self._storage, self.version)
        newer = [commit for version, commit in sorted(listing.commits.items()) if version > self.version]
        gap = len(newer) != max(0, listing.latest - self.version)
        if gap or not _is_same(listing.commits.get(self.version), self._segment.last_commit):
            # Commits were cleaned, or the table was made anew: nothing of ours is certain any more.
            return Snapshot(self._storage, find_log_segment(self._storage))
        if not newer:
            return self
        has_checkpoint = any(checkpoint.version >= self.version for checkpoint in listing.checkpoints)
        if has_checkpoint and len(self._segment.commits) + len(newer) > _LONG_TAIL:
            return Snapshot(self._storage, find_log_segment(self._storage))
        return self._with(newer, replay_commits(self._storage, newer, self._storage.uri))

    def advanced(self, newer: Sequence[tuple[LogFile, Sequence[Action]]]) -> Snapshot:
        """A later version, from the commits after this one, given with their actions: nothing is read.

        :raises UnsupportedFeature: see :meth:`refreshed`.
        """
        tail = reconcile(reversed(newer), self._storage.uri)
        return self._with([file for file, _ in newer], tail)

    def _with(self, newer: Sequence[LogFile], tail: ReplayedCommits) -> Snapshot:
        segment = LogSegment(
            version=newer[-1].version,
            checkpoint=self._segment.checkpoint,
            commits=(*self._segment.commits, *newer),
            tail=(*self._segment.tail, *newer),
            last_commit=newer[-1],
        )
        older = OtherActions(self.protocol, self.metadata, self._transactions, self._domains)
        fresh = Snapshot.__new__(Snapshot)
        fresh._storage, fresh._unusable = self._storage, self._unusable
        fresh._take(segment, tail, older, self._adds.refreshed(tail), self._removes.refreshed(tail))
        table_features.require(fresh.protocol, table_features.Operation.READ)
        return fresh

    def changes_since(self, version: int) -> tuple[pa.Table, pa.Table]:
        """The files added and removed by the commits after a version up to this one, in net.

        Columns as of :meth:`files` and :meth:`tombstones`.

        :raises VersionNotFound: those commits are not all in the log's tail of this snapshot any more.
        """
        commits = [commit for commit in self._segment.commits if commit.version > version]
        if len(commits) != self.version - version:
            earliest = self._segment.commits[0].version - 1 if self._segment.commits else self.version
            raise VersionNotFound(
                self._storage.uri, f"changes since version {version}", earliest, self.version
            )
        tail = replay_commits(self._storage, commits, self._storage.uri)
        uri = self._storage.uri
        adds, removes = FileActions("add", tail, None, uri), FileActions("remove", tail, None, uri)
        return adds.table(FILE_COLUMNS), removes.table(TOMBSTONE_COLUMNS)

    def __repr__(self) -> str:
        return f"Snapshot({self._storage.uri!r}, version={self.version})"

    # -- small state ---------------------------------------------------------------------------------------------

    @cached_property
    def schema(self) -> StructType:
        return parse_schema(self.metadata.schemaString, mapped=self.mapping_mode != "none")

    @cached_property
    def mapping_mode(self) -> str:
        """Of column mapping: ``none``, ``name`` or ``id``."""
        return mapping_mode(self.properties, self.protocol)

    @cached_property
    def unused_features(self) -> frozenset[str]:
        """Features that may be listed in the protocol and are not in use: they stop no operation."""
        types = {leaf.name for leaf in leaf_types(self.schema)}
        return table_features.unused_features(types, self.domain_metadata)

    @cached_property
    def properties(self) -> dict[str, str]:
        """``metaData.configuration``."""
        return self.metadata.properties

    @property
    def partition_columns(self) -> tuple[str, ...]:
        """Logical names, as the schema spells them."""
        return self.partition_schema.names

    @cached_property
    def partition_schema(self) -> StructType:
        """The partition columns, in their order."""
        try:
            columns = tuple(self.schema.field(name) for name in self.metadata.partition_columns)
        except KeyError as error:
            raise CorruptLog("metaData.partitionColumns", f"{error} is not a column of the schema") from error
        if len({column.name for column in columns}) < len(columns):
            raise CorruptLog("metaData.partitionColumns", "it names a column twice")
        for column in columns:
            if not isinstance(column.type, PrimitiveType):
                raise CorruptLog("metaData.partitionColumns", f"{column.name!r} is not of a primitive type")
        return StructType(columns)

    @property
    def transactions(self) -> dict[str, int]:
        """``txn``: application id to version."""
        return {app_id: transaction.version for app_id, transaction in self._transactions.items()}

    @property
    def set_transactions(self) -> tuple[SetTransaction, ...]:
        """The ``txn`` actions themselves, expired ones too."""
        return tuple(self._transactions.values())

    @property
    def domain_metadata(self) -> dict[str, str]:
        """Domain to configuration; removed domains are left out."""
        return {domain.domain: domain.configuration for domain in self.domains}

    @property
    def domains(self) -> tuple[DomainMetadata, ...]:
        """The ``domainMetadata`` actions themselves; removed domains are left out."""
        return tuple(domain for domain in self._domains.values() if not domain.removed)

    @cached_property
    def timestamp_ms(self) -> int:
        """When this version was committed: its in-commit timestamp, else the commit file's modification time."""
        return commit_timestamp_ms(
            self._storage, self._segment, self.properties, self._tail.commit_infos.get(self.version)
        )

    @property
    def last_commit(self) -> LogFile | None:
        """The commit of this version, as the log was listed; ``None``: it was cleaned, and a checkpoint stands for it."""
        return self._segment.last_commit

    @property
    def commit_info(self) -> dict[str, Any] | None:
        """``commitInfo`` of this version, where its commit was read."""
        return self._tail.commit_infos.get(self.version)

    @property
    def checkpoint_version(self) -> int | None:
        """Of the newest checkpoint at or before this version, as far as this snapshot knows the log."""
        return self._segment.checkpoint.version if self._segment.checkpoint else None

    @property
    def table_uri(self) -> str:
        return self._storage.uri

    @property
    def base(self) -> tuple[CheckpointReader, ReplayedCommits] | None:
        """The checkpoint that the files come from, and what the commits after it say of files; ``None``: commits alone."""
        reader = self._adds.base
        return (reader, self._adds.tail) if isinstance(reader, CheckpointReader) else None

    @property
    def commits_since_checkpoint(self) -> int:
        """How many commits a reader of this version replays."""
        return len(self._segment.commits)

    @property
    def bytes_since_checkpoint(self) -> int:
        """What those commits weigh."""
        return sum(commit.info.size for commit in self._segment.commits)

    @property
    def timestamp(self) -> datetime:
        """
        :raises CorruptLog: no calendar has that time.
        """
        if not is_moment(self.timestamp_ms):  # of the file: what a commit says was looked at
            raise CorruptLog(
                commit_key(self.version), f"its file was written at {self.timestamp_ms} ms, which no date has"
            )
        return EPOCH + timedelta(milliseconds=self.timestamp_ms)

    # -- files ---------------------------------------------------------------------------------------------------

    def files(self, columns: Sequence[str] | None = None, where: pc.Expression | None = None) -> pa.Table:
        """The live files, a row each.

        :param columns: some of :data:`FILE_COLUMNS`: ``path`` (verbatim), ``key`` (decoded), ``partition_values``
            (raw map, physical names), ``size`` (bytes), ``modification_time`` (ms), ``stats`` (JSON text),
            ``tags``, ``deletion_vector``, ``base_row_id``, ``default_row_commit_version``, ``clustering_provider``.
        :param where: a predicate on partition columns (logical names, typed values).
        """
        return self._collect("add", _chosen(FILE_COLUMNS, columns), where)

    def tombstones(
        self, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> pa.Table:
        """The removed files that the log still remembers; columns of :data:`TOMBSTONE_COLUMNS`. Expired ones too."""
        return self._collect("remove", _chosen(TOMBSTONE_COLUMNS, columns), where)

    def file_batches(
        self, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """What :meth:`files` gives, streamed: memory stays bounded however many files there are."""
        chosen = _chosen(FILE_COLUMNS, columns)
        wanted = _with_partitions(chosen, where)
        for batch in _ahead(self._readable(lambda: _begun(self._adds.batches("add", wanted)))):
            selected = (
                batch
                if where is None
                else batch.filter(self._selected(batch.column("partition_values"), where))
            )
            if selected.num_rows:
                yield selected.select(list(chosen))

    def tombstone_batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """What :meth:`tombstones` gives, streamed."""
        chosen = _chosen(TOMBSTONE_COLUMNS, columns)
        return self._readable(lambda: _begun(self._removes.batches("remove", chosen)))

    def _collect(self, action: str, columns: tuple[str, ...], where: pc.Expression | None) -> pa.Table:
        wanted = _with_partitions(columns, where) or ("path",)
        table = self._readable(lambda: (self._adds if action == "add" else self._removes).table(wanted))
        if where is not None:
            table = table.filter(self._selected(table.column("partition_values"), where))
        return table.select(list(columns))

    def _readable(self, read: Callable[[], _Read]) -> _Read:
        """Read; where the checkpoint turns out to be broken, take the same version from an older one and try again."""
        while True:
            try:
                return read()
            except UnreadableCheckpoint as failure:
                self._load(self._segment_without(failure, self.version, failure))

    def _selected(self, partition_values: pa.MapArray | pa.ChunkedArray, where: pc.Expression) -> pa.Array:
        rows = pa.array(np.arange(len(partition_values)))
        typed = self.typed_partition_values(partition_values)
        try:
            kept = ds.dataset(pa.table([rows, *typed.columns], ["\x00row", *typed.column_names])).to_table(
                ["\x00row"], filter=where
            )
        except (pa.ArrowException, KeyError, ValueError) as error:
            raise InvalidRequest(
                f"The predicate {where} does not fit the partition columns "
                f"({', '.join(self.partition_columns) or 'there are none'}): {error}."
            ) from error
        return pc.is_in(rows, value_set=kept.column(0).combine_chunks())

    def typed_partition_values(self, partition_values: pa.MapArray | pa.ChunkedArray) -> pa.Table:
        """The raw maps of some files as typed columns, by logical name."""
        columns = {}
        for column in self.partition_schema:
            text = pc.map_lookup(partition_values, pa.scalar(column.physical_name), "first")
            assert isinstance(column.type, PrimitiveType)
            columns[column.name] = parse_column(text, column.type, column.name)
        return pa.table(columns)

    @cached_property
    def _stats_columns(self) -> tuple[StatsColumn, ...]:
        every_leaf = {NUM_INDEXED_COLUMNS: "-1"}
        return stats_columns(self.schema, partition_columns=self.partition_columns, properties=every_leaf)

    def parsed_stats(self, stats: pa.StringArray | pa.ChunkedArray) -> pa.StructArray | pa.ChunkedArray:
        """The ``stats`` of some files as typed columns: ``numRecords``, ``minValues``, ``maxValues``, ``nullCount``,
        ``tightBounds``, with physical names. What is absent or unusable is null."""
        if isinstance(stats, pa.ChunkedArray):
            parsed = [parse_stats_column(chunk, self._stats_columns) for chunk in stats.chunks]
            return pa.chunked_array(parsed, stats_type(self._stats_columns))
        return parse_stats_column(stats, self._stats_columns)

    @cached_property
    def counts(self) -> Counts:
        """Totals of the live files; after a refresh they are carried on where what they rest on was held."""
        return self._readable(lambda: self._adds.counts())  # noqa: PLW0108 - reading again takes other files

    @property
    def num_files(self) -> int:
        return self.counts.files

    @property
    def size_bytes(self) -> int:
        """Of all live files, as they lie in storage."""
        return self.counts.size_bytes

    @property
    def num_deletion_vectors(self) -> int:
        """Live files that have a deletion vector."""
        return self.counts.deletion_vectors

    @property
    def num_deleted_rows(self) -> int:
        """Rows that those vectors hide."""
        return self.counts.deleted_rows

    # -- rows ----------------------------------------------------------------------------------------------------

    def arrow_schema(self, columns: Sequence[str] | None = None) -> pa.Schema:
        """The schema of :meth:`scan`."""
        if columns is None:
            return arrow_schema(self.schema)
        return pa.schema([arrow_field(self._column(name)) for name in columns])

    def _column(self, name: str) -> StructField:
        try:
            return self.schema.field(name)
        except KeyError:
            raise InvalidRequest(
                f"There is no column {name!r}. The columns are {', '.join(self.schema.names)}."
            ) from None

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        *,
        row_tracking: bool = False,
    ) -> pa.RecordBatchReader:
        """The live rows, streamed: logical names and types, deletion vectors and partition values applied.

        :param where: a predicate on partition columns; it chooses files, and so rows.
        :param row_tracking: append ``_row_id`` and ``_row_commit_version``, the stable ids of the rows.
        :raises InvalidRequest: no such column, or row tracking is asked for and not enabled.
        """
        schema = self.arrow_schema(columns)
        tracking = RowTracking.of(self.properties) if row_tracking else None
        if tracking is not None:
            schema = pa.schema([*schema, *ROW_TRACKING_SCHEMA])
        files = self.files(SCANNED_FILE_COLUMNS, where)
        batches = scan_files(
            files,
            self.typed_partition_values(files.column("partition_values")),
            schema,
            self._storage,
            table_schema=self.schema,
            mapping_mode=self.mapping_mode,
            row_tracking=tracking,
        )
        return pa.RecordBatchReader.from_batches(schema, batches)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All live rows, see :meth:`scan`."""
        return self.scan(columns).read_all()


def _present(name: str, action: _Action | None, table_uri: str) -> _Action:
    if action is None:
        raise CorruptLog(f"{table_uri}/_delta_log", f"there is no {name} action in it; the log is incomplete")
    return action


def _is_same(listed: LogFile | None, ours: LogFile | None) -> bool:
    """Is it the commit that we know, or one of another table in the place of ours?"""
    if listed is None or ours is None or ours.info.modification_time_ms != UNKNOWN_TIME_MS:
        return listed == ours
    return listed.info.size == ours.info.size


def _chosen(known: Sequence[str], columns: Sequence[str] | None) -> tuple[str, ...]:
    if columns is None:
        return tuple(known)
    for name in columns:
        if name not in known:
            raise InvalidRequest(f"There is no file column {name!r}. The columns are {', '.join(known)}.")
    return tuple(columns)


def _begun(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same, with the first batch read already: until then another checkpoint can take the place of a broken one."""
    first = list(islice(batches, 1))
    return chain(first, batches)


def _ahead(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same; the next batch is read while the caller works on one."""
    with ThreadPoolExecutor(1) as thread:
        following = thread.submit(next, batches, None)
        while (batch := following.result()) is not None:
            following = thread.submit(next, batches, None)
            yield batch


def _with_partitions(columns: tuple[str, ...], where: pc.Expression | None) -> tuple[str, ...]:
    return columns if where is None else tuple(dict.fromkeys((*columns, "partition_values")))
