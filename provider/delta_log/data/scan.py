"""Reads the rows of a snapshot from data files, deletion vectors and partition values, under logical names.

A few threads read small files ahead; large files are streamed. Rows come file by file in either case, and memory holds a
bounded number of batches.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from delta_log.arrow.prefetch import map_ordered
from delta_log.data.data_file import DataFile, Rows
from delta_log.data.deletion_vector import read_deletion_vector
from delta_log.data.row_bitmap import RowBitmap
from delta_log.errors import OTHER_COMMIT, CorruptLog, InvalidRequest
from delta_log.log.actions import DeletionVector
from delta_log.storage.storage import Storage
from delta_log.table_config.properties import flag
from delta_log.table_config.schema import PrimitiveType, StructField, StructType

#: Names of the columns that a scan adds for row tracking.
ROW_ID, ROW_COMMIT_VERSION = "_row_id", "_row_commit_version"
ROW_TRACKING_SCHEMA = pa.schema([(ROW_ID, pa.int64()), (ROW_COMMIT_VERSION, pa.int64())])

FILE_COLUMNS = (
    "path",
    "key",
    "partition_values",
    "size",
    "deletion_vector",
    "base_row_id",
    "default_row_commit_version",
)

_SMALL_BYTES = 8 << 20
_THREADS = 4


class RowTracking(Struct, frozen=True):
    """The columns that hold stable row ids. A row without one has the file's base id plus the row's position."""

    columns: tuple[StructField, StructField]

    @classmethod
    def of(cls, properties: Mapping[str, str]) -> RowTracking:
        """Find the columns by the table's properties.

        :raises InvalidRequest: the table does not track rows.
        """
        if not flag(properties, "delta.enableRowTracking"):
            raise InvalidRequest("This table has no row ids: delta.enableRowTracking is not true.")
        names = [
            properties.get(f"delta.rowTracking.materialized{kind}ColumnName", "")
            for kind in ("RowId", "RowCommitVersion")
        ]
        row_id, version = (StructField(name, PrimitiveType("long")) for name in names)
        return cls((row_id, version))

    def arrays(
        self, materialised: Sequence[pa.Array], positions: pa.Array, file: Mapping[str, Any]
    ) -> list[pa.Array]:
        """Return the row ids and row commit versions of some rows of a file."""
        base, version = file["base_row_id"], file["default_row_commit_version"]
        if base is None or version is None:
            raise CorruptLog(
                file["path"],
                "row tracking is enabled, but its add has no baseRowId or commit version",
                OTHER_COMMIT,
            )
        row_ids = pc.coalesce(materialised[0], pc.add(positions, base))
        return [row_ids, pc.fill_null(materialised[1], version)]


def scan_files(
    files: pa.Table,
    partition_values: pa.Table,
    schema: pa.Schema,
    storage: Storage,
    *,
    table_schema: StructType,
    mapping_mode: str,
    row_tracking: RowTracking | None = None,
) -> Iterator[pa.RecordBatch]:
    """Yield the live rows of some files.

    :param files: the columns :data:`FILE_COLUMNS` of ``Snapshot.files``.
    :param partition_values: the typed partition values of these files by logical name, one row for each file.
    :param schema: the logical columns to read, in their order; with ``row_tracking`` followed by
        :data:`ROW_TRACKING_SCHEMA`.
    :param mapping_mode: the table's column mapping mode.
    """
    reader = _FileReader(table_schema, mapping_mode, schema, storage, row_tracking)
    rows = ((file, partition_values.slice(index, 1)) for index, file in enumerate(_records(files)))
    for batches in map_ordered(reader.open, rows, _THREADS):
        yield from batches


def _records(files: pa.Table) -> Iterator[dict[str, Any]]:
    for batch in files.to_batches(max_chunksize=1024):
        yield from batch.to_pylist()


class _FileReader(Struct, frozen=True):
    table_schema: StructType
    mapping_mode: str
    schema: pa.Schema
    storage: Storage
    row_tracking: RowTracking | None

    def open(self, row: tuple[Mapping[str, Any], pa.Table]) -> Iterable[pa.RecordBatch]:
        """Read a small file whole; return an iterator over a large one, which reads it when asked.

        :param row: one row of ``Snapshot.files``, and its typed partition values as a table of one row.
        """
        file, partition = row
        batches = self._batches(file, partition)
        return list(batches) if file["size"] <= _SMALL_BYTES else batches

    def _batches(self, file: Mapping[str, Any], partition: pa.Table) -> Iterator[pa.RecordBatch]:
        names = [
            name
            for name in self.schema.names
            if name not in ROW_TRACKING_SCHEMA.names or not self.row_tracking
        ]
        fields = [self.table_schema.field(name) for name in names]
        stored = [field for field in fields if field.name not in partition.column_names]
        extra = self.row_tracking.columns if self.row_tracking else ()
        data_file = DataFile(self.storage, file["key"], self.mapping_mode)
        hidden = vector_of(file, self.storage)
        for rows in data_file.read([*stored, *extra], hidden, positions=self.row_tracking is not None):
            if not rows.count:
                continue
            arrays = dict(zip((field.name for field in stored), rows.arrays, strict=False))
            for name in set(partition.column_names) & set(names):
                arrays[name] = pa.repeat(partition.column(name)[0], rows.count)
            columns = [arrays[field.name] for field in fields]
            yield pa.record_batch([*columns, *self._tracked(rows, len(stored), file)], schema=self.schema)

    def _tracked(self, rows: Rows, stored: int, file: Mapping[str, Any]) -> list[pa.Array]:
        if self.row_tracking is None:
            return []
        assert rows.positions is not None
        return self.row_tracking.arrays(rows.arrays[stored:], rows.positions, file)


def vector_of(file: Mapping[str, Any], storage: Storage) -> RowBitmap | None:
    """Read the deletion vector of one row of ``Snapshot.files``; ``None`` if the file has none."""
    raw = file["deletion_vector"]
    return None if raw is None else read_deletion_vector(DeletionVector.from_row(raw), storage)
