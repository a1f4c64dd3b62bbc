"""Plans an EXPIRE: which files go as a whole, and which have to be read.

Statistics decide where they can:

* A partition column decides for all rows of a file. The text of a timestamp may lack its zone, so it counts as twelve hours later: no zone is
  further behind UTC.
* A file whose greatest value is before the cutoff and that holds no null goes as a whole. Statistics of timestamps may be cut to
  milliseconds, so the greatest value counts as one millisecond later.
* A file whose least value is not before the cutoff stays, and so does a file that holds nulls alone.
* Any other file has to be read.

A row with a null never expires. A date has expired when its whole day, in UTC, is before the cutoff.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from delta_log.data.row_bitmap import RowBitmap
from delta_log.errors import InvalidRequest
from delta_log.snapshot.partition_filter import typed_partition_values
from delta_log.snapshot.snapshot import Snapshot
from delta_log.stats.file_stats import StatsColumn
from delta_log.stats.stats_columns import parse_stats_column
from delta_log.table_config.properties import flag
from delta_log.table_config.schema import PrimitiveType, StructField, StructType, to_arrow_type

_KINDS = ("date", "timestamp", "timestamp_ntz")
_MS_PER_DAY = 86_400_000
_FURTHEST_ZONE = pa.scalar(12 * 3_600_000_000, pa.duration("us"))

#: One row of ``Snapshot.files``.
FileRow = Mapping[str, Any]


class FileChoice(Struct, frozen=True):
    """What statistics and partitions say of the files of a table.

    :param whole: rows of ``Snapshot.files`` whose file has expired as a whole; ``read``: files that may hold expired rows and others.
    :param num_records: physical rows of each of the `whole` files; ``None`` where statistics do not say.
    """

    whole: Sequence[FileRow]
    read: Sequence[FileRow]
    num_records: Sequence[int | None]


class WhollyExpired(Struct, frozen=True):
    """A file all of whose live rows have expired."""

    file: FileRow
    num_rows: int


class PartlyExpired(Struct, frozen=True):
    """A file some of whose live rows have expired.

    :param hidden: all rows that are hidden once the expired ones are; ``num_expired``: how many of them are new.
    :param num_records: physical rows of the file.
    """

    file: FileRow
    hidden: RowBitmap
    num_expired: int
    num_records: int


class ExpiryPlan(Struct, frozen=True):
    """The rows that an EXPIRE removes.

    :param cutoff_ms: the time before which rows have expired.
    :param num_files_not_read: files that statistics leave open and that were not read, since only whole files were wanted.
    :param by_vectors: ``True``: rows of other files get deletion vectors; else these files are written anew.
    """

    column: str
    cutoff_ms: int
    whole: Sequence[WhollyExpired]
    partly: Sequence[PartlyExpired]
    num_files_not_read: int
    by_vectors: bool

    @property
    def before(self) -> str:
        """The cutoff in ISO 8601."""
        moment = datetime.fromtimestamp(self.cutoff_ms / 1000, timezone.utc)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")

    @property
    def num_expired_rows(self) -> int:
        return self._num_rows_whole + sum(file.num_expired for file in self.partly)

    @property
    def _num_rows_whole(self) -> int:
        return sum(file.num_rows for file in self.whole)

    @property
    def is_empty(self) -> bool:
        return not self.whole and not self.partly

    def to_dict(self) -> dict[str, Any]:
        """The plan as JSON values."""
        return {
            "column": self.column,
            "before": self.before,
            "numExpiredRows": self.num_expired_rows,
            "numExpiredFiles": len(self.whole),
            "sizeOfExpiredFiles": sum(whole.file["size"] for whole in self.whole),
            "numRowsOfExpiredFiles": self._num_rows_whole,
            "numPartlyExpiredFiles": len(self.partly),
            "sizeOfPartlyExpiredFiles": sum(partly.file["size"] for partly in self.partly),
            "numRowsOfPartlyExpiredFiles": sum(partly.num_expired for partly in self.partly),
            "numFilesNotRead": self.num_files_not_read,
            "by": "deletion vectors" if self.by_vectors else "rewriting",
        }


def age_column(snapshot: Snapshot, name: str) -> StructField:
    """Return the column that says how old a row is.

    :raises InvalidRequest: there is no such column, or it is of another type.
    """
    known = {column.name: column for column in snapshot.schema}
    fitting = [column.name for column in snapshot.schema if _is_fitting(column)]
    column = known.get(name)
    if column is None or not _is_fitting(column):
        what = "There is no column" if column is None else "No date or timestamp is in"
        raise InvalidRequest(
            f"{what} {name!r} of this table. Columns that can say how old a row is: {', '.join(fitting) or 'none'}."
        )
    return column


def _is_fitting(column: StructField) -> bool:
    return isinstance(column.type, PrimitiveType) and column.type.name in _KINDS


def cutoff_value(column: StructField, cutoff_ms: int) -> pa.Scalar:
    """Return the least value of a column that has not expired."""
    kind = to_arrow_type(column.type)
    if pa.types.is_date(kind):
        return pa.scalar(cutoff_ms // _MS_PER_DAY, pa.int32()).cast(kind)
    return pa.scalar(cutoff_ms * 1000, pa.int64()).cast(kind)


def require_expirable(snapshot: Snapshot) -> None:
    """
    :raises InvalidRequest: the table only allows appends.
    """
    if flag(snapshot.properties, "delta.appendOnly"):
        raise InvalidRequest(
            "EXPIRE removes rows, and delta.appendOnly allows no commit to do so. Set delta.appendOnly to false first."
        )


def require_feed(snapshot: Snapshot, plan: ExpiryPlan) -> None:
    """
    :raises InvalidRequest: the commit would not tell readers of the change data feed which rows it removes.
    """
    if plan.partly and not plan.by_vectors and flag(snapshot.properties, "delta.enableChangeDataFeed"):
        raise InvalidRequest(
            f"{len(plan.partly)} files would be written anew without their expired rows, and readers of this table's change data feed would "
            "take all rows of these files for changed. Set delta.enableDeletionVectors to true, or give whole_files."
        )


def choose_files(snapshot: Snapshot, column: StructField, cutoff_ms: int) -> FileChoice:
    """Choose the files of a table that an EXPIRE removes or reads.

    :raises InvalidPartitionValue: the column is a partition column, and a value of it cannot be read.
    """
    files, cutoff = snapshot.files(), cutoff_value(column, cutoff_ms)
    stats = parse_stats_column(
        files.column("stats").combine_chunks(), [StatsColumn((column.physical_name,), column.type)]
    )
    num_records = pc.struct_field(stats, "numRecords")
    if column.name in snapshot.partition_columns:
        values = typed_partition_values(StructType((column,)), files.column("partition_values")).column(0)
        if pa.types.is_timestamp(values.type) and values.type.tz is not None:
            values = pc.add(values, _FURTHEST_ZONE)
        whole = pc.less(values, cutoff)
        undecided = pa.array([False] * len(files))
    else:
        whole, undecided = _by_stats(stats, column, cutoff)
    whole = pc.fill_null(whole, False)
    return FileChoice(
        files.filter(whole).to_pylist(),
        files.filter(undecided).to_pylist(),
        num_records.filter(whole).to_pylist(),
    )


def _by_stats(stats: pa.StructArray, column: StructField, cutoff: pa.Scalar) -> tuple[pa.Array, pa.Array]:
    """Return which files have expired as a whole, and which have to be read."""
    rows, nulls, low, high = (
        pc.struct_field(stats, path)
        for path in (
            ["numRecords"],
            ["nullCount", column.physical_name],
            ["minValues", column.physical_name],
            ["maxValues", column.physical_name],
        )
    )
    if pa.types.is_timestamp(high.type):
        high = pc.add(high, pa.scalar(1000, pa.duration("us")))
        is_before = pc.less_equal(high, cutoff)
    else:
        is_before = pc.less(high, cutoff)
    whole = pc.fill_null(pc.and_(is_before, pc.equal(nulls, 0)), False)
    stays = pc.or_(
        pc.fill_null(pc.greater_equal(low, cutoff), False), pc.fill_null(pc.equal(nulls, rows), False)
    )
    return whole, pc.invert(pc.or_(whole, stays))
