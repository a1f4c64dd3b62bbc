"""How much of a table is deleted rows that its files still carry, as a whole and by partition.

Protocol section "Deletion Vectors". A row that a vector hides is read, and paid for, until its file is rewritten.
Counted over columns, from the statistics of the files (``numRecords``, which a file with a vector must have); a file
without statistics counts for nothing in a ratio of rows. A version's checksum file tells in one small read that there
are no deleted rows at all, which spares most tables a replay.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.errors import CorruptLog, InvalidRequest
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.version_checksum import read_version_checksum
from delta_log.storage.storage import Storage
from delta_log.table_config.schema import PrimitiveType

#: A number that is too large for 64 bits is none.
_NUM_RECORDS = r'"numRecords"\s*:\s*(?P<count>\d{1,18})\s*[,}]'


@dataclass(frozen=True, slots=True)
class DeletedRows:
    """Of a table or a partition.

    :param num_rows: rows in the files, hidden ones too.
    :param num_files_over: files of which more than a given share is hidden, and ``size_bytes_over`` what they weigh.
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


@dataclass(frozen=True, slots=True)
class DeletionLimits:
    """What is too much; any of them will do. ``None``: no limit.

    :param ratio: deleted rows by all rows.
    :param file_ratio: the share from which on a file counts as one of those that are over.
    :param files: so many files over.
    :param size_bytes: files over that weigh so much together.
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
    """By the version's checksum file; ``False`` where it does not tell."""
    checksum = None
    with suppress(CorruptLog):
        checksum = read_version_checksum(storage, version)
    return checksum is not None and 0 in (checksum.numDeletedRecordsOpt, checksum.numDeletionVectorsOpt)


def deleted_rows(snapshot: Snapshot, file_ratio: float) -> list[DeletedRows]:
    """Of each partition that has deleted rows, the worst first; of an unpartitioned table one."""
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
    """The sum over a whole table, of which only the partitions with deleted rows are known."""
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
    """Where the rows are not known, a file with hidden rows counts as all hidden."""
    known = pc.if_else(pc.equal(rows, 0), hidden, rows)
    return pc.divide(
        pc.cast(hidden, pa.float64()), pc.cast(pc.if_else(pc.equal(known, 0), 1, known), pa.float64())
    )


def predicate_of(snapshot: Snapshot, partitions: Sequence[DeletedRows]) -> str | None:
    """A predicate on the partition columns that chooses these partitions; ``None``: the table has none.

    In the SQL of :mod:`delta_maintenance.partitions.predicate`, in which a literal takes the type of its column.
    """
    if not snapshot.partition_columns:
        return None
    kinds = {column.name: column.type for column in snapshot.partition_schema}
    return " OR ".join(
        "(" + " AND ".join(_equals(name, value, kinds[name]) for name, value in one.partition.items()) + ")"
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
