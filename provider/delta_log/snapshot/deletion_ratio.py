"""The share of deleted rows that the files of a table still carry, for the whole table and by partition.

Protocol section "Deletion Vectors". Readers read a row that a vector hides until its file is rewritten. Rows are counted
by the statistics of the files (``numRecords``, which a file with a vector must have); files without statistics add no
rows. The version checksum tells in one small read whether there are deleted rows at all, so most tables need no replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from delta_log.errors import CorruptLog, InvalidRequest
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.version_checksum import read_version_checksum
from delta_log.storage.storage import Storage
from delta_log.table_config.schema import PrimitiveType

#: Numbers of more than 18 digits, which may exceed 64 bits, do not match.
_NUM_RECORDS = r'"numRecords"\s*:\s*(?P<count>\d{1,18})\s*[,}]'


class DeletedRows(Struct, frozen=True):
    """The deleted rows of a table or a partition.

    :param num_rows: all rows in the files, including hidden ones.
    :param num_files_over: number of files with at least a given share of hidden rows; ``size_bytes_over`` is their size.
    :param partition: logical column names to raw values; empty for a whole table.
    """

    num_rows: int
    num_deleted_rows: int
    num_files: int
    num_files_over: int
    size_bytes_over: int
    partition: Mapping[str, str | None]

    @property
    def ratio(self) -> float:
        return self.num_deleted_rows / self.num_rows if self.num_rows else 0.0

    def to_dict(self) -> dict[str, Any]:
        return {
            "partition": dict(self.partition),
            "numRows": self.num_rows,
            "numDeletedRows": self.num_deleted_rows,
            "ratio": round(self.ratio, 6),
            "numFiles": self.num_files,
            "numFilesOver": self.num_files_over,
            "sizeInBytesOver": self.size_bytes_over,
        }


class DeletionLimits(Struct, frozen=True):
    """Limits of deleted rows. A table passes them if it exceeds any one; ``None`` is no limit.

    :param ratio: deleted rows divided by all rows.
    :param file_ratio: a file with this share of hidden rows, or more, is *over*.
    :param files: number of files over.
    :param size_bytes: total size of the files over.
    """

    ratio: float | None = 0.1
    file_ratio: float = 0.1
    files: int | None = None
    size_bytes: int | None = None

    def __post_init__(self) -> None:
        if self.ratio is None and self.files is None and self.size_bytes is None:
            raise InvalidRequest("No limit is given. Give a ratio, a number of files or a size.")

    def are_passed_by(self, found: DeletedRows) -> bool:
        if not found.num_deleted_rows:
            return False
        return (
            (self.ratio is not None and found.ratio > self.ratio)
            or (self.files is not None and found.num_files_over > self.files)
            or (self.size_bytes is not None and found.size_bytes_over > self.size_bytes)
        )


def has_no_deleted_rows(storage: Storage, version: int) -> bool:
    """Whether the version's checksum shows that there are none; ``False`` where it does not tell."""
    checksum = None
    with suppress(CorruptLog):
        checksum = read_version_checksum(storage, version)
    return checksum is not None and 0 in (checksum.numDeletedRecordsOpt, checksum.numDeletionVectorsOpt)


def deleted_rows(snapshot: Snapshot, file_ratio: float) -> list[DeletedRows]:
    """The partitions that have deleted rows, the highest ratio first. An unpartitioned table is one partition."""
    files = snapshot.files(["partition_values", "size", "stats", "deletion_vector"])
    rows = pc.cast(
        pc.struct_field(pc.extract_regex(files.column("stats"), _NUM_RECORDS), "count"), pa.int64()
    )
    rows = pc.fill_null(rows, 0)
    hidden = pc.fill_null(
        pc.cast(pc.struct_field(files.column("deletion_vector"), "cardinality"), pa.int64()), 0
    )
    over = pc.and_(pc.greater(hidden, 0), pc.greater_equal(_ratio(hidden, rows), file_ratio))
    names = [column.name for column in snapshot.partition_schema]
    keys = {
        f"p{number}": pc.map_lookup(files.column("partition_values"), column.physical_name, "first")
        for number, column in enumerate(snapshot.partition_schema)
    }
    counted = pa.table(
        {
            "rows": rows,
            "hidden": hidden,
            "over": pc.cast(over, pa.int64()),
            "bytes_over": pc.if_else(over, files.column("size"), 0),
            **keys,
        }
    )
    sums = [(name, "sum") for name in ("rows", "hidden", "over", "bytes_over")]
    groups = counted.group_by(list(keys)).aggregate([*sums, ("rows", "count")])
    affected = groups.filter(pc.greater(groups.column("hidden_sum"), 0)).to_pylist()
    found = [
        DeletedRows(
            num_rows=group["rows_sum"],
            num_deleted_rows=group["hidden_sum"],
            num_files=group["rows_count"],
            num_files_over=group["over_sum"],
            size_bytes_over=group["bytes_over_sum"],
            partition={name: group[f"p{number}"] or None for number, name in enumerate(names)},
        )
        for group in affected
    ]
    return sorted(found, key=lambda one: -one.ratio)


def of_table(snapshot: Snapshot, partitions: Sequence[DeletedRows]) -> DeletedRows:
    """The deleted rows of the whole table.

    :param partitions: partitions with deleted rows, from :func:`deleted_rows`.
    """
    stats = snapshot.files(["stats"]).column("stats")
    rows = pc.sum(
        pc.cast(pc.struct_field(pc.extract_regex(stats, _NUM_RECORDS), "count"), pa.int64())
    ).as_py()
    return DeletedRows(
        num_rows=rows or 0,
        num_deleted_rows=sum(one.num_deleted_rows for one in partitions),
        num_files=snapshot.num_files,
        num_files_over=sum(one.num_files_over for one in partitions),
        size_bytes_over=sum(one.size_bytes_over for one in partitions),
        partition={},
    )


def _ratio(hidden: pa.ChunkedArray, rows: pa.ChunkedArray) -> pa.ChunkedArray:
    """Hidden rows divided by all rows. Where the number of rows is unknown, all rows count as hidden."""
    known = pc.if_else(pc.equal(rows, 0), hidden, rows)
    return pc.divide(
        pc.cast(hidden, pa.float64()), pc.cast(pc.if_else(pc.equal(known, 0), 1, known), pa.float64())
    )


def predicate_of(snapshot: Snapshot, partitions: Sequence[Mapping[str, str | None]]) -> str | None:
    """A predicate on the partition columns that chooses these partitions; ``None``: the table has none.

    :param partitions: logical column names to raw values, each.

    It is SQL for :mod:`delta_maintenance.partitions.predicate`, where a literal takes the type of its column.
    """
    if not snapshot.partition_columns:
        return None
    kinds = {column.name: column.type for column in snapshot.partition_schema}
    return " OR ".join(
        "(" + " AND ".join(_equals(name, value, kinds[name]) for name, value in one.items()) + ")"
        for one in partitions
    )


def _equals(column: str, value: str | None, kind: object) -> str:
    name = "`" + column.replace("`", "``") + "`"
    if value is None:
        return f"{name} IS NULL"
    if isinstance(kind, PrimitiveType) and kind.name == "binary":
        return f"{name} = X'{value.encode().hex()}'"
    quoted = value.replace("\\", "\\\\").replace("'", "\\'")
    return f"{name} = '{quoted}'"
