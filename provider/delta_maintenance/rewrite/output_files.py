"""Writes the new files of a bin: one, or several where the task splits a large file.

Rows are written in the order in which they come, and a file ends when it has its share of them. In the end either all files of
a bin exist, or none.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import uuid4

import pyarrow as pa

from delta_log.arrow.row_hash import RowHash
from delta_log.data.data_file import DataFile
from delta_log.errors import DeltaLogError
from delta_log.log.data_path import encode_path, hive_directory
from delta_log.storage.storage import Storage
from delta_log.table_config.schema import parse_schema
from delta_maintenance.rewrite.live_rows import LiveRows
from delta_maintenance.rewrite.spark_metadata import spark_metadata
from delta_maintenance.rewrite.task import OutputFile, RewriteTask
from delta_maintenance.rewrite.writer import DataFileWriter, WriterSettings, Written


@dataclass(frozen=True, slots=True)
class Outputs:
    """The files that were written.

    :param read: the checksum of the rows that went in, if the task asks for ``verify="full"``.
    """

    files: tuple[OutputFile, ...]
    rows: int
    read: RowHash


def write_outputs(task: RewriteTask, live: LiveRows, storage: Storage) -> Outputs:
    """Write all rows. A bin without rows has no file."""
    written: list[tuple[str, Written]] = []
    read = RowHash()
    cut = _Cut(iter(live), _rows_of_a_file(task, storage))
    with contextlib.ExitStack() as undo:
        while cut.has_more():
            key = output_key(task)
            # Registered first, since a file may exist although closing it failed.
            undo.callback(_remove, storage, key)
            settings = WriterSettings.of(task.configuration, live.stored, task.reader_features)
            with (
                storage.open_write(key) as file,
                DataFileWriter(
                    file, live.schema, settings, spark_metadata(live.columns), lambda: live.bloom_filters
                ) as writer,
            ):
                for batch in cut.piece():
                    if task.verify == "full":
                        read = read.plus(RowHash.of(batch))
                    writer.write(batch)
                written.append((key, writer.close()))
        files = tuple(_output(task, storage, key, file) for key, file in written)
        undo.pop_all()
    return Outputs(files, sum(file.num_records for _, file in written), read)


def _remove(storage: Storage, key: str) -> None:
    # The error that led here tells more.
    with contextlib.suppress(DeltaLogError):
        storage.delete([key])


def output_key(task: RewriteTask) -> str:
    """Make a new name in the partition's directory. With column mapping, as in Spark, the directory shows no values."""
    codec = WriterSettings.codec_of(task.configuration)
    name = f"part-00000-{uuid4()}-c000{'' if codec == 'none' else f'.{codec}'}.parquet"
    if task.mapping_mode != "none":
        return name
    schema = parse_schema(task.schema_json, mapped=False)
    directories = [
        hive_directory(column, task.partition_values.get(schema.field(column).physical_name))
        for column in task.partition_columns
    ]
    return "/".join([*directories, name])


def _output(task: RewriteTask, storage: Storage, key: str, written: Written) -> OutputFile:
    info = storage.head(key)
    assert info is not None
    return OutputFile(
        encode_path(key),
        key,
        info.size,
        info.modification_time_ms,
        written.num_records,
        written.stats,
        task.output_tags,
    )


def _rows_of_a_file(task: RewriteTask, storage: Storage) -> int | None:
    """Return the rows of each file; ``None`` if one file takes all."""
    if task.num_outputs <= 1:
        return None
    rows = sum(DataFile(storage, source.key, task.mapping_mode).num_rows for source in task.sources)
    hidden = sum(int((source.deletion_vector or {}).get("cardinality", 0)) for source in task.sources)
    return max(1, -(-(rows - hidden) // task.num_outputs))


class _Cut:
    """Cuts a stream of batches into pieces of a number of rows."""

    def __init__(self, batches: Iterator[pa.RecordBatch], rows: int | None) -> None:
        self._batches, self._rows = batches, rows
        self._next: pa.RecordBatch | None = None

    def has_more(self) -> bool:
        if self._next is None:
            self._next = next(self._batches, None)
        return self._next is not None

    def piece(self) -> Iterator[pa.RecordBatch]:
        missing = self._rows
        while self.has_more() and (missing is None or missing > 0):
            batch, self._next = self._next, None
            assert batch is not None
            if missing is not None:
                if batch.num_rows > missing:
                    batch, self._next = batch.slice(0, missing), batch.slice(missing)
                missing -= batch.num_rows
            yield batch
