"""Writes the new files of a bin: one, or several where the task splits a large file or asks for a layout.

Without a layout, rows are written in the order in which they come, and a file ends when it has its share of them. In the end either
all files of a bin exist, or none.

Threads encode segments of the rows side by side (:mod:`delta_maintenance.rewrite.read.segment_pool`). The caller's thread opens the
sources, and puts the encoded parts behind each other. Memory holds the decoded rows of one segment for each thread, and the
encoded parts that wait for their turn, whatever the size of the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from itertools import groupby
from typing import IO, TYPE_CHECKING, TypeAlias
from uuid import uuid4

import pyarrow as pa
from msgspec import Struct

from delta_log.arrow.row_hash import RowHash
from delta_log.data.data_file import DataFile
from delta_log.errors import DeltaLogError, StorageError
from delta_log.log.data_path import encode_path, hive_directory
from delta_log.stats.file_stats import StatsCollector
from delta_log.storage.storage import FileInfo, Storage
from delta_log.table_config.schema import parse_schema
from delta_maintenance.layout.ranks import Uint64s
from delta_maintenance.rewrite.copied_part import CopiedPart, CopyScan
from delta_maintenance.rewrite.copy.copied_stats import CopiedStats, unknown_floats
from delta_maintenance.rewrite.encode.encoded_part import EncodedPart, PartEncoder
from delta_maintenance.rewrite.encode.spark_metadata import spark_metadata
from delta_maintenance.rewrite.encode.writer_notes import own_notes
from delta_maintenance.rewrite.encode.writer_settings import WriterSettings
from delta_maintenance.rewrite.manifest.row_map import RowMapWriter
from delta_maintenance.rewrite.read.row_reader import LiveRows
from delta_maintenance.rewrite.read.segment_pool import SegmentPool
from delta_maintenance.rewrite.read.segments import Segment, segments
from delta_maintenance.rewrite.read.sources import Sources, SourceSlice
from delta_maintenance.rewrite.task import OutputFile, RewriteTask, RowMap
from parquet_parts.assembled_file import AssembledFile

if TYPE_CHECKING:
    from delta_maintenance.rewrite.sort.laid_out_rows import LaidOutRows
    from delta_maintenance.rewrite.sort.shuffled_file import ReceivedFile

#: Called with the bytes of each source after its rows were written.
OnProgress = Callable[[int], None]

#: Encoded parts that may wait for their turn while the threads work on others.
_PARTS_AHEAD = 1
#: Encoding so few bytes takes less time than another thread needs to begin.
_LITTLE_BYTES = 1 << 20
#: The first files tell which leaves have Bloom filters: asking every file would cost time, and most are written alike.
_ASKED_FOR_BLOOM_FILTERS = 8


#: Of a name in a file system, and of a key in an object store.
_LONGEST_NAME_BYTES, _LONGEST_KEY_BYTES = 255, 1_024


class Outputs(Struct, frozen=True):
    """The files that were written.

    :param read: the checksum of the rows that went in, if the task asks for ``verify="full"``.
    :param bytes_copied: of the row groups that were copied.
    :param row_map: if the task asks for one.
    """

    files: tuple[OutputFile, ...]
    rows: int
    read: RowHash
    bytes_copied: int = 0
    row_map: RowMap | None = None


#: What a thread does for a part.
_Result: TypeAlias = EncodedPart | CopyScan


class _Work(Struct, frozen=True):
    """A segment of the rows that a thread has to encode, or row groups to copy.

    :param file: the number of the new file that the rows belong to.
    :param sources_done: bytes of each source whose rows end with this segment.
    :param copied: the row groups to copy; their rows are needed for a checksum only.
    :param numbers: returns what the row map says of these rows.
    """

    file: int
    batches: Callable[..., Iterable[pa.RecordBatch]]
    bloom_filters: frozenset[str]
    sources_done: tuple[int, ...]
    copied: SourceSlice | None = None
    numbers: Callable[[], Uint64s] | None = None


class _Written(Struct, frozen=True):
    """A new file.

    :param described: the file, if the store took it by one request; ``None``: the store has to be asked.
    """

    key: str
    size_bytes: int
    stats: StatsCollector
    described: FileInfo | None


def write_outputs(
    task: RewriteTask,
    sources: Sources,
    live: LiveRows,
    settings: WriterSettings,
    pool: SegmentPool,
    on_progress: OnProgress | None = None,
    received: ReceivedFile | None = None,
) -> Outputs:
    """Write all rows. A bin without rows has no file.

    :param live: reads the sources.
    :param pool: encodes segments.
    :param received: the rows of one of the files, if other processes have read the sources. Then only this file is written.
    """
    storage, key_values = sources.storage, {**spark_metadata(live.columns), **own_notes(settings.codec)}
    like = sources.copied_files.like if sources.copied_files is not None else None
    bytes_copied = 0
    written: list[_Written] = []
    read = RowHash()
    laid_out = _laid_out_rows(task, sources, live, settings, pool) if received is None else None
    work, ahead = _work_of(task, sources, live, settings, pool, received, laid_out, on_progress)

    # A layout has hashed the rows before it moved them.
    moved = received or laid_out
    hashes_rows = task.verify == "full" and moved is None

    def encoded(part: _Work) -> _Result:
        if part.copied is not None:
            return _read_of_copied(task, live, settings, part.copied, part.batches)
        encoder = PartEncoder(live.schema, settings, part.bloom_filters, hashes_rows=hashes_rows)
        return encoder.encode(part.batches(dictionaries=encoder.dictionaries))

    with moved or contextlib.nullcontext(), contextlib.ExitStack() as undo:
        # Closed here, not when an error of the bin is forgotten, since threads open sources for it.
        undo.enter_context(contextlib.closing(work))
        parts = undo.enter_context(
            contextlib.closing(pool.begun_in_order(encoded, work, ahead, partial(_is_little, task)))
        )
        row_map = undo.enter_context(
            RowMapWriter(storage, task.run_id, task.bin_id, uuid4().hex, sources.source_rows)
        )
        for _, of_one_file in groupby(_with_rows(parts, on_progress), lambda part: part[0].file):
            key = output_key(task)
            # Registered first, since a file may exist although closing it failed.
            undo.callback(_remove, storage, key)
            stats, copied = settings.new_stats(), CopiedStats(settings.new_stats(), live.schema)
            with _new_file(storage, key, sources) as file:
                target = AssembledFile(file, like)
                for done, part, result in of_one_file:
                    if isinstance(part, CopiedPart):
                        # The threads read while the bytes are copied.
                        part.append_to(target, partial(_as_read, result))
                        found = _as_read(result)
                        bytes_copied += part.num_bytes
                        part.add_stats_to(copied, found)
                        read = read.plus(found.rows)
                    else:
                        part.append_to(target)
                        stats.include(part.stats)
                        read = read.plus(part.read)
                    if done.numbers is not None:
                        row_map.add(done.numbers())
                target.finish(key_values)
            stats.include(copied.finish())
            written.append(_Written(key, target.size_bytes, stats, getattr(file, "described", None)))
        where_rows_went = row_map.finish()
        files = tuple(_output(task, storage, file) for file in written)
        undo.pop_all()
    rows = sum(file.stats.num_records for file in written)
    hashed = read if moved is None else moved.read
    return Outputs(files, rows, hashed, bytes_copied, where_rows_went)


@contextlib.contextmanager
def _new_file(storage: Storage, key: str, sources: Sources) -> Iterator[IO[bytes]]:
    with storage.open_write(key) as file:
        if sources.copied_files is not None and any(map(sources.asks_footer_first, sources.task.sources)):
            storage.expect_copies(file)
        yield file


def _laid_out_rows(
    task: RewriteTask, sources: Sources, live: LiveRows, settings: WriterSettings, pool: SegmentPool
) -> LaidOutRows | None:
    if task.layout is None:
        return None
    # Imported here: most bins have no layout.
    from delta_maintenance.rewrite.sort.laid_out_rows import LaidOutRows

    return LaidOutRows(task, sources, live, settings.row_group_bytes, pool)


def _work_of(
    task: RewriteTask,
    sources: Sources,
    live: LiveRows,
    settings: WriterSettings,
    pool: SegmentPool,
    received: ReceivedFile | None,
    laid_out: LaidOutRows | None,
    on_progress: OnProgress | None,
) -> tuple[Generator[_Work, None, None], int]:
    """Return the work for the threads, and how many parts are begun before the first one is asked for."""
    ahead = pool.threads + _PARTS_AHEAD
    if received is not None:
        return _received(received), ahead
    if laid_out is not None:
        return _laid_out(laid_out, on_progress), ahead
    if task.num_outputs > 1:
        # The caller's thread decodes while one thread encodes.
        return _pieces(task, sources, live, settings.row_group_bytes), 1
    return _segments(task, sources, live, settings.row_group_bytes, pool.threads), ahead


def _read_of_copied(
    task: RewriteTask,
    live: LiveRows,
    settings: WriterSettings,
    part: SourceSlice,
    batches: Callable[[], Iterable[pa.RecordBatch]],
) -> CopyScan:
    """Read what is needed beside the bytes of row groups: a checksum of the rows, and the bounds of floats."""
    found = RowHash()
    if task.verify == "full":
        for batch in batches():
            found = found.plus(RowHash.of(batch))
    if task.rewrite != "auto":
        # Who asks for copies whatever their size wants them cheap, and has no bounds of these columns.
        return CopyScan(found)
    assert part.opened.copied is not None
    distrust = part.opened.copied.copies.distrust
    unknown = unknown_floats(settings.stats_columns, live.schema, distrust) if distrust.bounds else {}
    true_floats = CopiedPart(part).true_floats(unknown) if unknown else frozenset()
    columns = [column for number, column in unknown.items() if number not in true_floats]
    floats = StatsCollector(columns) if columns else None
    if floats is not None:
        for batch in live.columns_of(part, {column.path[0] for column in columns}):
            floats.update(batch)
    return CopyScan(found, floats, true_floats)


def _is_little(task: RewriteTask, part: _Work) -> bool:
    if part.copied is not None:
        return not _reads_copied(task)
    return task.bytes_in <= _LITTLE_BYTES


def _reads_copied(task: RewriteTask) -> bool:
    return task.verify == "full" or task.rewrite == "auto"


def _as_read(result: Future[_Result]) -> CopyScan:
    found = result.result()
    assert isinstance(found, CopyScan)
    return found


def _with_rows(
    parts: Iterable[tuple[_Work, Future[_Result]]], on_progress: OnProgress | None
) -> Iterator[tuple[_Work, EncodedPart | CopiedPart, Future[_Result]]]:
    """Leave out parts without rows. Report the sources of a part when the next one is asked for."""
    for work, result in parts:
        part = CopiedPart(work.copied) if work.copied is not None else result.result()
        assert not isinstance(part, CopyScan)
        if part.num_rows:
            yield work, part, result
        if on_progress is not None:
            for size_bytes in work.sources_done:
                on_progress(size_bytes)


def _segments(
    task: RewriteTask, sources: Sources, live: LiveRows, row_group_bytes: int, threads: int
) -> Generator[_Work, None, None]:
    """Divide the sources of one new file. The threads that encode read them, too."""
    for segment in segments(sources, task.bytes_in, row_group_bytes, threads):
        done = _done(segment)
        if segment[0].is_copied:
            yield _Work(0, partial(live.batches, segment), frozenset(), done, segment[0])
        else:
            # A table goes into one row group, whole.
            rows = partial(live.rows, segment, at_once_bytes=row_group_bytes * 3 // 8)
            yield _Work(0, rows, bloom_filters_of(segment), done)


def _laid_out(rows: LaidOutRows, on_progress: OnProgress | None) -> Generator[_Work, None, None]:
    """Sort the rows by the layout. Half of the progress is that they were read, the other half that they were written."""
    bloom_filters: set[str] = set()
    reported = 0

    def on_read(segment: Segment) -> None:
        nonlocal reported
        if not bloom_filters:
            bloom_filters.update(bloom_filters_of(segment))
        half = sum(_done(segment)) // 2
        reported += half
        if on_progress is not None:
            on_progress(half)

    with contextlib.closing(rows.buckets(on_read)) as buckets:
        left = 0
        for bucket in buckets:
            left = left or rows.task.bytes_in - reported
            start, end = (left * (bucket.number + more) // bucket.count for more in (0, 1))
            done = (end - start,)
            yield _Work(bucket.file, bucket.batches, frozenset(bloom_filters), done, numbers=bucket.numbers)


def _received(rows: ReceivedFile) -> Generator[_Work, None, None]:
    for bucket in rows.buckets():
        yield _Work(bucket.file, bucket.batches, rows.bloom_filters, (), numbers=bucket.numbers)


def bloom_filters_of(segment: Segment) -> frozenset[str]:
    files = [part.opened.data_file for part in segment[:_ASKED_FOR_BLOOM_FILTERS]]
    return frozenset().union(*(file.bloom_filters for file in files))


def _done(segment: Segment) -> tuple[int, ...]:
    return tuple(part.opened.source.size_bytes for part in segment if part.is_last)


def _pieces(
    task: RewriteTask, sources: Sources, live: LiveRows, row_group_bytes: int
) -> Generator[_Work, None, None]:
    """Divide the rows between several new files. The caller's thread reads them, since a cut may be anywhere in a source."""
    bloom_filters: set[str] = set()
    done: list[int] = []

    def rows() -> Iterator[pa.RecordBatch]:
        for opened in sources:
            if len(sources.source_rows) <= _ASKED_FOR_BLOOM_FILTERS:
                bloom_filters.update(opened.data_file.bloom_filters)
            yield from live.batches([SourceSlice(opened)], on_all_processors=True)
            done.append(opened.source.size_bytes)

    cut = _Cut(rows(), _rows_of_a_file(task, sources.storage))
    file = 0
    while cut.has_more():
        pending: list[pa.RecordBatch] = []
        pending_bytes = 0
        for batch in cut.piece():
            pending.append(batch)
            pending_bytes += batch.nbytes
            if pending_bytes >= row_group_bytes:
                yield _Work(file, partial(_given, pending), frozenset(bloom_filters), _taken(done))
                pending, pending_bytes = [], 0
        if pending:
            yield _Work(file, partial(_given, pending), frozenset(bloom_filters), _taken(done))
        file += 1


def _given(batches: list[pa.RecordBatch], **_: object) -> list[pa.RecordBatch]:
    return batches


def _taken(done: list[int]) -> tuple[int, ...]:
    taken = tuple(done)
    done.clear()
    return taken


def _remove(storage: Storage, key: str) -> None:
    # The error that led here tells more.
    with contextlib.suppress(DeltaLogError):
        storage.delete([key])


def output_key(task: RewriteTask) -> str:
    """Make a new name in the partition's directory. With column mapping, as in Spark, the directory shows no values.

    Where a value is too long for the name of a directory, the file lies in a directory that shows none.
    """
    codec = WriterSettings.codec_of(task.configuration)
    name = f"part-00000-{uuid4()}-c000{'' if codec == 'none' else f'.{codec}'}.parquet"
    if task.mapping_mode != "none":
        return name
    schema = parse_schema(task.schema_json, mapped=False)
    directories = [
        hive_directory(column, task.partition_values.get(schema.field(column).physical_name))
        for column in task.partition_columns
    ]
    key = "/".join([*directories, name])
    if max(map(_num_bytes, directories), default=0) <= _LONGEST_NAME_BYTES:
        path = task.table_uri.partition("://")[2].partition("/")[2] or task.table_uri
        if _num_bytes(path) + 1 + _num_bytes(key) <= _LONGEST_KEY_BYTES:
            return key
    # The log has the values. Two characters spread the files, as delta.randomizeFilePrefixes does.
    return f"{uuid4().hex[:2]}/{name}"


def _num_bytes(text: str) -> int:
    return len(text.encode())


def _output(task: RewriteTask, storage: Storage, file: _Written) -> OutputFile:
    """Describe a new file, as the store has it.

    :raises StorageError: the store has other bytes than were written.
    """
    info = file.described or storage.head(file.key)
    if info is None or info.size != file.size_bytes:
        found = "no such file" if info is None else f"{info.size:,} bytes"
        uri = f"{storage.uri}/{file.key}"
        raise StorageError(
            f"{uri}: {file.size_bytes:,} bytes were written, and the store has {found}. Run again.", uri
        )
    return OutputFile(
        encode_path(file.key),
        file.key,
        info.size,
        info.modification_time_ms,
        file.stats.num_records,
        file.stats.finish(),
        task.output_tags,
    )


def _rows_of_a_file(task: RewriteTask, storage: Storage) -> int:
    """Return the rows of each file but the last."""
    rows = sum(DataFile(storage, source.key, task.mapping_mode).num_rows for source in task.sources)
    hidden = sum(int((source.deletion_vector or {}).get("cardinality", 0)) for source in task.sources)
    return max(1, -(-(rows - hidden) // task.num_outputs))


class _Cut:
    """Cuts a stream of batches into pieces of a number of rows."""

    def __init__(self, batches: Iterator[pa.RecordBatch], rows: int) -> None:
        self._batches, self._rows = batches, rows
        self._next: pa.RecordBatch | None = None

    def has_more(self) -> bool:
        if self._next is None:
            self._next = next(self._batches, None)
        return self._next is not None

    def piece(self) -> Iterator[pa.RecordBatch]:
        missing = self._rows
        while missing > 0 and self.has_more():
            batch, self._next = self._next, None
            assert batch is not None
            if batch.num_rows > missing:
                batch, self._next = batch.slice(0, missing), batch.slice(missing)
            missing -= batch.num_rows
            yield batch
