"""Opens the sources of a bin to copy row groups from them: reads their footers, and decides what may be copied.

The new file stores all columns in one way, so row groups fit only if their file does the same. A decimal may be stored in two
ways, and the larger file of the bin decides which of them the new file takes.
"""

from __future__ import annotations

import threading
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from delta_log.errors import CorruptLog
from delta_log.log.data_path import is_external
from delta_log.storage.storage import READ_AHEAD_BYTES, Storage
from delta_maintenance.rewrite.copy.copy_rules import (
    NO_FOOTER,
    OTHER_SIZE,
    CopyDecision,
    CopyRules,
    against_source,
    stores_alike,
)
from delta_maintenance.rewrite.encode.encoded_part import empty_footer
from delta_maintenance.rewrite.encode.writer_settings import WriterSettings
from delta_maintenance.rewrite.limits import COPY_AHEAD_BYTES, COPY_GAP_BYTES, FOOTER_BYTES, LARGE_BYTES
from delta_maintenance.rewrite.task import RewriteTask, SourceFile
from parquet_parts.assembled_file import Sink
from parquet_parts.footer import END_BYTES, Footer, footer_length
from parquet_parts.schema_elements import FIXED_LENGTH, leaves_of
from parquet_parts.thrift import CorruptThrift


class StoredFile(Struct, frozen=True):
    """The bytes of a file in storage.

    :param size_bytes: size that the log states.
    :param tail: the last bytes, which are read already.
    """

    storage: Storage
    key: str
    size_bytes: int
    tail: bytes

    def read(self, start: int, length: int) -> bytes:
        offset = start - (self.size_bytes - len(self.tail))
        if offset >= 0:
            return self.tail[offset : offset + length]
        with self._still_there():
            return self.storage.read(self.key, start, length)

    def copy_to(self, sink: Sink, start: int, length: int) -> None:
        """Write bytes to a new file of the same storage.

        :raises CorruptLog: the file was cut or deleted since it was opened.
        """
        if start >= self.size_bytes - len(self.tail):
            data = self.read(start, length)
            sink.write(data)
            copied = len(data)
        else:
            with self._still_there():
                copied = self.storage.read_into(sink, self.key, start, length)  # type: ignore[arg-type]
        if copied != length:
            raise CorruptLog(
                self.key,
                f"only {copied} of {length} bytes from {start} on are there, so it was cut meanwhile",
            )

    @contextmanager
    def _still_there(self) -> Iterator[None]:
        try:
            yield
        except FileNotFoundError as error:
            raise CorruptLog(
                self.key, "the log names this data file, but it was deleted meanwhile"
            ) from error


class ReadAhead:
    """Reads parts of a file in their order with few requests. Parts with little between them are read together.

    :param parts: offset and length of each.
    :param ahead_bytes: most bytes of a request, unless one part is longer.
    :param gap_bytes: most bytes between two parts that are read together.
    """

    def __init__(
        self,
        file: StoredFile,
        parts: Iterable[tuple[int, int]],
        ahead_bytes: int = COPY_AHEAD_BYTES,
        gap_bytes: int = COPY_GAP_BYTES,
    ) -> None:
        self._file, self._ahead_bytes = file, ahead_bytes
        #: The ends of parts behind which much lies that is not wanted.
        self._ends: list[int] = []
        for start, length in sorted(parts):
            if self._ends and start - self._ends[-1] <= gap_bytes:
                self._ends.pop()
            self._ends.append(start + length)
        self._start, self._content = 0, b""

    def read(self, start: int, length: int) -> bytes:
        offset = start - self._start
        if not 0 <= offset <= len(self._content) - length:
            end = self._ends[bisect_left(self._ends, start + length)]
            self._content = self._file.read(start, max(length, min(self._ahead_bytes, end - start)))
            self._start, offset = start, 0
        return self._content[offset : offset + length]


class CopiedFile(Struct, frozen=True):
    """A source from which row groups are copied."""

    file: StoredFile
    footer: Footer
    copies: CopyDecision


class CopiedFiles(Struct):
    """Opens the sources of a task. Several threads may do so at once.

    :param rules: rules that judge the footers.
    """

    task: RewriteTask
    storage: Storage
    rules: CopyRules
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def like(self) -> Footer:
        """A footer with the columns as the new file stores them."""
        return self.rules.like

    def open(self, source: SourceFile) -> CopiedFile | str:
        """Open a source, or say why nothing of it is copied.

        A file that is missing, broken, or not as long as the log says is decoded, which tells what is wrong with it.
        """
        against = against_source(self.task, source)
        if against is not None:
            return against
        if is_external(source.key):
            return NO_FOOTER
        try:
            tail = read_tail(self.storage, source)
            if tail is None:
                return OTHER_SIZE
            with self._lock:
                footer = Footer.from_end(tail)
                data_end = source.size_bytes - footer_length(tail[-END_BYTES:]) - END_BYTES
                copies = self.rules.judge(footer, data_end)
        except (CorruptThrift, FileNotFoundError):
            return NO_FOOTER
        if all(copies.reasons):
            return next((reason for reason in copies.reasons if reason is not None), NO_FOOTER)
        return CopiedFile(StoredFile(self.storage, source.key, source.size_bytes, tail), footer, copies)


def copied_files_of(
    task: RewriteTask, storage: Storage, schema: pa.Schema, num_row_ids: int, settings: WriterSettings
) -> tuple[WriterSettings, CopiedFiles]:
    """Prepare copying. Return the settings of the new file, and what opens the sources.

    :param schema: schema of the new file.
    :param num_row_ids: how many of its last columns keep row ids and versions.
    """
    like = None
    with suppress(CorruptThrift):
        example = _example(task, storage)
        if example is not None and _has_fixed_lengths(example):
            # Another way to store decimals is worth it only if row groups can be copied then.
            others = replace(settings, decimals_as_integers=False)
            like = empty_footer(schema, others)
            settings, like = (others, like) if stores_alike(example, like) else (settings, None)
    like = like or empty_footer(schema, settings)
    return settings, CopiedFiles(task, storage, CopyRules.of(task, like, num_row_ids))


def _has_fixed_lengths(footer: Footer) -> bool:
    """Tell whether a file has values of a fixed number of bytes, as decimals may be stored."""
    return any(leaf.physical_type == FIXED_LENGTH for leaf in leaves_of(footer.schema))


def _example(task: RewriteTask, storage: Storage) -> Footer | None:
    """Read the footer of the largest file that may be copied; ``None`` if there is none.

    :raises CorruptThrift: it is malformed.
    """
    sources = [source for source in task.sources if against_source(task, source) is None]
    largest = max(sources, key=lambda source: source.size_bytes, default=None)
    if largest is None or is_external(largest.key):
        return None
    if task.rewrite == "auto" and largest.size_bytes < LARGE_BYTES:
        return None
    try:
        tail = read_tail(storage, largest)
    except FileNotFoundError:
        return None
    return None if tail is None else Footer.from_end(tail)


def read_tail(storage: Storage, source: SourceFile) -> bytes | None:
    """Read the end of a file with its whole footer; ``None`` if the file has another length.

    :raises CorruptThrift: it does not end with a plain footer.
    """
    wanted = READ_AHEAD_BYTES if storage.concurrency > 1 else FOOTER_BYTES
    for _ in range(2):
        wanted = min(wanted, source.size_bytes)
        # One byte more would be there if the file were longer.
        tail = storage.read(source.key, source.size_bytes - wanted, wanted + 1)
        if len(tail) != wanted:
            return None
        needed = footer_length(tail[-END_BYTES:]) + END_BYTES
        if needed <= wanted:
            return tail
        wanted = needed
    raise CorruptThrift(0, "the footer is longer than the file")
