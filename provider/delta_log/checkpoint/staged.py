"""A checkpoint before it is published: it is encoded, counted, and read back as any reader will read it.

Protocol sections "V1 Spec", "V2 Spec" and "Sidecar Files". A classic checkpoint is one Parquet file. Its compressed
bytes (10 to 50 for each file of the table) stay in memory until they are put in one piece. The file actions of a V2
checkpoint go into sidecars, which no reader sees before the top file names them; sidecars of the checkpoint before that
are still right are named again (:mod:`delta_log.checkpoint.sidecar_reuse`).

File actions are streamed in groups, each of which becomes a row group or a sidecar. While one group is encoded, threads
decode and convert the next ones.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from typing import Any, Literal

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from delta_log.arrow.content_digest import ContentDigest
from delta_log.arrow.prefetch import map_stream
from delta_log.checkpoint.age_order import by_age
from delta_log.checkpoint.key_filter import KeyFilter
from delta_log.checkpoint.schema import CheckpointSchema, parquet_writer
from delta_log.checkpoint.sidecar_layout import SIDECAR_ACTIONS, OldSidecar
from delta_log.checkpoint.sidecar_reuse import SidecarReuse
from delta_log.checkpoint.sidecar_tags import SidecarTags, has_absolute
from delta_log.checkpoint.state import ADD_COLUMNS, COLUMNS, CheckpointState, FileAction
from delta_log.errors import InvalidRequest, vanished
from delta_log.log.actions import Action, Sidecar, encode_actions
from delta_log.log.checkpoint_reader import CheckpointReader, RowGroup
from delta_log.log.data_path import decode_paths
from delta_log.log.file_names import LOG_DIRECTORY, SIDECAR_DIRECTORY, LogFile, LogFileKind
from delta_log.log.log_segment import Checkpoint
from delta_log.runtime import Runtime
from delta_log.snapshot.counts import Counts
from delta_log.storage.storage import FileInfo, Storage
from delta_log.storage.wrapped import WrappedStorage

#: The format of a V2 checkpoint's first file.
TopFormat = Literal["json", "parquet"]
#: A group is at most so large, whatever the length of its actions.
_GROUP_BYTES = 64 << 20


class _Group(Struct, frozen=True):
    """Actions of one kind that become a row group or a sidecar."""

    action: FileAction
    batches: list[pa.RecordBatch]


class _Prepared(Struct, frozen=True):
    """A group in the columns of a checkpoint.

    :ivar digest: the digest of its actions as a reader will see them.
    """

    group: _Group
    rows: pa.Table
    digest: ContentDigest
    counts: Counts


class StagedCheckpoint(Struct):
    """A checkpoint that is published by putting ``body`` under ``key``.

    :ivar reuse: the sidecars to take over from the checkpoint before.
    :ivar group_actions: maximum number of actions in a sidecar or row group.
    :ivar in_age_order: whether files are sorted, see :mod:`delta_log.checkpoint.age_order`.
    :ivar actions: the number of rows, including the rows of sidecars.
    :ivar size_bytes: the size of all its files.
    :ivar counts: the counts of its live files; without their histogram where sidecars are taken over.
    :ivar top: the actions of a V2 checkpoint's first file except sidecars; empty for a classic checkpoint.
    :ivar _begun: keys of its own sidecars, in the order in which threads began them; ``_new`` in their final order.
    :ivar _digests: digests by row group, or by own sidecar.
    """

    state: CheckpointState
    schema: CheckpointSchema
    reuse: SidecarReuse | None = None
    group_actions: int = SIDECAR_ACTIONS
    in_age_order: bool = False
    key: str = ""
    body: bytes = b""
    actions: int = 0
    counts: Counts = field(default_factory=Counts)
    sidecars: list[Sidecar] = field(default_factory=list)
    top: tuple[Action, ...] = ()
    _begun: list[str] = field(default_factory=list)
    _new: list[str] = field(default_factory=list)
    _digests: list[tuple[FileAction, ContentDigest]] = field(default_factory=list)

    @property
    def size_bytes(self) -> int:
        return len(self.body) + sum(sidecar.sizeInBytes for sidecar in self.sidecars)

    @property
    def keys(self) -> tuple[str, ...]:
        return self.key, *(f"{SIDECAR_DIRECTORY}/{sidecar.path}" for sidecar in self.sidecars)

    @property
    def own_sidecar_keys(self) -> tuple[str, ...]:
        """Keys of the sidecars written so far; no other checkpoint names them, so they may be deleted."""
        return tuple(self._begun)

    def write_classic(self) -> None:
        self.key = f"{LOG_DIRECTORY}/{self.state.version:020d}.checkpoint.parquet"
        columns = self.schema.columns
        sink = io.BytesIO()
        with parquet_writer(sink, columns) as writer:
            others = self.schema.others(self.state.other_actions, columns)
            self.actions += others.num_rows
            writer.write_table(others)
            for prepared in map_stream(lambda group: self._prepared(group, columns), self._all_groups()):
                self._account(prepared)
                writer.write_table(prepared.rows, prepared.rows.num_rows)
        self.body = sink.getvalue()

    def write_v2(self, storage: Storage, runtime: Runtime, top_format: TopFormat = "json") -> None:
        stem = f"{self.state.version:020d}.checkpoint"

        def written(numbered: tuple[int, _Group | OldSidecar]) -> tuple[Sidecar, _Prepared | None]:
            number, part = numbered
            if isinstance(part, OldSidecar):
                return part.sidecar, None
            key = f"{SIDECAR_DIRECTORY}/{stem}.{number:010d}.{runtime.new_id()}.parquet"
            self._begun.append(key)
            prepared = self._prepared(part, self.schema.file_columns)
            return self._sidecar(storage, key, prepared), prepared

        parts = self._all_groups() if self.reuse is None else self._kept_and_groups(self.reuse)
        for sidecar, prepared in map_stream(written, enumerate(parts, 1)):
            self.sidecars.append(sidecar)
            if prepared is not None:
                self._account(prepared)
                self._new.append(f"{SIDECAR_DIRECTORY}/{sidecar.path}")
        if self.reuse is not None:
            for old in self.reuse.kept:
                self.actions += old.rows
                self.counts = self.counts.plus(self.reuse.tags(old).counts)
        self.key = f"{LOG_DIRECTORY}/{stem}.{runtime.new_id()}.{top_format}"
        first = Action(checkpointMetadata={"version": self.state.version})
        self.top = (first, *self.state.other_actions)
        lines = [first, *(Action(sidecar=sidecar) for sidecar in self.sidecars), *self.top[1:]]
        self.actions += len(lines)
        if top_format == "json":
            self.body = encode_actions(lines)
            return
        sink = io.BytesIO()
        with parquet_writer(sink, self.schema.top_columns) as writer:
            writer.write_table(self.schema.others(lines, self.schema.top_columns))
        self.body = sink.getvalue()

    def _all_groups(self) -> Iterator[_Group]:
        if self.in_age_order:
            files = by_age(self.state.adds, ADD_COLUMNS, self.group_actions)
        else:
            files = self.state.adds()
        yield from _in_groups("add", files, self.group_actions)
        yield from _in_groups("remove", self.state.removes(), self.group_actions)

    @staticmethod
    def _kept_and_groups(reuse: SidecarReuse) -> Iterator[_Group | OldSidecar]:
        for action, layout in reuse.layouts.items():
            for part in layout:
                if isinstance(part, OldSidecar):
                    yield part
                else:
                    yield from _in_groups(action, reuse.rows(action, part), part.sidecar_actions)

    def _prepared(self, group: _Group, columns: pa.Schema) -> _Prepared:
        digest, counts, rows = ContentDigest(), Counts(), []
        for batch in group.batches:
            if group.action == "add":
                made, as_read = self.schema.adds(batch, columns)
                counts = counts.plus(Counts.of(batch))
            else:
                made, as_read = self.schema.removes(batch, columns), batch
            digest.update(as_read)
            rows.append(made)
        return _Prepared(group, pa.Table.from_batches(rows), digest, counts)

    def _account(self, prepared: _Prepared) -> None:
        self.actions += prepared.rows.num_rows
        self.counts = self.counts.plus(prepared.counts)
        self._digests.append((prepared.group.action, prepared.digest))

    def _sidecar(self, storage: Storage, key: str, prepared: _Prepared) -> Sidecar:
        sink = io.BytesIO()
        with parquet_writer(sink, self.schema.file_columns) as writer:
            writer.write_table(prepared.rows, prepared.rows.num_rows)
            tags = self._tags(prepared, sink)
        with storage.open_write(key) as file:
            file.write(sink.getvalue())
        info = storage.head(key)
        if info is None:
            raise vanished(key)
        return Sidecar(info.name, info.size, info.modification_time_ms, tags.encode())

    def _tags(self, prepared: _Prepared, sink: io.BytesIO) -> SidecarTags:
        """The tags of a sidecar. Its key filter is written to ``sink``, behind the rows."""
        paths = pa.chunked_array([batch.column("path") for batch in prepared.group.batches])
        filter_ = None
        if not has_absolute(paths):
            uri = self.state.table_uri
            keys = pa.chunked_array([decode_paths(chunk, uri) for chunk in paths.chunks])
            encoded = KeyFilter.of(keys).encode()
            filter_ = sink.tell(), len(encoded)
            sink.write(encoded)
        deletions = None
        if prepared.group.action == "remove":
            times = [batch.column("deletion_timestamp") for batch in prepared.group.batches]
            bounds = pc.min_max(pc.fill_null(pa.chunked_array(times), 0)).as_py()
            deletions = bounds["min"], bounds["max"]
        counts = prepared.counts
        return SidecarTags(
            prepared.group.action,
            prepared.rows.num_rows,
            self.schema.form,
            prepared.digest.text(),
            counts.size_bytes,
            counts.deletion_vectors,
            counts.deleted_rows,
            deletions,
            filter_,
        )

    def differences(self, storage: Storage) -> tuple[str, ...]:
        """Read the checkpoint back, and name the kinds of actions that are not what was written.

        Sidecars that are taken over are not read: they were read back when they were written.

        :raises UnreadableCheckpoint: the checkpoint cannot be read.
        """
        kind = LogFileKind.UUID_CHECKPOINT if self.top else LogFileKind.CLASSIC_CHECKPOINT
        version = self.state.version
        info = FileInfo(self.key, self.key.rpartition("/")[2], len(self.body), 0)
        checkpoint = Checkpoint(version, (LogFile(kind, version, version, info),))
        reader = CheckpointReader(_Published(storage, self.key, self.body), checkpoint)
        found = self.state.differences(reader.other)
        if reader.other.sidecars != self.sidecars:
            found.append("sidecar")
        if self.top:
            groups = [reader.row_groups([key]) for key in self._new]
        else:
            groups = [[group] for group in reader.row_groups()[1:]]
        if len(groups) != len(self._digests):
            return (*found, "row groups")

        def same(expected: tuple[tuple[FileAction, ContentDigest], list[RowGroup]]) -> str | None:
            (action, digest), row_groups = expected
            for other, columns in COLUMNS.items():
                read = (
                    batch for group in row_groups for batch in reader.row_group_batches(group, other, columns)
                )
                if ContentDigest.of(read) != (digest if other == action else ContentDigest()):
                    return other
            return None

        wrong = set(map_stream(same, zip(self._digests, groups, strict=True))) - {None}
        return (*found, *(action for action in COLUMNS if action in wrong))


def _in_groups(action: FileAction, batches: Iterable[pa.RecordBatch], actions: int) -> Iterator[_Group]:
    """Divide rows into groups of so many actions; groups of long actions have fewer."""
    held: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        at = 0
        while at < batch.num_rows:
            part = batch.slice(at, actions - rows)
            # A group stays far below what one Arrow array of texts can hold.
            if held and (rows == actions or size_bytes + part.nbytes > _GROUP_BYTES):
                yield _Group(action, held)
                held, rows, size_bytes = [], 0, 0
                continue
            held.append(part)
            at, rows, size_bytes = at + part.num_rows, rows + part.num_rows, size_bytes + part.nbytes
    if held:
        yield _Group(action, held)


class _Published(WrappedStorage):
    """The store as it will be after publication; read-only."""

    def __init__(self, inner: Storage, key: str, body: bytes) -> None:
        super().__init__(inner)
        self._key, self._body = key, body

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        if key != self._key:
            return self._inner.read(key, start, length)
        return self._body[start : None if length is None else start + length]

    def open_read(self, key: str) -> Any:
        return pa.BufferReader(self._body) if key == self._key else self._inner.open_read(key)

    def read_many(self, keys: list[str]) -> Iterator[bytes]:
        if self._key not in keys:
            return self._inner.read_many(keys)
        return map(self.read, keys)

    def open_write(self, key: str) -> Any:
        raise self._refusal()

    def read_into(self, file: Any, key: str, start: int, length: int) -> int:
        raise self._refusal()

    def put(self, key: str, data: bytes) -> None:
        raise self._refusal()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        raise self._refusal()

    def delete(self, keys: Iterable[str]) -> None:
        raise self._refusal()

    def copy(self, source: str, target: str) -> bool:
        raise self._refusal()

    def remove_dir(self, directory: str) -> bool:
        raise self._refusal()

    def remove_leftovers(
        self, directories: Iterable[str], now_ms: int, *, dry_run: bool = False
    ) -> list[str]:
        raise self._refusal()

    def require_writable(self) -> None:
        raise self._refusal()

    def _refusal(self) -> InvalidRequest:
        return InvalidRequest(f"{self._key} is not published yet. It can only be read.")
