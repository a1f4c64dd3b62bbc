"""Writes the new files of a bin: one, or several where the task splits a large file or asks for a layout.

Without a layout, rows are written in the order in which they come, and a file ends when it has its share of them. In the end either
all files of a bin exist, or none.

Threads encode segments of the rows side by side (:mod:`delta_maintenance.rewrite.read.segment_pool`). The caller's thread opens the
sources, and puts the encoded parts behind each other. Memory holds the decoded rows of one segment for each thread, and the
encoded parts that wait for their turn, whatever the size of the file.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator
from concurrent.futures import Future
from functools import partial
from itertools import groupby
from typing import TypeAlias
from uuid import uuid4

from msgspec import Struct

from delta_log.arrow.row_hash import RowHash
from delta_log.errors import DeltaLogError, StorageError
from delta_log.log.data_path import encode_path, hive_directory
from delta_log.stats.file_stats import StatsCollector
from delta_log.storage.storage import FileInfo, Storage
from delta_log.table_config.schema import parse_schema
from delta_maintenance.rewrite.bin_context import BinContext
from delta_maintenance.rewrite.copied_part import CopiedPart, CopyScan, scanned
from delta_maintenance.rewrite.copy.copied_stats import NewFileStats
from delta_maintenance.rewrite.encode.encoded_part import EncodedPart, PartEncoder
from delta_maintenance.rewrite.encode.writer_notes import own_notes, spark_metadata
from delta_maintenance.rewrite.encode.writer_settings import WriterSettings
from delta_maintenance.rewrite.limits import LITTLE_BIN_BYTES
from delta_maintenance.rewrite.manifest.row_map import RowMapWriter
from delta_maintenance.rewrite.part_feed import OnProgress, PartWork, work_of
from delta_maintenance.rewrite.read.segment_pool import SegmentPool
from delta_maintenance.rewrite.read.sources import Sources
from delta_maintenance.rewrite.sort.laid_out_rows import LaidOutRows
from delta_maintenance.rewrite.sort.shuffled_file import ReceivedFile
from delta_maintenance.rewrite.task import OutputFile, RewriteTask, RowMap
from parquet_parts.assembled_file import AssembledFile

#: Of a name in a file system, and of a key in an object store.
_LONGEST_NAME_BYTES, _LONGEST_KEY_BYTES = 255, 1_024


class Outputs(Struct, frozen=True):
    """The files that were written.

    :param read: the checksum of the rows that went in, if the task asks for ``verify="full"``.
    :param bytes_copied: size of the row groups that were copied.
    :param row_map: row map, if the task asks for one.
    """

    files: tuple[OutputFile, ...]
    rows: int
    read: RowHash
    bytes_copied: int = 0
    row_map: RowMap | None = None


class _Written(Struct):
    """A new file.

    :param read: the checksum of the rows that its parts had, if they have one.
    :param described: the file, if the store took it by one request; ``None``: the store has to be asked.
    """

    key: str
    read: RowHash
    bytes_copied: int
    size_bytes: int
    stats: StatsCollector
    described: FileInfo | None


#: A part of a new file that can be appended now, and the work that it came from.
_Part: TypeAlias = tuple[PartWork, EncodedPart | CopiedPart]
#: What a thread does for a part.
_Result: TypeAlias = EncodedPart | CopyScan


def write_outputs(
    context: BinContext,
    sources: Sources,
    pool: SegmentPool,
    on_progress: OnProgress | None = None,
    received: ReceivedFile | None = None,
) -> Outputs:
    """Write all rows. A bin without rows has no file.

    :param pool: pool that encodes segments.
    :param received: the rows of one of the files, if other processes have read the sources. Then only this file is written.
    """
    task, storage = context.task, context.storage
    moved: LaidOutRows | ReceivedFile | None = received
    if moved is None and task.layout is not None:
        moved = LaidOutRows(context, sources, pool)
    work, ahead = work_of(context, sources, pool, moved, on_progress)
    # A layout has hashed the rows before it moved them.
    thread = partial(_encoded_or_scanned, context, hashes_rows=context.is_verified and moved is None)
    with moved or contextlib.nullcontext(), contextlib.ExitStack() as undo:
        # Closed here, not when an error of the bin is forgotten, since threads open sources for it.
        undo.enter_context(contextlib.closing(work))
        parts = undo.enter_context(
            contextlib.closing(pool.begun_in_order(thread, work, ahead, partial(_is_little, task)))
        )
        row_map = undo.enter_context(
            RowMapWriter(storage, task.run_id, task.bin_id, uuid4().hex, sources.source_rows)
        )
        written = []
        for _, of_one_file in groupby(_with_rows(parts, on_progress), lambda part: part[0].file):
            key = output_key(task)
            # Registered first, since a file may exist although closing it failed.
            undo.callback(_remove, storage, key)
            written.append(_write_file(context, key, of_one_file, row_map))
        where_rows_went = row_map.finish()
        files = tuple(_output(task, storage, file) for file in written)
        undo.pop_all()
    rows = sum(file.stats.num_records for file in written)
    read = RowHash() if moved is None else moved.read
    for file in written if moved is None else ():
        read = read.plus(file.read)
    return Outputs(files, rows, read, sum(file.bytes_copied for file in written), where_rows_went)


def _write_file(context: BinContext, key: str, parts: Iterable[_Part], row_map: RowMapWriter) -> _Written:
    """Put parts behind each other in a new file."""
    stats = NewFileStats(context.settings.new_stats, context.live.schema)
    read, bytes_copied = RowHash(), 0
    with context.storage.open_write(key) as file:
        target = AssembledFile(file, None if context.copied_files is None else context.copied_files.like)
        for work, part in parts:
            part.append_to(target)
            part.add_stats_to(stats)
            read, bytes_copied = read.plus(part.read), bytes_copied + part.bytes_copied
            if work.numbers is not None:
                row_map.add(work.numbers())
        target.finish({**spark_metadata(context.live.columns), **own_notes(context.settings.codec)})
    described = getattr(file, "described", None)
    return _Written(key, read, bytes_copied, target.size_bytes, stats.finish(), described)


def _encoded_or_scanned(context: BinContext, work: PartWork, *, hashes_rows: bool) -> _Result:
    """Do the work of a thread for a part."""
    if work.copied is not None:
        return scanned(context, work.copied, work.batches)
    encoder = PartEncoder(context.live.schema, context.settings, work.bloom_filters, hashes_rows=hashes_rows)
    return encoder.encode(work.batches(dictionaries=encoder.dictionaries))


def _is_little(task: RewriteTask, work: PartWork) -> bool:
    if work.copied is not None:
        return task.verify != "full" and task.rewrite != "auto"
    return task.bytes_in <= LITTLE_BIN_BYTES


def _with_rows(
    parts: Iterable[tuple[PartWork, Future[_Result]]], on_progress: OnProgress | None
) -> Iterator[_Part]:
    """Leave out parts without rows. Report the sources of a part when the next one is asked for."""
    for work, result in parts:
        part = _part(work, result)
        if part.num_rows:
            yield work, part
        if on_progress is not None:
            for size_bytes in work.sources_done:
                on_progress(size_bytes)


def _part(work: PartWork, result: Future[_Result]) -> EncodedPart | CopiedPart:
    if work.copied is not None:
        # The thread reads while the bytes are copied.
        return CopiedPart(work.copied, partial(_scan, result))
    encoded = result.result()
    assert isinstance(encoded, EncodedPart)
    return encoded


def _scan(result: Future[_Result]) -> CopyScan:
    found = result.result()
    assert isinstance(found, CopyScan)
    return found


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
