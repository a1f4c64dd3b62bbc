"""A checkpoint before it is published: written, accounted for, and read back as any reader will.

Protocol sections "V1 Spec", "V2 Spec" and "Sidecar Files". A classic checkpoint is one Parquet file, whose compressed
bytes (about 50 for each file of the table) are held until they are put in one piece; a V2 checkpoint's files go into
sidecars, which no reader sees before the top file names them. The files are streamed in either case.
"""

from __future__ import annotations

import io
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from delta_log.actions import Action, Sidecar, encode_actions
from delta_log.checkpoint import CheckpointReader
from delta_log.checkpoint_schema import CheckpointSchema, parquet_writer
from delta_log.checkpoint_state import (
    ADD_COLUMNS,
    REMOVE_COLUMNS,
    CheckpointState,
    complete_adds,
    fingerprint_of,
)
from delta_log.errors import CorruptLog, InvalidRequest
from delta_log.file_actions import Counts
from delta_log.fingerprint import Fingerprint
from delta_log.log_path import LOG_DIRECTORY, SIDECAR_DIRECTORY, LogFile, LogFileKind
from delta_log.log_segment import Checkpoint
from delta_log.runtime import Runtime
from delta_log.storage import EnterDirectories, FileInfo, Storage, TreePage

#: Of one sidecar, and of one row group; fewer where they are long.
SIDECAR_ACTIONS = 50_000
_SIDECAR_BYTES = 64 << 20


@dataclass(slots=True)
class CheckpointDraft:
    """What is to be published: ``body`` under ``key``.

    :ivar actions: rows, those of sidecars included.
    :ivar size_bytes: of all files.
    :ivar counts: of the live files that went into it.
    :ivar top: of a V2 checkpoint everything but sidecars; empty for a classic one.
    """

    state: CheckpointState
    schema: CheckpointSchema
    key: str = ""
    body: bytes = b""
    actions: int = 0
    counts: Counts = field(default_factory=Counts)
    sidecars: list[Sidecar] = field(default_factory=list)
    top: tuple[Action, ...] = ()
    _adds: Fingerprint = field(default_factory=Fingerprint)
    _removes: Fingerprint = field(default_factory=Fingerprint)

    @property
    def size_bytes(self) -> int:
        return len(self.body) + sum(sidecar.sizeInBytes for sidecar in self.sidecars)

    @property
    def keys(self) -> tuple[str, ...]:
        return self.key, *self.sidecar_keys

    @property
    def sidecar_keys(self) -> tuple[str, ...]:
        return tuple(f"{SIDECAR_DIRECTORY}/{sidecar.path}" for sidecar in self.sidecars)

    def write_classic(self) -> None:
        self.key = f"{LOG_DIRECTORY}/{self.state.version:020d}.checkpoint.parquet"
        columns = self.schema.columns
        sink = io.BytesIO()
        with parquet_writer(sink, columns) as writer:
            others = self.schema.others(self.state.other_actions)
            self.actions += others.num_rows
            writer.write_table(others)
            for batch in self._file_batches(columns):
                writer.write_batch(batch)
        self.body = sink.getvalue()

    def write_v2(self, storage: Storage, runtime: Runtime) -> None:
        stem = f"{self.state.version:020d}.checkpoint"
        columns = self.schema.file_columns
        for batch in self._file_batches(columns):
            name = f"{stem}.{len(self.sidecars) + 1:010d}.{runtime.new_id()}.parquet"
            key = f"{SIDECAR_DIRECTORY}/{name}"
            with storage.open_write(key) as sink, parquet_writer(sink, columns) as writer:
                writer.write_batch(batch)
            info = storage.head(key)
            if info is None:
                raise CorruptLog(key, "it was written a moment ago and is not there any more")
            self.sidecars.append(Sidecar(name, info.size, info.modification_time_ms))
        self.key = f"{LOG_DIRECTORY}/{stem}.{runtime.new_id()}.json"
        first = Action(checkpointMetadata={"version": self.state.version})
        self.top = (first, *self.state.other_actions)
        lines = [first, *(Action(sidecar=sidecar) for sidecar in self.sidecars), *self.top[1:]]
        self.actions += len(lines)
        self.body = encode_actions(lines)

    def _file_batches(self, columns: pa.Schema) -> Iterator[pa.RecordBatch]:
        """All file actions in some columns, accounted for; live files and tombstones apart."""
        for files in _in_groups(self.state.adds()):
            batch, as_read = self.schema.adds(files, columns)
            self.counts = self.counts.plus(Counts.of(files))
            self._adds = self._adds.plus(Fingerprint.of(as_read))
            self.actions += batch.num_rows
            yield batch
        for tombstones in _in_groups(self.state.removes()):
            self._removes = self._removes.plus(Fingerprint.of(tombstones))
            self.actions += tombstones.num_rows
            yield self.schema.removes(tombstones, columns)

    def differences(self, storage: Storage) -> tuple[str, ...]:
        """Read it as if it were published: the actions in which it is not what went into it.

        :raises UnreadableCheckpoint: it cannot be read at all.
        """
        kind = LogFileKind.UUID_CHECKPOINT if self.top else LogFileKind.CLASSIC_CHECKPOINT
        version = self.state.version
        info = FileInfo(self.key, self.key.rpartition("/")[2], len(self.body), 0)
        checkpoint = Checkpoint(version, (LogFile(kind, version, version, info),))
        reader = CheckpointReader(_Published(storage, self.key, self.body), checkpoint)
        found = self.state.differences(reader.other)
        if fingerprint_of(map(complete_adds, reader.batches("add", ADD_COLUMNS))) != self._adds:
            found.append("add")
        if fingerprint_of(reader.batches("remove", REMOVE_COLUMNS)) != self._removes:
            found.append("remove")
        return tuple(found)


def _in_groups(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same rows in batches of :data:`SIDECAR_ACTIONS`, the last one shorter, and all within a bound of bytes."""
    held: list[pa.RecordBatch] = []
    rows = size_bytes = 0
    for batch in batches:
        at = 0
        while at < batch.num_rows:
            part = batch.slice(at, SIDECAR_ACTIONS - rows)
            # Together they stay far below what one Arrow array of texts can hold.
            if held and (rows == SIDECAR_ACTIONS or size_bytes + part.nbytes > _SIDECAR_BYTES):
                yield _one(held)
                held, rows, size_bytes = [], 0, 0
                continue
            held.append(part)
            at, rows, size_bytes = at + part.num_rows, rows + part.num_rows, size_bytes + part.nbytes
    if held:
        yield _one(held)


def _one(batches: list[pa.RecordBatch]) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches).combine_chunks().to_batches()[0]


class _Published(Storage):
    """A store as it will be once a draft is published; for reading only."""

    def __init__(self, inner: Storage, key: str, body: bytes) -> None:
        self.uri, self.concurrency = inner.uri, inner.concurrency
        self._inner, self._key, self._body = inner, key, body

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        if key != self._key:
            return self._inner.read(key, start, length)
        return self._body[start : None if length is None else start + length]

    def open_read(self, key: str) -> Any:
        return pa.BufferReader(self._body) if key == self._key else self._inner.open_read(key)

    def head(self, key: str) -> FileInfo | None:
        return self._inner.head(key)

    def list_from(self, directory: str, start_name: str = "") -> Iterator[FileInfo]:
        return self._inner.list_from(directory, start_name)

    def list_tree(self, enter: EnterDirectories) -> Iterator[TreePage]:
        return self._inner.list_tree(enter)

    def open_write(self, key: str) -> Any:
        raise self._refusal()

    def put(self, key: str, data: bytes) -> None:
        raise self._refusal()

    def put_if_absent(self, key: str, data: bytes) -> bool:
        raise self._refusal()

    def delete(self, keys: Iterable[str]) -> None:
        raise self._refusal()

    def require_writable(self) -> None:
        raise self._refusal()

    def _refusal(self) -> InvalidRequest:
        return InvalidRequest(f"{self._key} is not published yet, and its draft is only read.")
