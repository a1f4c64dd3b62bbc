"""Reading a checkpoint of any kind: classic, multi-part, V2 with Parquet or JSON top file, with or without sidecars.

Protocol sections "Checkpoints" and "Sidecar Files". File actions leave this module as Arrow batches in the columns of
:data:`ADD_SCHEMA` and :data:`REMOVE_SCHEMA`, column-pruned at the source and never as a Python object per file; the
few other actions leave it as the values of :mod:`delta_log.log.actions`.

A checkpoint that cannot be read raises :class:`UnreadableCheckpoint`, upon which the caller takes an older one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from operator import attrgetter
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_log.errors import CorruptLog, StorageError
from delta_log.log.actions import (
    MAX_ROW_ID,
    Action,
    Add,
    DomainMetadata,
    Metadata,
    Protocol,
    Remove,
    SetTransaction,
    Sidecar,
    decode_actions,
)
from delta_log.log.data_path import address_of
from delta_log.log.file_names import SIDECAR_DIRECTORY
from delta_log.log.log_segment import Checkpoint
from delta_log.log.struct_stats import stats_of_struct
from delta_log.storage.storage import Storage

_STRINGS = pa.map_(pa.string(), pa.string())
DELETION_VECTOR = pa.struct(
    [
        ("storageType", pa.string()),
        ("pathOrInlineDv", pa.string()),
        ("offset", pa.int32()),
        ("sizeInBytes", pa.int32()),
        ("cardinality", pa.int64()),
        ("maxRowIndex", pa.int64()),
    ]
)

#: Our column, the protocol's member, its type. ``path`` is verbatim; times are ms since the epoch; sizes are bytes.
_ADD_MEMBERS = (
    ("path", "path", pa.string()),
    ("partition_values", "partitionValues", _STRINGS),
    ("size", "size", pa.int64()),
    ("modification_time", "modificationTime", pa.int64()),
    ("stats", "stats", pa.string()),
    ("tags", "tags", _STRINGS),
    ("deletion_vector", "deletionVector", DELETION_VECTOR),
    ("base_row_id", "baseRowId", pa.int64()),
    ("default_row_commit_version", "defaultRowCommitVersion", pa.int64()),
    ("clustering_provider", "clusteringProvider", pa.string()),
)
_REMOVE_MEMBERS = (
    ("path", "path", pa.string()),
    ("deletion_timestamp", "deletionTimestamp", pa.int64()),
    ("data_change", "dataChange", pa.bool_()),
    ("extended_file_metadata", "extendedFileMetadata", pa.bool_()),
    ("partition_values", "partitionValues", _STRINGS),
    ("size", "size", pa.int64()),
    ("tags", "tags", _STRINGS),
    ("deletion_vector", "deletionVector", DELETION_VECTOR),
    ("base_row_id", "baseRowId", pa.int64()),
    ("default_row_commit_version", "defaultRowCommitVersion", pa.int64()),
)

ADD_SCHEMA = pa.schema([(name, kind) for name, _, kind in _ADD_MEMBERS])
REMOVE_SCHEMA = pa.schema([(name, kind) for name, _, kind in _REMOVE_MEMBERS])
_MEMBERS = {
    "add": {name: (member, kind) for name, member, kind in _ADD_MEMBERS},
    "remove": {name: (member, kind) for name, member, kind in _REMOVE_MEMBERS},
}
#: Of the numbers of an ``add`` the lowest and the highest; those of JSON actions are in :mod:`delta_log.log.actions`.
_BOUNDS: dict[str, tuple[int, int]] = {
    "size": (0, (1 << 63) - 1),
    "base_row_id": (0, MAX_ROW_ID),
    "cardinality": (0, (1 << 63) - 1),
    "sizeInBytes": (0, (1 << 31) - 1),
    "offset": (0, (1 << 31) - 1),
}
_BATCH_ROWS = 1 << 17
#: What is read and dropped again at once stays near the processor.
_PIECE_ROWS = 1 << 14
_OTHERS_ROWS = 1 << 14
#: One of each action is there wherever the action is.
_REQUIRED_LEAVES = frozenset(
    {
        "add.path",
        "remove.path",
        "metaData.id",
        "protocol.minReaderVersion",
        "txn.appId",
        "domainMetadata.domain",
        "checkpointMetadata.version",
        "sidecar.path",
    }
)
#: A file up to this size is fetched whole, and kept.
_SMALL_BYTES = 1 << 20
_PAGE_BYTES = 1 << 20


class UnreadableCheckpoint(CorruptLog):
    """A file of a checkpoint is missing or broken; ``path`` is the file, ``checkpoint_keys`` its checkpoint's files."""

    def __init__(self, path: str, why: str, checkpoint_keys: tuple[str, ...]) -> None:
        super().__init__(path, why)
        self.checkpoint_keys = checkpoint_keys


@dataclass(slots=True)
class OtherActions:
    """All actions of a checkpoint that are not about files."""

    protocol: Protocol | None = None
    metadata: Metadata | None = None
    transactions: dict[str, SetTransaction] = field(default_factory=dict)
    domains: dict[str, DomainMetadata] = field(default_factory=dict)
    sidecars: list[Sidecar] = field(default_factory=list)

    def take(self, action: Action) -> None:
        if action.protocol is not None:
            self.protocol = action.protocol
        elif action.metaData is not None:
            self.metadata = action.metaData
        elif action.txn is not None:
            self.transactions[action.txn.appId] = action.txn
        elif action.domainMetadata is not None:
            self.domains[action.domainMetadata.domain] = action.domainMetadata
        elif action.sidecar is not None:
            self.sidecars.append(action.sidecar)


@dataclass(frozen=True, slots=True)
class Piece:
    """A row group of one of a checkpoint's Parquet files, which can be read by itself."""

    key: str
    row_group: int


class CheckpointReader:
    """Reads one checkpoint; its non-file actions are read once, when it is made.

    :ivar checkpoint: the one that is read.
    :ivar sidecar_keys: of its sidecars, in the order of ``other.sidecars``.
    """

    def __init__(self, storage: Storage, checkpoint: Checkpoint) -> None:
        self._storage = storage
        self.checkpoint = checkpoint
        self.sidecar_keys: list[str] = []
        self._json_actions: list[Action] = []
        self._parquet_keys: list[str] = []
        #: Sizes in bytes as the log states them, footers, and the contents of small files: nothing is fetched twice.
        self._sizes = {file.key: file.info.size for file in checkpoint.files}
        self._footers: dict[str, pq.FileMetaData] = {}
        self._small: dict[str, pa.Buffer] = {}
        self.other = OtherActions()
        for file in checkpoint.files:
            if file.key.endswith(".json"):
                self._read_json(file.key)
            else:
                self._parquet_keys.append(file.key)
                for raw in self._parquet_rows(
                    file.key, ("protocol", "metaData", "txn", "domainMetadata", "sidecar")
                ):
                    self.other.take(self._convert(raw, file.key))
        for sidecar in self.other.sidecars:
            key = self._sidecar_key(sidecar, checkpoint.files[0].key)
            self._sizes[key] = sidecar.sizeInBytes
            self.sidecar_keys.append(key)
            self._parquet_keys.append(key)

    def _sidecar_key(self, sidecar: Sidecar, top_key: str) -> str:
        """Mostly a bare name; a longer path has to end up in the one place for sidecars."""
        with self._failing_as_unreadable(top_key):
            relative = "/" not in sidecar.path
            address = address_of(
                sidecar.path, f"{self._storage.uri}/{SIDECAR_DIRECTORY}" if relative else self._storage.uri
            )
            key = f"{SIDECAR_DIRECTORY}/{address}" if relative else address
            if key.rpartition("/")[0] != SIDECAR_DIRECTORY:
                raise CorruptLog(top_key, f"its sidecar {sidecar.path!r} is not in {SIDECAR_DIRECTORY}")
            return key

    def batches(
        self, action: str, columns: Sequence[str], batch_rows: int = _BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """The ``add`` or ``remove`` actions, in the given columns of :data:`ADD_SCHEMA` or :data:`REMOVE_SCHEMA`."""
        if self._json_actions:
            found = [getattr(a, action) for a in self._json_actions if getattr(a, action) is not None]
            yield action_batch(action, found, columns)
        for key in self._parquet_keys:
            yield from self._parquet_batches(key, action, columns, batch_rows)

    @property
    def has_inline_files(self) -> bool:
        """Are there file actions outside of sidecars?"""
        if self._json_actions:
            return True
        return any(
            next(self._parquet_batches(file.key, action, ("path",), 1), None) is not None
            for file in self.checkpoint.files
            if file.key in self._parquet_keys
            for action in ("add", "remove")
        )

    def batches_of(
        self, keys: Iterable[str], action: str, columns: Sequence[str], batch_rows: int = _BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """What :meth:`batches` gives, of some Parquet files alone."""
        for key in keys:
            yield from self._parquet_batches(key, action, columns, batch_rows)

    def pieces(self, keys: Iterable[str] | None = None) -> list[Piece]:
        """The row groups of its Parquet files (or of some of them), in their order."""
        found = []
        for key in self._parquet_keys if keys is None else keys:
            with self._failing_as_unreadable(key):
                found += [Piece(key, group) for group in range(self._open(key).num_row_groups)]
        return found

    def piece(self, piece: Piece, action: str, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """What :meth:`batches` gives, of one row group. Several can be read at once."""
        return self._parquet_batches(piece.key, action, columns, _PIECE_ROWS, piece.row_group)

    def _read_json(self, key: str) -> None:
        with self._failing_as_unreadable(key):
            actions = decode_actions(self._storage.read(key), key)
        for action in actions:
            if action.add is not None or action.remove is not None:
                self._json_actions.append(action)
            else:
                self.other.take(action)

    @contextmanager
    def _failing_as_unreadable(self, key: str) -> Iterator[None]:
        try:
            yield
        except StorageError:
            raise  # the store is at fault, not the checkpoint
        except (
            CorruptLog,
            OSError,
            pa.ArrowException,
            ValueError,
            KeyError,
            TypeError,
            msgspec.MsgspecError,
        ) as error:
            keys = tuple(file.key for file in self.checkpoint.files)
            why = (
                error.why
                if isinstance(error, CorruptLog)
                else f"it cannot be read ({type(error).__name__}: {error})"
            )
            raise UnreadableCheckpoint(key, why, keys) from error

    def _open(self, key: str) -> pq.ParquetFile:
        if key not in self._small and 0 < self._sizes.get(key, 0) <= _SMALL_BYTES:
            self._small[key] = pa.py_buffer(self._storage.read(key))
        source = pa.BufferReader(self._small[key]) if key in self._small else self._storage.open_read(key)
        # Of a large file only the wanted columns are fetched: in a few large requests, or page by page from a disk.
        remote = key not in self._small and self._storage.concurrency > 1
        # Milliseconds tell the INT96 of Spark's parsed statistics from a timestamp without a zone.
        parquet = pq.ParquetFile(
            source,
            metadata=self._footers.get(key),
            coerce_int96_timestamp_unit="ms",
            pre_buffer=remote,
            buffer_size=_PAGE_BYTES,
        )
        self._footers[key] = parquet.metadata
        return parquet

    def _convert(self, raw: dict[str, Any], key: str) -> Action:
        with self._failing_as_unreadable(key):
            return msgspec.convert(_without_nulls(raw), Action, strict=False)

    def _parquet_rows(self, key: str, names: Sequence[str]) -> Iterator[dict[str, Any]]:
        with self._failing_as_unreadable(key):
            parquet = self._open(key)
            present = [name for name in names if name in parquet.schema_arrow.names]
            rows: list[dict[str, Any]] = []
            for group in range(parquet.num_row_groups):
                is_counted = _is_counted(parquet, group)
                held = [name for name in present if not is_counted or _may_hold(parquet, group, (name,))]
                if held:
                    left = _values(parquet, group, held) if is_counted else None
                    rows += _rows_of_group(parquet, group, held, left)
        yield from rows

    def _parquet_batches(
        self, key: str, action: str, columns: Sequence[str], batch_rows: int, row_group: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        with self._failing_as_unreadable(key):
            parquet = self._open(key)
            if action not in parquet.schema_arrow.names:
                return
            groups = range(parquet.num_row_groups) if row_group is None else (row_group,)
            is_counted = all(_is_counted(parquet, group) for group in groups)
            if is_counted and not any(_may_hold(parquet, group, (action,)) for group in groups):
                return
            everything = set(parquet.schema_arrow.field(action).type.names)
            there = _members_there(parquet, groups, action) if is_counted else everything
            members = [_MEMBERS[action][c][0] for c in columns]
            if "stats" in members and action == "add":
                members.append("stats_parsed")
            leaves = [f"{action}.{m}" for m in {"path", *members} if m in there]
            batches = parquet.iter_batches(
                batch_rows, row_groups=list(groups), columns=leaves, use_threads=False
            )
        while True:
            with self._failing_as_unreadable(key):
                batch = next(batches, None)
                if batch is None:
                    return
                canonical = _canonical(batch.column(action), action, columns, there)
                # Parquet promises UTF-8 and Arrow does not look; whoever turns it into text would meet the error.
                for column in canonical.columns:
                    _check_text(column)
            if canonical.num_rows:
                yield canonical


def _check_text(array: pa.Array) -> None:
    """:raises pyarrow.ArrowInvalid: some text, at any depth, is not UTF-8."""
    if array.null_count == len(array):
        return
    if pa.types.is_struct(array.type):
        for index in range(array.type.num_fields):
            _check_text(array.field(index))
    elif pa.types.is_map(array.type):
        _check_text(array.keys)
        _check_text(array.items)
    elif pa.types.is_string(array.type):
        # Bytes that are all ASCII are so however they are cut; looking at them at once costs a third of each text's check.
        if np.frombuffer(array.buffers()[2], np.int8).min(initial=0) < 0:
            array.validate(full=True)


def _rows_of_group(
    parquet: pq.ParquetFile, group: int, names: Sequence[str], left: int | None
) -> Iterator[dict[str, Any]]:
    """The few rows of a row group that have one of these columns, which mostly are its first: no more of it is read than
    up to the last of them.

    :param left: what :func:`_values` tells of the columns.
    """
    batches = parquet.iter_batches(_OTHERS_ROWS, row_groups=[group], columns=list(names), use_threads=False)
    for batch in batches:
        for name in names:
            column = batch.column(name)
            if left is not None:
                left -= _values_below(column)
            for row in column.drop_null().to_pylist(maps_as_pydicts="lossy"):
                if _without_nulls(row):
                    yield {name: row}
        if left == 0:
            return


def _values(parquet: pq.ParquetFile, group: int, names: Sequence[str]) -> int | None:
    """How many values other than null some columns have, all their leaves but repeated ones together; ``None``: the footer
    does not say. No action that is one consists of repeated members alone."""
    meta, total = parquet.metadata.row_group(group), 0
    for index in range(meta.num_columns):
        column, known = meta.column(index), parquet.schema.column(index)
        if column.path_in_schema.split(".")[0] not in names or known.max_repetition_level:
            continue
        stats = column.statistics if column.physical_type == known.physical_type else None
        if stats is None or not stats.has_null_count:
            return None
        total += column.num_values - stats.null_count
    return total


def _values_below(array: pa.Array) -> int:
    """What :func:`_values` counts, of a column that was read."""
    if array.null_count == len(array) or pa.types.is_map(array.type) or pa.types.is_list(array.type):
        return 0
    if pa.types.is_struct(array.type):
        return sum(map(_values_below, array.flatten()))
    found: int = len(array) - array.null_count
    return found


def _members_there(parquet: pq.ParquetFile, groups: Iterable[int], action: str) -> set[str]:
    """The members of an action that some row groups may hold: most tables have columns in which nothing is, and decoding
    their leaves takes as long as that of others."""
    held = {
        path[1]
        for group in groups
        for path in _paths_held(parquet, group)
        if path[0] == action and len(path) > 1
    }
    return {
        member.name
        for member in parquet.schema_arrow.field(action).type
        # An empty map is not null, and has no leaves.
        if member.name in held or member.name == "path" or not _is_told_by_leaves(member.type)
    }


def _is_told_by_leaves(kind: pa.DataType) -> bool:
    return (pa.types.is_struct(kind) and kind.names[:1] == ["storageType"]) or not pa.types.is_nested(kind)


def _is_counted(parquet: pq.ParquetFile, group: int) -> bool:
    """Whether a row group's counts of nulls tell of one action in every row. Where they do not, because they are wrong or
    because there are actions that nobody knows here, no action is passed over on their word."""
    meta, actions = parquet.metadata.row_group(group), 0
    for index in range(meta.num_columns):
        column = meta.column(index)
        if column.path_in_schema in _REQUIRED_LEAVES:
            sound = column.physical_type == parquet.schema.column(index).physical_type
            stats = column.statistics if sound else None
            if stats is None or not stats.has_null_count:
                return False
            actions += column.num_values - stats.null_count
    return bool(actions == meta.num_rows)


def _may_hold(parquet: pq.ParquetFile, group: int, names: Iterable[str]) -> bool:
    """Can a row group hold any non-null value of these columns, by its statistics?"""
    return any(path[0] in names for path in _paths_held(parquet, group))


def _paths_held(parquet: pq.ParquetFile, group: int) -> Iterator[list[str]]:
    """The leaves that a row group may hold non-null values of, by its statistics."""
    meta = parquet.metadata.row_group(group)
    for index in range(meta.num_columns):
        column = meta.column(index)
        # Of a damaged footer whose types disagree, Arrow's statistics end the process.
        sound = column.physical_type == parquet.schema.column(index).physical_type
        stats = column.statistics if sound else None
        if stats is None or not stats.has_null_count or stats.null_count < column.num_values:
            yield column.path_in_schema.split(".")


def _canonical(
    actions: pa.StructArray, action: str, columns: Sequence[str], there: set[str]
) -> pa.RecordBatch:
    path = pc.struct_field(actions, "path")
    if path.null_count:
        actions = actions.filter(pc.is_valid(path))
    arrays = []
    for name in columns:
        member, kind = _MEMBERS[action][name]
        if member in there:
            array = _cast(pc.struct_field(actions, member), kind)
            if array.null_count == len(array):
                array = shared_nulls(len(array), kind)
        else:
            array = shared_nulls(len(actions), kind)
        if action == "add":
            _check_numbers(name, array)
        if member == "stats" and "stats_parsed" in there and array.null_count:
            array = pc.coalesce(array, stats_of_struct(pc.struct_field(actions, "stats_parsed")))
        arrays.append(array)
    return pa.record_batch(arrays, schema=_schema(action, columns))


def _check_numbers(name: str, array: pa.Array) -> None:
    """:raises ValueError: a number of a column is none that it can be."""
    if name == "deletion_vector" and array.null_count < len(array):
        for member in ("cardinality", "sizeInBytes", "offset"):
            _check_numbers(member, pc.struct_field(array, member))
    if name in _BOUNDS:
        found, (lowest, highest) = pc.min_max(array).as_py(), _BOUNDS[name]
        wrong = [v for v in found.values() if v is not None and not lowest <= v <= highest]
        if wrong:
            raise ValueError(f"the {name} of a file is {wrong[0]}")


@cache
def _some_nulls(kind: pa.DataType) -> pa.Array:
    return pa.nulls(_BATCH_ROWS, kind)


def shared_nulls(count: int, kind: pa.DataType) -> pa.Array:
    """Nulls that share their memory: columns that a table does not use are many, and long."""
    return _some_nulls(kind).slice(0, count) if count <= _BATCH_ROWS else pa.nulls(count, kind)


def _cast(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if array.type == kind:
        return array
    if pa.types.is_struct(kind):
        there = {f.name for f in array.type}
        members = [
            _cast(pc.struct_field(array, f.name), f.type) if f.name in there else pa.nulls(len(array), f.type)
            for f in kind
        ]
        return pa.StructArray.from_arrays(members, fields=list(kind), mask=pc.is_null(members[0]))
    return array.cast(kind)


def _schema(action: str, columns: Sequence[str]) -> pa.Schema:
    return pa.schema([(name, _MEMBERS[action][name][1]) for name in columns])


def action_batch(
    action: str, items: Sequence[Add] | Sequence[Remove], columns: Sequence[str]
) -> pa.RecordBatch:
    """Decoded actions of the log's tail in the same columns as a checkpoint's."""
    arrays = []
    for name in columns:
        member, kind = _MEMBERS[action][name]
        values = list(map(attrgetter(member), items))
        if kind == _STRINGS:
            arrays.append(_maps(values))
        elif kind == DELETION_VECTOR:
            vectors = [None if vector is None else msgspec.structs.asdict(vector) for vector in values]
            arrays.append(pa.array(vectors, kind))
        else:
            arrays.append(pa.array(values, kind))
    return pa.record_batch(arrays, schema=_schema(action, columns))


def member_of(action: str, column: str) -> str:
    """What the protocol calls one of our columns."""
    return _MEMBERS[action][column][0]


def _maps(maps: Sequence[dict[str, Any] | None]) -> pa.MapArray:
    """Dictionaries as a column; some writers put other values than text into tags."""
    if not any(maps):
        return pa.array([None if entries is None else [] for entries in maps], _STRINGS)
    keys = [key for entries in maps if entries for key in entries]
    values = [value for entries in maps if entries for value in entries.values()]
    texts = [value if value is None or isinstance(value, str) else str(value) for value in values]
    ends = np.cumsum([0, *(len(entries) if entries else 0 for entries in maps)], dtype=np.int32)
    missing = np.array([entries is None for entries in maps])
    nulls = pa.array(missing) if missing.any() else None
    return pa.MapArray.from_arrays(
        pa.array(ends), pa.array(keys, pa.string()), pa.array(texts, pa.string()), mask=nulls
    )


def _without_nulls(value: Any) -> Any:
    """Parquet spells an absent member as null; JSON leaves it out."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return value


__all__ = [
    "ADD_SCHEMA",
    "REMOVE_SCHEMA",
    "CheckpointReader",
    "OtherActions",
    "UnreadableCheckpoint",
    "action_batch",
    "member_of",
    "shared_nulls",
]
