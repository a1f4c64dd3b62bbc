"""Reading a checkpoint of any kind: classic, multi-part, V2 with Parquet or JSON top file, with or without sidecars.

Protocol sections "Checkpoints" and "Sidecar Files". File actions leave this module as Arrow batches in the columns of
:mod:`delta_log.log.file_columns`: only the wanted columns are read, and no Python object is made per file. The few other
actions leave it as the values of :mod:`delta_log.log.actions`.

A reader that wants a few actions, or a few members of an action, passes over row groups and columns that hold none. It trusts the
counts of a row group only where they add up to one action in each row (:func:`is_counted`): counts that are wrong, and actions that
this package does not know, must not hide an action.

A checkpoint that cannot be read raises :class:`UnreadableCheckpoint`; the caller then tries an older one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np
import pyarrow as pa
from msgspec import Struct, field

from delta_log.errors import CorruptLog, StorageError
from delta_log.log.actions import (
    Action,
    DomainMetadata,
    Metadata,
    Protocol,
    SetTransaction,
    Sidecar,
    decode_actions,
)
from delta_log.log.data_path import address_of
from delta_log.log.file_columns import action_batch, canonical_batch, member_of
from delta_log.log.file_names import SIDECAR_DIRECTORY, LogFileKind
from delta_log.log.log_segment import Checkpoint
from delta_log.storage.storage import Storage
from parquet_parts import footer
from parquet_parts.thrift import CorruptThrift

if TYPE_CHECKING:
    import pyarrow.parquet as pq

from collections.abc import Container
from typing import TYPE_CHECKING

from parquet_parts.footer import ColumnChunk

if TYPE_CHECKING:
    import pyarrow.parquet as pq


#: A member that is present wherever its action is, for each action.
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


def is_counted(group: footer.RowGroup) -> bool:
    """Whether the counts of nulls of a row group show one known action in each row."""
    actions = 0
    for chunk in group.chunks:
        if chunk.dotted_path in _REQUIRED_LEAVES:
            nulls = chunk.null_count
            if nulls is None:
                return False
            actions += chunk.num_values - nulls
    return actions == group.num_rows


def may_hold(group: footer.RowGroup, actions: Container[str]) -> bool:
    """Whether a row group may hold one of these kinds of actions."""
    return any(path[0] in actions for path in _paths_with_values(group))


def members_with_values(groups: Iterable[footer.RowGroup], action: pa.Field) -> set[str]:
    """The members of an action that some row groups may hold.

    Most tables leave several members unused, and decoding an unused column takes as long as any other.

    :param action: the column of the action.
    """
    found = {
        path[1]
        for group in groups
        for path in _paths_with_values(group)
        if path[0] == action.name and len(path) > 1
    }
    return {
        member.name
        for member in action.type
        if member.name in found or member.name == "path" or not _shows_in_leaves(member.type)
    }


def count_values(group: footer.RowGroup, names: Sequence[str], schema: pq.ParquetSchema) -> int | None:
    """The number of values in all leaves of some columns, without nulls and repeated leaves.

    ``None``: the footer does not say. Every action has a leaf that is not repeated.

    :param schema: schema of the file.
    """
    total = 0
    for index, chunk in enumerate(group.chunks):
        if _path(chunk)[0] not in names or schema.column(index).max_repetition_level:
            continue
        nulls = chunk.null_count
        if nulls is None:
            return None
        total += chunk.num_values - nulls
    return total


def count_values_of(array: pa.Array) -> int:
    """What :func:`count_values` gives, for a column that was read."""
    if array.null_count == len(array) or pa.types.is_map(array.type) or pa.types.is_list(array.type):
        return 0
    if pa.types.is_struct(array.type):
        return sum(map(count_values_of, array.flatten()))
    found: int = len(array) - array.null_count
    return found


def _paths_with_values(group: footer.RowGroup) -> Iterator[list[str]]:
    """The leaves of a row group that may hold a value."""
    return (_path(chunk) for chunk in group.chunks if not chunk.is_null)


def _path(chunk: ColumnChunk) -> list[str]:
    return chunk.dotted_path.split(".")


def _shows_in_leaves(kind: pa.DataType) -> bool:
    """Whether a member without values in its leaves is null. An empty map is not null and has no leaves."""
    return (pa.types.is_struct(kind) and kind.names[:1] == ["storageType"]) or not pa.types.is_nested(kind)


_OTHER_ACTIONS = ("protocol", "metaData", "txn", "domainMetadata", "sidecar")
_BATCH_ROWS = 1 << 17
#: Batches that are compared and dropped at once are small enough for the processor's cache.
_ROW_GROUP_BATCH_ROWS = 1 << 14
_OTHERS_ROWS = 1 << 14
#: A file up to this size is fetched whole, and kept.
_SMALL_BYTES = 1 << 20
_PAGE_BYTES = 1 << 20


class UnreadableCheckpoint(CorruptLog):
    """A file of a checkpoint is missing or broken; ``path`` is the file, ``checkpoint_keys`` its checkpoint's files."""

    def __init__(self, path: str, why: str, checkpoint_keys: tuple[str, ...]) -> None:
        super().__init__(path, why)
        self.checkpoint_keys = checkpoint_keys


class OtherActions(Struct):
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


class RowGroup(Struct, frozen=True):
    """A row group of one of a checkpoint's Parquet files."""

    key: str
    index: int


class CheckpointReader:
    """Reads one checkpoint. The constructor reads the actions that are not about files.

    :ivar checkpoint: the checkpoint that is read.
    :ivar sidecar_keys: keys of its sidecars, in the order of ``other.sidecars``.
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
        self._row_groups: dict[str, list[footer.RowGroup]] = {}
        self._small: dict[str, pa.Buffer] = {}
        self.other = OtherActions()
        for file in checkpoint.files:
            if file.key.endswith(".json"):
                self._read_json(file.key)
            else:
                self._parquet_keys.append(file.key)
                for row in self._other_rows(file.key):
                    self.other.take(self._convert(row, file.key))
        for sidecar in self.other.sidecars:
            key = self._sidecar_key(sidecar, checkpoint.files[0].key)
            self._sizes[key] = sidecar.sizeInBytes
            self.sidecar_keys.append(key)
            self._parquet_keys.append(key)

    def batches(
        self, action: str, columns: Sequence[str], batch_rows: int = _BATCH_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """The ``add`` or ``remove`` actions, in some columns of ``ADD_SCHEMA`` or ``REMOVE_SCHEMA``."""
        if self._json_actions:
            found = [getattr(a, action) for a in self._json_actions if getattr(a, action) is not None]
            yield action_batch(action, found, columns)
        for key in self._parquet_keys:
            yield from self._parquet_batches(key, action, columns, batch_rows)

    @property
    def has_v2_content(self) -> bool:
        """Whether it is a V2 checkpoint by its content, which may stand under the name of a classic one."""
        if self.other.sidecars or self.checkpoint.files[0].kind is LogFileKind.UUID_CHECKPOINT:
            return True
        groups = [group for file in self.checkpoint.files for group in self._row_groups[file.key]]
        return any(may_hold(group, ("checkpointMetadata",)) for group in groups)

    @property
    def has_inline_files(self) -> bool:
        """Whether there are file actions outside of sidecars."""
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
        """What :meth:`batches` gives, from some of the Parquet files."""
        for key in keys:
            yield from self._parquet_batches(key, action, columns, batch_rows)

    def row_groups(self, keys: Iterable[str] | None = None) -> list[RowGroup]:
        """The row groups of some Parquet files (default: all of them), in order."""
        found = []
        for key in self._parquet_keys if keys is None else keys:
            with self._failing_as_unreadable(key):
                found += [RowGroup(key, index) for index in range(self._open(key).num_row_groups)]
        return found

    def row_group_batches(
        self, row_group: RowGroup, action: str, columns: Sequence[str]
    ) -> Iterator[pa.RecordBatch]:
        """What :meth:`batches` gives, from one row group. Several threads may read at once."""
        return self._parquet_batches(row_group.key, action, columns, _ROW_GROUP_BATCH_ROWS, row_group.index)

    def _sidecar_key(self, sidecar: Sidecar, top_key: str) -> str:
        """The key of a sidecar. Its path is a bare name, or leads to the directory of sidecars."""
        with self._failing_as_unreadable(top_key):
            relative = "/" not in sidecar.path
            address = address_of(
                sidecar.path, f"{self._storage.uri}/{SIDECAR_DIRECTORY}" if relative else self._storage.uri
            )
            key = f"{SIDECAR_DIRECTORY}/{address}" if relative else address
            if key.rpartition("/")[0] != SIDECAR_DIRECTORY:
                raise CorruptLog(top_key, f"its sidecar {sidecar.path!r} is not in {SIDECAR_DIRECTORY}")
            return key

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
            CorruptThrift,
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
        # Imported here: Arrow's Parquet brings all its file systems, and a short log has no checkpoint.
        import pyarrow.parquet as pq

        if key not in self._small and 0 < self._sizes.get(key, 0) <= _SMALL_BYTES:
            self._small[key] = pa.py_buffer(self._storage.read(key))
        source = pa.BufferReader(self._small[key]) if key in self._small else self._storage.open_read(key)
        # Only the wanted columns of a large file are fetched: in a few large requests from a store, page by page from
        # a disk.
        remote = key not in self._small and self._storage.concurrency > 1
        if key not in self._footers:
            end = footer.read_end(source)
            metadata = pq.read_metadata(pa.BufferReader(end))
            self._row_groups[key] = footer.Footer.from_end(end).row_groups_of(metadata.num_columns)
            self._footers[key] = metadata  # the last, since other threads look for it
        return pq.ParquetFile(
            source,
            metadata=self._footers[key],
            # Milliseconds tell the INT96 of Spark's parsed statistics from a timestamp without a zone.
            coerce_int96_timestamp_unit="ms",
            pre_buffer=remote,
            buffer_size=_PAGE_BYTES,
        )

    def _other_rows(self, key: str) -> Iterator[dict[str, Any]]:
        """The actions of a Parquet file that are not about files."""
        with self._failing_as_unreadable(key):
            parquet = self._open(key)
            present = [name for name in _OTHER_ACTIONS if name in parquet.schema_arrow.names]
            rows: list[dict[str, Any]] = []
            for number, group in enumerate(self._row_groups[key]):
                counted = is_counted(group)
                names = [name for name in present if not counted or may_hold(group, (name,))]
                if names:
                    remaining = count_values(group, names, parquet.schema) if counted else None
                    rows += _rows_of_group(parquet, number, names, remaining)
        yield from rows

    def _convert(self, row: dict[str, Any], key: str) -> Action:
        with self._failing_as_unreadable(key):
            return msgspec.convert(_without_nulls(row), Action, strict=False)

    def _parquet_batches(
        self, key: str, action: str, columns: Sequence[str], batch_rows: int, row_group: int | None = None
    ) -> Iterator[pa.RecordBatch]:
        with self._failing_as_unreadable(key):
            parquet = self._open(key)
            if action not in parquet.schema_arrow.names:
                return
            numbers = range(parquet.num_row_groups) if row_group is None else (row_group,)
            groups = [self._row_groups[key][number] for number in numbers]
            counted = all(is_counted(group) for group in groups)
            if counted and not any(may_hold(group, (action,)) for group in groups):
                return
            column = parquet.schema_arrow.field(action)
            present = members_with_values(groups, column) if counted else set(column.type.names)
            wanted = {"path", *(member_of(action, name) for name in columns)}
            if action == "add" and "stats" in wanted:
                wanted.add("stats_parsed")
            batches = parquet.iter_batches(
                batch_rows,
                row_groups=list(numbers),
                columns=[f"{action}.{member}" for member in wanted & present],
                use_threads=False,
            )
        while True:
            with self._failing_as_unreadable(key):
                batch = next(batches, None)
                if batch is None:
                    return
                canonical = canonical_batch(batch.column(action), action, columns, present)
                # Arrow does not check that texts of a Parquet file are UTF-8; code that decodes one would fail later.
                for column in canonical.columns:
                    _check_text(column)
            if canonical.num_rows:
                yield canonical


def _rows_of_group(
    parquet: pq.ParquetFile, group: int, names: Sequence[str], remaining: int | None
) -> Iterator[dict[str, Any]]:
    """The rows of a row group that have a value in one of these columns.

    They are few and mostly come first, so reading stops after the last of them.

    :param remaining: the result of :func:`~delta_log.log.checkpoint_reader.count_values` for the columns.
    """
    batches = parquet.iter_batches(_OTHERS_ROWS, row_groups=[group], columns=list(names), use_threads=False)
    for batch in batches:
        for name in names:
            column = batch.column(name)
            if remaining is not None:
                remaining -= count_values_of(column)
            for row in column.drop_null().to_pylist(maps_as_pydicts="lossy"):
                if _without_nulls(row):
                    yield {name: row}
        if remaining == 0:
            return


def _without_nulls(value: Any) -> Any:
    """Drop absent members, which Parquet spells as nulls; JSON leaves them out."""
    if isinstance(value, dict):
        return {k: _without_nulls(v) for k, v in value.items() if v is not None}
    return value


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
        # ASCII bytes are valid wherever texts begin and end. Looking for others takes a third of a full validation.
        if np.frombuffer(array.buffers()[2], np.int8).min(initial=0) < 0:
            array.validate(full=True)


__all__ = ["CheckpointReader", "OtherActions", "RowGroup", "UnreadableCheckpoint"]
