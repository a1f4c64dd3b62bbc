"""One version of a table, immutable.

A :class:`Snapshot` has its protocol, metadata and small state when it is made. Files and tombstones are Arrow tables,
read when a caller asks for them, in the columns that it asks for, and never as a Python object per file.

Making a snapshot is the gate of reading: a table whose reader features this package does not implement is refused here
and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta, timezone
from functools import cached_property
from itertools import chain, islice
from typing import Any, TypeVar

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.arrow.prefetch import read_ahead
from delta_log.errors import CorruptLog, InvalidMetadata, InvalidRequest
from delta_log.log.actions import Action, DomainMetadata, Metadata, Protocol, SetTransaction
from delta_log.log.checkpoint_reader import CheckpointReader, UnreadableCheckpoint
from delta_log.log.file_columns import ADD_SCHEMA, REMOVE_SCHEMA
from delta_log.log.file_names import LogFile, commit_key
from delta_log.log.log_replay import ReplayedCommits
from delta_log.log.log_segment import LogListing, LogSegment
from delta_log.snapshot.commit_info import commit_timestamp_ms, is_moment
from delta_log.snapshot.counts import Counts
from delta_log.snapshot.live_files import FileActions
from delta_log.snapshot.partition_filter import (
    MatchedFiles,
    matching_files,
    require_readable,
    typed_partition_values,
)
from delta_log.snapshot.replayed_log import ReplayedLog
from delta_log.stats.file_stats import NUM_INDEXED_COLUMNS, StatsColumn, stats_columns
from delta_log.stats.stats_columns import parse_stats_column, stats_type
from delta_log.storage.storage import Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.schema import (
    PrimitiveType,
    StructType,
    mapping_mode,
    parse_schema,
    selected_arrow_schema,
)

FILE_COLUMNS = ("path", "key", *ADD_SCHEMA.names[1:])
TOMBSTONE_COLUMNS = ("path", "key", *REMOVE_SCHEMA.names[1:])
EPOCH = datetime(1970, 1, 1, tzinfo=timezone.utc)

_Result = TypeVar("_Result")


class Snapshot:
    """One version of a table. :meth:`delta_log.table.Table.snapshot` makes it."""

    def __init__(self, storage: Storage, segment: LogSegment) -> None:
        self._set(ReplayedLog.read(storage, segment))

    def _set(self, log: ReplayedLog) -> None:
        table_features.require(log.protocol, table_features.Operation.READ)
        table_features.require_catalog(log.protocol, log.storage)
        self._log = log
        self.version: int = log.segment.version
        self.protocol: Protocol = log.protocol
        self.metadata: Metadata = log.metadata

    def __repr__(self) -> str:
        return f"Snapshot({self.table_uri!r}, version={self.version})"

    # -- other versions --------------------------------------------------------------------------------------------

    def refreshed(self, listing: LogListing | None = None) -> Snapshot:
        """The latest version, for which only the newer commits are read; this very snapshot where there are none.

        :param listing: a listing of the log that was made just now, from this version or an earlier one on.
        :raises UnsupportedFeature: the table now needs a feature that this package does not implement.
        """
        log = self._log.refreshed(listing)
        return self if log is self._log else _snapshot_of(log)

    def advanced(self, newer: Sequence[tuple[LogFile, Sequence[Action]]]) -> Snapshot:
        """A later version, from the commits after this one and their actions; nothing is read.

        :raises UnsupportedFeature: see :meth:`refreshed`.
        """
        return _snapshot_of(self._log.advanced(newer))

    def changes_since(self, version: int) -> tuple[pa.Table, pa.Table]:
        """The files added and removed by the commits after a version up to this one, in net.

        The tables have the columns of :meth:`files` and :meth:`tombstones`.

        :raises VersionNotFound: the log of this snapshot does not hold all those commits.
        """
        adds, removes = self._log.changes_since(version)
        return adds.table(FILE_COLUMNS), removes.table(TOMBSTONE_COLUMNS)

    # -- small state -----------------------------------------------------------------------------------------------

    @cached_property
    def schema(self) -> StructType:
        return parse_schema(self.metadata.schemaString, mapped=self.mapping_mode != "none")

    @cached_property
    def mapping_mode(self) -> str:
        """The mode of column mapping: ``none``, ``name`` or ``id``."""
        return mapping_mode(self.properties, self.protocol)

    @cached_property
    def unused_features(self) -> frozenset[str]:
        """Features that the protocol lists and the table does not use; they stop no operation."""
        return table_features.unused_features(self.properties)

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
            raise InvalidMetadata(
                "metaData.partitionColumns", f"{error} is not a column of the schema"
            ) from error
        if len({column.name for column in columns}) < len(columns):
            raise InvalidMetadata("metaData.partitionColumns", "it names a column twice")
        for column in columns:
            if not isinstance(column.type, PrimitiveType):
                raise InvalidMetadata(
                    "metaData.partitionColumns", f"{column.name!r} is not of a primitive type"
                )
        return StructType(columns)

    @property
    def transactions(self) -> dict[str, int]:
        """``txn``: application id to version."""
        return {app_id: transaction.version for app_id, transaction in self._log.transactions.items()}

    @property
    def set_transactions(self) -> tuple[SetTransaction, ...]:
        """The ``txn`` actions themselves, including expired ones."""
        return tuple(self._log.transactions.values())

    @property
    def domain_metadata(self) -> dict[str, str]:
        """Domain to configuration, without removed domains."""
        return {domain.domain: domain.configuration for domain in self.domains}

    @property
    def domains(self) -> tuple[DomainMetadata, ...]:
        """The ``domainMetadata`` actions themselves, without removed domains."""
        return tuple(domain for domain in self._log.domains.values() if not domain.removed)

    @cached_property
    def timestamp_ms(self) -> int:
        """When this version was committed: its in-commit timestamp, else the commit file's modification time."""
        return commit_timestamp_ms(self._log.storage, self._log.segment, self.properties, self.commit_info)

    @property
    def timestamp(self) -> datetime:
        """:attr:`timestamp_ms` as a date.

        :raises CorruptLog: it is before the year 1 or after the year 9999.
        """
        if not is_moment(self.timestamp_ms):  # of the file: timestamps that a commit states were checked
            raise CorruptLog(
                commit_key(self.version),
                f"its file was written at {self.timestamp_ms} ms, which no date has",
                "The clock of the store, or of the program that copied the file, is at fault: give the file another time of "
                "modification.",
            )
        return EPOCH + timedelta(milliseconds=self.timestamp_ms)

    @property
    def last_commit(self) -> LogFile | None:
        """The commit of this version, as it was listed; ``None``: the log has only a checkpoint of it any more."""
        return self._log.segment.last_commit

    @property
    def commit_infos(self) -> Mapping[int, dict[str, Any]]:
        """``commitInfo`` by version, as far as making this snapshot read commits; a log compaction has none."""
        return self._log.tail.commit_infos

    @property
    def commit_info(self) -> dict[str, Any] | None:
        """``commitInfo`` of this version, where its commit was read."""
        return self.commit_infos.get(self.version)

    @property
    def table_uri(self) -> str:
        return self._log.storage.uri

    @property
    def base(self) -> tuple[CheckpointReader, ReplayedCommits] | None:
        """The checkpoint that the files come from, and the commits after it; ``None``: the files come from commits."""
        adds = self._log.adds
        return (adds.source, adds.tail) if isinstance(adds.source, CheckpointReader) else None

    @property
    def checkpoint_version(self) -> int | None:
        """The version of the newest checkpoint at or before this version, as far as this snapshot has read the log."""
        checkpoint = self._log.segment.checkpoint
        return checkpoint.version if checkpoint else None

    @property
    def commits_since_checkpoint(self) -> int:
        """How many commits a reader of this version replays."""
        return len(self._log.segment.commits)

    @property
    def bytes_since_checkpoint(self) -> int:
        """The size of those commits."""
        return sum(commit.info.size for commit in self._log.segment.commits)

    # -- files -----------------------------------------------------------------------------------------------------

    def files(
        self,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        *,
        undecided: bool = False,
    ) -> pa.Table:
        """The live files, a row each.

        :param columns: names from :data:`FILE_COLUMNS`: ``path`` (verbatim), ``key`` (decoded), ``partition_values``
            (raw map, physical names), ``size`` (bytes), ``modification_time`` (ms), ``stats`` (JSON text),
            ``tags``, ``deletion_vector``, ``base_row_id``, ``default_row_commit_version``, ``clustering_provider``.
        :param where: a predicate on partition columns (logical names, typed values). A file does not match if the predicate
            needs a partition value of it that cannot be read.
        :param undecided: ``True``: give these files instead of the files that match.
        """
        return self._collect(lambda log: log.adds, _chosen(FILE_COLUMNS, columns), where, undecided)

    def tombstones(
        self, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> pa.Table:
        """The removed files that the log still names, including expired ones; columns of :data:`TOMBSTONE_COLUMNS`."""
        return self._collect(lambda log: log.removes, _chosen(TOMBSTONE_COLUMNS, columns), where)

    def file_batches(
        self, columns: Sequence[str] | None = None, where: pc.Expression | None = None
    ) -> Iterator[pa.RecordBatch]:
        """What :meth:`files` gives, streamed: memory stays bounded however many files there are."""
        chosen = _chosen(FILE_COLUMNS, columns)
        needed = _with_partitions(chosen, where)
        for batch in read_ahead(self._reading(lambda log: _begun(log.adds.batches("add", needed)))):
            selected = batch if where is None else batch.filter(self._matched(batch, where).matching)
            if selected.num_rows:
                yield selected.select(list(chosen))

    def tombstone_batches(self, columns: Sequence[str] | None = None) -> Iterator[pa.RecordBatch]:
        """What :meth:`tombstones` gives, streamed."""
        chosen = _chosen(TOMBSTONE_COLUMNS, columns)
        return self._reading(lambda log: _begun(log.removes.batches("remove", chosen)))

    def partition_values_or_null(self, partition_values: pa.MapArray | pa.ChunkedArray) -> pa.Table:
        """The raw maps of some files as typed columns, by logical name; a value that cannot be read is null."""
        return typed_partition_values(self.partition_schema, partition_values, or_null=True)

    def parsed_stats(self, stats: pa.StringArray | pa.ChunkedArray) -> pa.StructArray | pa.ChunkedArray:
        """The ``stats`` of some files as typed columns: ``numRecords``, ``minValues``, ``maxValues``, ``nullCount``,
        ``tightBounds``, with physical names. Absent and unusable values are null."""
        if isinstance(stats, pa.ChunkedArray):
            parsed = [parse_stats_column(chunk, self._stats_columns) for chunk in stats.chunks]
            return pa.chunked_array(parsed, stats_type(self._stats_columns))
        return parse_stats_column(stats, self._stats_columns)

    @cached_property
    def _stats_columns(self) -> tuple[StatsColumn, ...]:
        every_leaf = {NUM_INDEXED_COLUMNS: "-1"}
        return stats_columns(self.schema, partition_columns=self.partition_columns, properties=every_leaf)

    @cached_property
    def counts(self) -> Counts:
        """Totals of the live files. A refreshed snapshot derives them from the older snapshot's, where it can.

        :raises CorruptLog: a total exceeds 64 bits.
        """
        return self._reading(lambda log: log.adds.counts()).checked()

    @property
    def num_files(self) -> int:
        return self.counts.files

    @property
    def size_bytes(self) -> int:
        """The size of all live files in storage."""
        return self.counts.size_bytes

    @property
    def num_deletion_vectors(self) -> int:
        """How many live files have a deletion vector."""
        return self.counts.deletion_vectors

    @property
    def num_deleted_rows(self) -> int:
        """How many rows those vectors hide."""
        return self.counts.deleted_rows

    def _collect(
        self,
        actions: Callable[[ReplayedLog], FileActions],
        columns: tuple[str, ...],
        where: pc.Expression | None,
        undecided: bool = False,
    ) -> pa.Table:
        needed = _with_partitions(columns, where) or ("path",)
        table = self._reading(lambda log: actions(log).table(needed))
        if where is not None:
            matched = self._matched(table, where)
            table = table.filter(matched.undecided if undecided else matched.matching)
        return table.select(list(columns))

    def _reading(self, read: Callable[[ReplayedLog], _Result]) -> _Result:
        """Read from the log; where its checkpoint proves broken, read the same version from an older one."""
        while True:
            try:
                return read(self._log)
            except UnreadableCheckpoint as failure:
                self._log = self._log.without_checkpoint(failure)

    def _matched(self, files: pa.RecordBatch | pa.Table, where: pc.Expression) -> MatchedFiles:
        return matching_files(self.partition_schema, files.column("partition_values"), where)

    # -- rows ------------------------------------------------------------------------------------------------------

    def arrow_schema(self, columns: Sequence[str] | None = None) -> pa.Schema:
        """The schema of :meth:`scan`."""
        return selected_arrow_schema(self.schema, columns)

    def scan(
        self,
        columns: Sequence[str] | None = None,
        where: pc.Expression | None = None,
        *,
        row_tracking: bool = False,
    ) -> pa.RecordBatchReader:
        """The live rows, streamed: logical names and types, deletion vectors and partition values applied.

        :param where: a predicate on partition columns; it chooses files, and so rows.
        :param row_tracking: ``True``: append ``_row_id`` and ``_row_commit_version``, the stable ids of the rows.
        :raises InvalidRequest: no such column, or row tracking is asked for and not enabled.
        :raises InvalidPartitionValue: a file has a partition value that the columns or the predicate need, and that cannot
            be read.
        """
        # Imported here, since maintenance reads the log of a table more often than its rows.
        from delta_log.data.scan import FILE_COLUMNS as SCANNED_FILE_COLUMNS
        from delta_log.data.scan import ROW_TRACKING_SCHEMA, RowTracking, scan_files

        schema = self.arrow_schema(columns)
        tracking = RowTracking.of(self.properties) if row_tracking else None
        if tracking is not None:
            schema = pa.schema([*schema, *ROW_TRACKING_SCHEMA])
        if where is not None:
            left = self.files(("path", "partition_values"), where, undecided=True)
            require_readable(left, self.partition_schema, self.version)
        files = self.files(SCANNED_FILE_COLUMNS, where)
        shown = StructType(tuple(column for column in self.partition_schema if column.name in schema.names))
        require_readable(files, shown, self.version)
        batches = scan_files(
            files,
            typed_partition_values(shown, files.column("partition_values")),
            schema,
            self._log.storage,
            table_schema=self.schema,
            mapping_mode=self.mapping_mode,
            row_tracking=tracking,
        )
        return pa.RecordBatchReader.from_batches(schema, batches)

    def to_arrow(self, columns: Sequence[str] | None = None) -> pa.Table:
        """All live rows, see :meth:`scan`."""
        return self.scan(columns).read_all()


def _snapshot_of(log: ReplayedLog) -> Snapshot:
    snapshot = Snapshot.__new__(Snapshot)
    snapshot._set(log)
    return snapshot


def _chosen(known: Sequence[str], columns: Sequence[str] | None) -> tuple[str, ...]:
    if columns is None:
        return tuple(known)
    for name in columns:
        if name not in known:
            raise InvalidRequest(f"There is no file column {name!r}. The columns are {', '.join(known)}.")
    return tuple(columns)


def _begun(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The batches, with the first one read already: until then another checkpoint can replace a broken one."""
    first = list(islice(batches, 1))
    return chain(first, batches)


def _with_partitions(columns: tuple[str, ...], where: pc.Expression | None) -> tuple[str, ...]:
    return columns if where is None else tuple(dict.fromkeys((*columns, "partition_values")))
