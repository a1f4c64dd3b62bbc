"""Which files of a snapshot are candidates for a rewrite, and why. Files stay rows of Arrow columns.

Sizes are estimates of live bytes: a file with half of its rows deleted counts half. A file that this rewriter wrote under
the present settings counts as much as it was planned to be. New files are often smaller than their sources, and would
otherwise be packed again by a second run, and by a third.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from delta_log.arrow.arrays import arrow_array
from delta_log.data.deletion_vector import vector_location
from delta_log.errors import OTHER_COMMIT, CorruptLog, InvalidPartitionValue
from delta_log.log.actions import DeletionVector
from delta_log.log.data_path import ExternalFile, are_external
from delta_log.snapshot.partition_filter import require_readable
from delta_log.snapshot.snapshot import Snapshot
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.bin_packing import Int64s
from delta_maintenance.optimize.plan.layout_candidates import (
    DEFAULT_SEAL_BYTES,
    Cubes,
    clustered_groups,
    due_for_layout,
    is_laid_out,
)
from delta_maintenance.optimize.plan.plan import (
    DELETED_ROWS,
    DROPPED_COLUMNS,
    FULL,
    LARGE,
    LAYOUT,
    REASONS,
    SMALL,
    UNKNOWN_ROWS,
    ForeignFiles,
)
from delta_maintenance.optimize.plan.rewrite_tag import rewrite_settings_digest, target_size, written_with
from delta_maintenance.optimize.plan.selection import (
    BELOW_RATIO,
    CLUSTERED,
    CLUSTERED_OTHERWISE,
    SEALED,
    FileCount,
)
from delta_maintenance.optimize.plan.table_layout import TableLayout, clustered_columns
from delta_maintenance.partitions.partition_groups import partition_groups
from delta_maintenance.rewrite.task import PLANNED_BYTES_TAG

_SHOWN_FOREIGN_FILES = 3
#: More than all stores hold together; sums of less fit into 64 bits.
_MAX_TABLE_BYTES = 1 << 60

_FILE_COLUMNS = (
    "path",
    "key",
    "partition_values",
    "size",
    "tags",
    "deletion_vector",
    "base_row_id",
    "default_row_commit_version",
)


class Candidates(Struct, frozen=True, eq=False):
    """The files that a run may rewrite, as columns of one length.

    :param sizes: bytes of each file, and ``live`` the estimate of what of it is not deleted.
    :param num_records: physical rows; -1: unknown.
    :param reasons: why the file is chosen, a union of :data:`~delta_maintenance.optimize.plan.plan.REASONS`; 0: it is not.
    :param groups: the number of each file's partition; with ``cubes``, of files that may be put together.
    :param kept_for: why files that are not chosen are left, where it is not their size: a mask by reason.
    :param foreign: files outside of the table's directory, which are not candidates.
    :param finished: files that earlier tries of the run have dealt with, which are not candidates, either.
    :param undecided: files with a partition value that the predicate needs and that cannot be read; ``unreadable`` names one, for people.
    """

    files: pa.Table
    sizes: Int64s
    live: Int64s
    num_records: Int64s
    reasons: npt.NDArray[np.uint8]
    groups: Int64s
    cubes: Int64s | None
    kept_for: Mapping[str, npt.NDArray[np.bool_]]
    foreign: ForeignFiles
    finished: FileCount
    undecided: FileCount
    unreadable: str | None

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        options: OptimizeOptions,
        tag: str,
        min_bytes: int,
        finished_keys: Sequence[str],
        with_dropped_columns: Sequence[str],
        layout: TableLayout | None = None,
    ) -> Candidates:
        """Choose among the files that the predicate selects.

        :param tag: tag of the files that would be written now.
        :param min_bytes: size below which files are chosen.
        :param finished_keys: files that earlier tries of the run have dealt with.
        :param with_dropped_columns: keys of files that hold columns which the table has dropped.
        :raises CorruptLog: the log states impossible sizes.
        """
        where = _where(snapshot, options.where)
        files, foreign, finished = _files(snapshot, where, options, finished_keys)
        num_records, deleted = _row_counts(snapshot, files, where)
        sizes = _sizes(files)
        live = _live_bytes(_planned_bytes(files, tag), num_records, deleted)
        reasons = _reasons(files, live, min_bytes, num_records, deleted, tag, options)
        if with_dropped_columns:
            dropped = pc.is_in(files.column("key"), value_set=pa.array(with_dropped_columns, pa.string()))
            reasons[dropped.to_numpy()] |= DROPPED_COLUMNS
        groups = partition_groups(files.column("partition_values"), snapshot.partition_schema)
        cubes = None
        # Deleted rows that are too few for the ratio of a purge.
        kept_for = {BELOW_RATIO: deleted > 0} if options.purge else {}
        if layout is not None and layout.is_clustering:
            seal_bytes = options.seal_size_bytes or DEFAULT_SEAL_BYTES
            found = Cubes.of(files, live, layout, seal_bytes)
            due = np.ones(len(live), np.bool_) if options.full else found.due
            cubes = np.zeros_like(found.numbers) if options.full else found.numbers
            reasons = np.where(due, LAYOUT, 0).astype(np.uint8)
            kept_for = {CLUSTERED_OTHERWISE: found.of_others, SEALED: found.sealed}
        elif layout is not None:
            fresh = (reasons & ~np.uint8(SMALL)) != 0
            if not options.full:
                fresh |= ~is_laid_out(files, layout.layout)
            small = (reasons & SMALL) != 0
            due = due_for_layout(snapshot, where, files, groups, fresh, small, layout.layout)
            reasons = np.where(due, (reasons & ~np.uint8(SMALL)) | LAYOUT, 0).astype(np.uint8)
        elif clustered_columns(snapshot):
            clustered = pc.is_valid(files.column("clustering_provider")).to_numpy()
            if options.purge:
                # Files of one cube stay together, and their new files stay in it.
                cubes = clustered_groups(files)
            else:
                reasons[clustered] = 0
                kept_for = {CLUSTERED: clustered}
        undecided, unreadable = _undecided(snapshot, where)
        return cls(
            files,
            sizes,
            live,
            num_records,
            reasons,
            groups,
            cubes,
            kept_for,
            foreign,
            finished,
            undecided,
            unreadable,
        )

    def count_by_reason(self, rows: Int64s | None = None) -> dict[str, int]:
        """Count the files by the reasons for which they are chosen.

        :param rows: rows of the files to count; ``None``: all.
        """
        reasons = self.reasons if rows is None else self.reasons[rows]
        return {
            name: int(np.count_nonzero(reasons & bit))
            for bit, name in REASONS.items()
            if (reasons & bit).any()
        }

    def count(self, rows: Int64s) -> FileCount:
        """Count the files of some rows."""
        return FileCount(len(rows), int(self.sizes[rows].sum()))


def candidates_for_footers(snapshot: Snapshot, options: OptimizeOptions) -> list[str]:
    """Keys of the files whose footers a purge has to read: they may hold columns which the table has dropped.

    A file that this rewriter wrote under the present settings holds none.
    """
    files = snapshot.files(("key", "tags"), _where(snapshot, options.where))
    files = files.filter(pc.invert(are_external(files.column("key"))))
    tag = rewrite_settings_digest(snapshot, target_size(snapshot, options))
    keys: list[str] = files.filter(pc.invert(written_with(files, tag))).column("key").to_pylist()
    return keys


def _files(
    snapshot: Snapshot, where: pc.Expression | None, options: OptimizeOptions, finished_keys: Sequence[str]
) -> tuple[pa.Table, ForeignFiles, FileCount]:
    """Separate the files that may be rewritten from those outside of the table's directory, and from finished ones."""
    columns = _FILE_COLUMNS if options.quiet_minutes is None else (*_FILE_COLUMNS, "modification_time")
    if clustered_columns(snapshot):
        columns = (*columns, "clustering_provider")
    files = snapshot.files(columns, where)
    outside = _are_foreign(files, snapshot.table_uri)
    foreign = files.filter(outside)
    if foreign.num_rows:
        files = files.filter(pc.invert(outside))
    finished = FileCount()
    if finished_keys:
        done = pc.is_in(files.column("key"), value_set=pa.array(finished_keys, pa.string()))
        finished = FileCount.of(files.filter(done))
        files = files.filter(pc.invert(done))
    size_bytes = pc.sum(foreign.column("size")).as_py() or 0
    examples = foreign.column("key").slice(0, _SHOWN_FOREIGN_FILES).to_pylist()
    return files, ForeignFiles(foreign.num_rows, size_bytes, tuple(examples)), finished


def _undecided(snapshot: Snapshot, where: pc.Expression | None) -> tuple[FileCount, str | None]:
    """Count the files with a partition value that the predicate needs and that cannot be read; name one of them."""
    if where is None:
        return FileCount(), None
    files = snapshot.files(("path", "partition_values", "size"), where, undecided=True)
    try:
        require_readable(files, snapshot.partition_schema, snapshot.version)
    except InvalidPartitionValue as error:
        return FileCount.of(files), str(error)
    return FileCount(), None


def _sizes(files: pa.Table) -> Int64s:
    """
    :raises CorruptLog: the log states sizes that no store holds.
    """
    column = files.column("size")
    total = pc.sum(column.cast(pa.float64(), safe=False)).as_py() or 0.0
    if column.null_count:
        row = pc.index(column.is_null(), True).as_py()
        raise CorruptLog(files.column("path")[row].as_py(), "the log states no size for it", OTHER_COMMIT)
    if total > _MAX_TABLE_BYTES:
        largest = pc.max(column)
        path = files.column("path")[pc.index(column, largest).as_py()].as_py()
        why = f"the log states {largest.as_py():,} bytes for it, and {total:.3g} for all files, which cannot be true"
        raise CorruptLog(path, why, OTHER_COMMIT)
    found: Int64s = column.to_numpy().astype(np.int64)
    return found


def _are_foreign(files: pa.Table, table_uri: str) -> pa.ChunkedArray:
    """Tell for each file whether it, or its deletion vector, lies outside of the table's directory. No run reads there."""
    outside = are_external(files.column("key"))
    kinds = pc.struct_field(files.column("deletion_vector").combine_chunks(), "storageType")
    absolute = np.flatnonzero(pc.fill_null(pc.equal(kinds, "p"), False).to_numpy(zero_copy_only=False))
    if not len(absolute):
        return outside
    mask: npt.NDArray[np.bool_] = outside.to_numpy(zero_copy_only=False).copy()
    for row, vector in zip(absolute, files.column("deletion_vector").take(absolute).to_pylist(), strict=True):
        mask[row] |= isinstance(vector_location(DeletionVector.from_row(vector), table_uri), ExternalFile)
    return pa.chunked_array([pa.array(mask)])


def _where(snapshot: Snapshot, text: str | None) -> pc.Expression | None:
    if text is None:
        return None
    # The SQL parser takes longer to import than a small plan takes to make.
    from delta_maintenance.partitions.predicate import partition_predicate

    return partition_predicate(text, snapshot.schema, snapshot.partition_columns)


class _RecordCount(msgspec.Struct):
    numRecords: int | None = None


_STATS = msgspec.json.Decoder(_RecordCount, strict=False)


def _row_counts(snapshot: Snapshot, files: pa.Table, where: pc.Expression | None) -> tuple[Int64s, Int64s]:
    """Physical rows (-1: unknown, or not needed) and deleted rows of each file.

    Statistics are most of a snapshot's bytes. They are streamed, and only if some file has deleted rows.
    """
    vectors = files.column("deletion_vector").combine_chunks()
    deleted = pc.fill_null(pc.struct_field(vectors, "cardinality"), 0).to_numpy(zero_copy_only=False)
    records = np.full(files.num_rows, -1, np.int64)
    with_vector = np.flatnonzero(pc.is_valid(vectors).to_numpy(zero_copy_only=False))
    if len(with_vector) == 0:
        return records, deleted.astype(np.int64)
    keys = files.column("key").take(arrow_array(with_vector)).combine_chunks()
    for batch in snapshot.file_batches(["key", "stats", "deletion_vector"], where):
        wanted = pc.and_(pc.is_valid(batch.column("deletion_vector")), pc.is_valid(batch.column("stats")))
        chosen = batch.filter(wanted)
        positions = pc.index_in(chosen.column("key"), value_set=keys).to_pylist()
        for position, text in zip(positions, chosen.column("stats").to_pylist(), strict=True):
            if position is not None:
                records[with_vector[position]] = num_records_of(text)
    return records, deleted.astype(np.int64)


def num_records_of(stats: str) -> int:
    """The physical rows of a file by its statistics; -1: the statistics do not say."""
    try:
        count = _STATS.decode(stats).numRecords
    except (msgspec.DecodeError, RecursionError):
        return -1  # here, statistics are only a hint
    return count if count is not None and 0 <= count < 1 << 62 else -1


def _planned_bytes(files: pa.Table, tag: str) -> Int64s:
    """The size of each file; for a file written under the present settings, the size that was planned for it."""
    planned = pc.map_lookup(files.column("tags"), pa.scalar(PLANNED_BYTES_TAG), "first")
    believed = pc.and_(written_with(files, tag), pc.match_substring_regex(planned, "^[0-9]{1,15}$"))
    sizes = files.column("size").cast(pa.int64())
    found: Int64s = pc.coalesce(pc.if_else(believed, planned, None).cast(pa.int64()), sizes).to_numpy()
    return found


def _live_bytes(sizes: Int64s, num_records: Int64s, deleted: Int64s) -> Int64s:
    known = num_records > 0
    share = np.ones(len(sizes))
    share[known] = np.clip(1 - deleted[known] / num_records[known], 0, 1)
    return np.ceil(sizes * share).astype(np.int64)


def _reasons(
    files: pa.Table,
    live: Int64s,
    minimum: int,
    num_records: Int64s,
    deleted: Int64s,
    tag: str,
    options: OptimizeOptions,
) -> npt.NDArray[np.uint8]:
    reasons = np.zeros(files.num_rows, np.uint8)
    has_vector = pc.is_valid(files.column("deletion_vector")).to_numpy()
    reasons[live < minimum] |= SMALL
    too_many = deleted > num_records * options.deleted_rows_ratio
    if options.purge and not options.deleted_rows_ratio:
        too_many = has_vector  # of other writers, even one without rows
    reasons[(num_records >= 0) & too_many] |= DELETED_ROWS
    reasons[has_vector & (num_records < 0)] |= UNKNOWN_ROWS
    if options.max_file_size_bytes is not None:
        reasons[live > options.max_file_size_bytes] |= LARGE
    if options.full:
        ours = written_with(files, tag).to_numpy()
        reasons[~ours] |= FULL
        reasons[ours & has_vector] |= DELETED_ROWS
    return reasons
