"""Reads the rows that a range of commits has changed, as the schema of the range's last version has them.

Protocol sections "Change Data Files" and "Reader Requirements for AddCDCFile". The plan of a range names the changed rows of each
commit (:mod:`delta_log.changes.changed_rows`) and is made before the first row is read: a range whose commits are not all in the
log, or whose earlier rows the last version's schema cannot show, is refused there. Rows come commit by commit, deleted rows of a
commit before its inserted rows.

A file that VACUUM has deleted is noticed when its turn comes (:class:`~delta_log.errors.ChangesGone`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from delta_log.arrow.prefetch import map_ordered
from delta_log.changes.changed_rows import CHANGE_TYPE, CHANGE_TYPES, ChangedRows, changed_rows
from delta_log.changes.schema_change import incompatible_columns
from delta_log.data.data_file import DataFile, Rows
from delta_log.data.deletion_vector import read_deletion_vector
from delta_log.data.row_bitmap import RowBitmap
from delta_log.errors import (
    ChangesGone,
    CorruptLog,
    InvalidPartitionValue,
    InvalidRequest,
    LogCleaned,
    NotATable,
    VersionNotFound,
)
from delta_log.log.actions import Action, Metadata, Protocol, decode_commit
from delta_log.log.log_segment import LogListing, list_log, segment_of
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.time_travel import commit_times
from delta_log.storage.storage import Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.partition_values import parse_column
from delta_log.table_config.schema import (
    PrimitiveType,
    StructField,
    StructType,
    arrow_schema,
    mapping_mode,
    parse_schema,
)

COMMIT_VERSION, COMMIT_TIMESTAMP = "_commit_version", "_commit_timestamp"
#: The columns that follow the columns of the table.
CHANGE_SCHEMA = pa.schema(
    [
        (CHANGE_TYPE, pa.string()),
        (COMMIT_VERSION, pa.int64()),
        (COMMIT_TIMESTAMP, pa.timestamp("us", tz="UTC")),
    ]
)

_CHANGE_TYPE_FIELD = StructField(CHANGE_TYPE, PrimitiveType("string"))
#: A file of at most this size is read whole by a thread of its own.
_SMALL_BYTES = 8 << 20
_THREADS = 4


class CommitChanges(Struct, frozen=True):
    """What one commit of a range has changed.

    :param timestamp_ms: time of the commit, in ms since the epoch.
    """

    version: int
    timestamp_ms: int
    rows: tuple[ChangedRows, ...]


class ChangePlan(Struct, frozen=True):
    """The changes of a range of versions.

    :param schema: schema of the last version; the rows are shown in it.
    :param mapping_mode: column mapping mode of the last version.
    """

    first_version: int
    last_version: int
    schema: StructType
    mapping_mode: str
    commits: tuple[CommitChanges, ...]

    @property
    def arrow_schema(self) -> pa.Schema:
        """The columns of the table, all nullable, and :data:`CHANGE_SCHEMA`."""
        columns = (column.with_nullable(True) for column in arrow_schema(self.schema))
        return pa.schema([*columns, *CHANGE_SCHEMA])


def plan_changes(storage: Storage, from_version: int, to_version: int | None) -> ChangePlan:
    """Read the commits of a range, and plan what to read of each.

    :param to_version: the last version, included; ``None``: the latest version.
    :raises NotATable: there is no log.
    :raises InvalidRequest: the range is empty, or its rows cannot be shown in one schema.
    :raises VersionNotFound: the last version is not in the log.
    :raises LogCleaned: commits of the range were deleted from the log.
    :raises UnsupportedFeature: a version of the range needs a feature that this package does not implement.
    """
    listing = list_log(storage)
    if listing.latest < 0:
        raise NotATable(storage.uri)
    last = listing.latest if to_version is None else to_version
    versions = _versions(storage, listing, from_version, last)
    files = [listing.commits[version] for version in versions]
    bodies = storage.read_many([file.key for file in files])
    actions = {file.version: decode_commit(body, file.key) for file, body in zip(files, bodies, strict=True)}
    first = _first_state(storage, listing, from_version)
    newest = Snapshot(storage, segment_of(listing, storage, last))
    _require_one_schema(first, actions, newest)
    infos = {version: _commit_info(found) for version, found in actions.items()}
    times_ms = commit_times(storage, listing, infos)
    commits = tuple(
        CommitChanges(version, times_ms[version], tuple(changed_rows(found, storage.uri)))
        for version, found in actions.items()
    )
    _require_partition_values(first.metadata, actions, commits)
    return ChangePlan(from_version, last, newest.schema, newest.mapping_mode, commits)


def _versions(storage: Storage, listing: LogListing, first: int, last: int) -> range:
    """Return the versions of a range, whose commits are all in the log."""
    if first < 0 or last < first:
        raise InvalidRequest(
            f"There are no versions from {first} to {last}. The first version is 0, the latest {listing.latest}, and a range "
            "ends with the version with which it begins, or a later version."
        )
    if last > listing.latest:
        raise VersionNotFound(storage.uri, f"version {last}", listing.earliest, listing.latest)
    versions = range(first, last + 1)
    missing = [version for version in versions if version not in listing.commits]
    if missing:
        raise LogCleaned(storage.uri, first - 1, missing[-1] + 1)
    return versions


def _commit_info(actions: Sequence[Action]) -> Mapping[str, object]:
    return next((action.commitInfo for action in actions if action.commitInfo is not None), {})


def _first_state(storage: Storage, listing: LogListing, from_version: int) -> Snapshot:
    """Return the version before the range, whose rows the range may delete; the first readable version where it is gone."""
    return Snapshot(storage, segment_of(listing, storage, max(from_version - 1, listing.earliest)))


def _require_one_schema(first: Snapshot, actions: Mapping[int, Sequence[Action]], newest: Snapshot) -> None:
    """Refuse a range with a version whose rows the newest version's schema cannot show.

    :param actions: actions by version, ascending.
    :raises InvalidRequest: there is such a version, or a column of the table has the name of a column of changes.
    """
    taken = [name for name in CHANGE_SCHEMA.names if name in newest.schema.names]
    if taken:
        raise InvalidRequest(
            f"Changes cannot be shown: the table has a column {taken[0]} of its own. Rename it (ALTER TABLE … RENAME COLUMN), or read the "
            "rows of two versions and compare them."
        )
    protocol, metadata = first.protocol, first.metadata
    _require_readable(first.version, protocol, metadata, newest)
    for version, found in actions.items():
        changed = [
            (action.protocol, action.metaData) for action in found if action.protocol or action.metaData
        ]
        for new_protocol, new_metadata in changed:
            protocol, metadata = new_protocol or protocol, new_metadata or metadata
        if changed:
            _require_readable(version, protocol, metadata, newest)


def _require_readable(version: int, protocol: Protocol, metadata: Metadata, newest: Snapshot) -> None:
    table_features.require(protocol, table_features.Operation.READ)
    mapped = mapping_mode(metadata.properties, protocol) != "none"
    schema = parse_schema(metadata.schemaString, mapped=mapped)
    columns = incompatible_columns(schema, newest.schema)
    if columns:
        raise InvalidRequest(
            f"The changes of versions up to {newest.version} cannot be shown in one schema: column {columns[0]} had another type in version "
            f"{version}, which its present type does not include. Read the changes in two ranges, before and after the version that "
            "changed the type."
        )


def _require_partition_values(
    first: Metadata, actions: Mapping[int, Sequence[Action]], commits: Iterable[CommitChanges]
) -> None:
    """Refuse removed files of a partitioned table without ``partitionValues``, which writers may leave out.

    :param first: metadata of the version before the range.
    :raises InvalidRequest: there is one.
    """
    metadata = first
    for commit in commits:
        unknown = next((rows for rows in commit.rows if rows.partition_values is None), None)
        if unknown is not None and metadata.partition_columns:
            raise InvalidRequest(
                f"Version {commit.version} removed {unknown.path} and does not state its partition values, so its rows cannot be shown. Begin "
                "with a later version, or read the rows of this version and of the version before, and compare them."
            )
        changed = (action.metaData for action in actions[commit.version] if action.metaData is not None)
        metadata = next(changed, metadata)


def read_changes(plan: ChangePlan, storage: Storage) -> pa.RecordBatchReader:
    """Return a reader of the changed rows, with the columns :attr:`ChangePlan.arrow_schema`."""
    reader = _ChangedFileReader(plan, storage)
    files = ((commit, rows) for commit in plan.commits for rows in commit.rows)
    batches = (batch for found in map_ordered(reader.open, files, _THREADS) for batch in found)
    return pa.RecordBatchReader.from_batches(plan.arrow_schema, batches)


class _ChangedFileReader(Struct, frozen=True):
    plan: ChangePlan
    storage: Storage

    def open(self, file: tuple[CommitChanges, ChangedRows]) -> Iterable[pa.RecordBatch]:
        """Read a small file whole; return an iterator over a large one, which reads it when asked.

        :raises ChangesGone: VACUUM has deleted the file.
        """
        commit, rows = file
        batches = self._batches(commit, rows)
        is_small = rows.size_bytes is not None and rows.size_bytes <= _SMALL_BYTES
        return list(batches) if is_small else batches

    def _batches(self, commit: CommitChanges, changed: ChangedRows) -> Iterator[pa.RecordBatch]:
        partition = self._partition(commit, changed)
        stored = [column for column in self.plan.schema if column.name not in partition]
        columns = stored if changed.change_type else [*stored, _CHANGE_TYPE_FIELD]
        data_file = self._data_file(commit, changed)
        for rows in data_file.read(columns, self._hidden(changed, data_file.num_rows)):
            if rows.count:
                yield self._batch(commit, changed, partition, stored, rows)

    def _data_file(self, commit: CommitChanges, changed: ChangedRows) -> DataFile:
        try:
            return DataFile(self.storage, changed.key, self.plan.mapping_mode)
        except CorruptLog as error:
            if isinstance(error.__cause__, FileNotFoundError):
                raise ChangesGone(self.storage.uri, commit.version, changed.path) from error
            raise

    def _hidden(self, changed: ChangedRows, num_rows: int) -> RowBitmap | None:
        """Return the rows of the file that were not changed."""
        hidden = None if changed.hidden is None else read_deletion_vector(changed.hidden, self.storage)
        if changed.chosen is None:
            return hidden
        chosen = read_deletion_vector(changed.chosen, self.storage)
        return RowBitmap(np.arange(num_rows)) - (chosen if hidden is None else chosen - hidden)

    def _partition(self, commit: CommitChanges, changed: ChangedRows) -> dict[str, pa.Scalar]:
        """Return the partition values by logical name.

        A file has partition values of the partition columns at its time. Its map names them.

        :raises InvalidPartitionValue: a text is no value of its column's type.
        """
        texts = changed.partition_values or {}
        return {
            column.name: _typed(column, texts[column.physical_name], changed.path, commit.version)
            for column in self.plan.schema
            if column.physical_name in texts
        }

    def _batch(
        self,
        commit: CommitChanges,
        changed: ChangedRows,
        partition: Mapping[str, pa.Scalar],
        stored: Sequence[StructField],
        rows: Rows,
    ) -> pa.RecordBatch:
        arrays = {column.name: array for column, array in zip(stored, rows.arrays, strict=False)}
        arrays |= {name: pa.repeat(value, rows.count) for name, value in partition.items()}
        if changed.change_type is not None:
            arrays[CHANGE_TYPE] = pa.repeat(pa.scalar(changed.change_type), rows.count)
        else:
            arrays[CHANGE_TYPE] = _recorded_types(rows.arrays[-1], changed.path)
        arrays[COMMIT_VERSION] = pa.repeat(pa.scalar(commit.version, pa.int64()), rows.count)
        moment = pa.scalar(commit.timestamp_ms * 1000, CHANGE_SCHEMA.field(COMMIT_TIMESTAMP).type)
        arrays[COMMIT_TIMESTAMP] = pa.repeat(moment, rows.count)
        schema = self.plan.arrow_schema
        return pa.record_batch([arrays[name] for name in schema.names], schema=schema)


def _typed(column: StructField, text: str | None, path: str, version: int) -> pa.Scalar:
    assert isinstance(column.type, PrimitiveType)
    try:
        return parse_column(pa.array([text], pa.string()), column.type, column.name)[0]
    except InvalidPartitionValue as error:
        raise error.of_file(path, version) from error


def _recorded_types(types: pa.Array, path: str) -> pa.Array:
    """
    :raises CorruptLog: a row has no change type, or one that the protocol does not know.
    """
    known = pc.is_in(types, value_set=pa.array(CHANGE_TYPES))
    if not pc.all(known).as_py():
        odd = types.filter(pc.invert(known))[0].as_py()
        raise CorruptLog(path, f"a row of this change data file has the {CHANGE_TYPE} {odd!r}")
    return types
