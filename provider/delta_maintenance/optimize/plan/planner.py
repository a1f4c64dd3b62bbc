"""Planning OPTIMIZE and REORG PURGE: which files of a snapshot to rewrite together, and why. Pure: nothing is written.

1. Candidates are small files, files with many deleted rows (or with deletions and an unknown number of rows), where
   that is asked for files that are too large (each is split by itself), and, for ``full``, every file that was not
   already written by this rewriter under the same settings. A purge takes no file for its size, but those that hold
   columns which the table has dropped.
2. Sizes are estimates of live bytes: a file that is half deleted counts half. What this rewriter wrote under the same
   settings counts as much as it was planned to be: new files are often smaller than their sources, and would be packed
   anew by a second run, and by a third.
3. Candidates are grouped by partition and packed next-fit (:mod:`delta_maintenance.optimize.plan.bin_packing`). A bin
   of one is kept only if its file was chosen for more than its size, and a small file is only put together with
   others that are worth rewriting it (:data:`THRIFT_FACTOR`).
4. The biggest bins come first, so that parallel workers end together; those of partitions that are being written to
   come last, or wait. Under a budget those come that remove most files for their bytes; where none fits, the first of
   them is cut to what does.
5. The same files and options give the same bins, ids and digest, whatever checkpoint the snapshot came from, and
   whatever bins an earlier try of the same run has finished (:class:`PriorWork`).

Files stay rows of an Arrow table; Python objects are made per bin.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_log.data.deletion_vector import vector_location
from delta_log.errors import CorruptLog, InvalidRequest
from delta_log.log.action_columns import deletion_vector_ids
from delta_log.log.actions import DeletionVector
from delta_log.log.data_path import ExternalFile, are_external
from delta_log.snapshot.snapshot import Snapshot
from delta_log.table_config import properties as table_properties
from delta_log.transaction.conflict import IDENTITY_HIGH_WATER_MARK, without_identity_marks
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.bin_packing import Bins, Int64s, Thrift, pack
from delta_maintenance.optimize.plan.plan import (
    DELETED_ROWS,
    DROPPED_COLUMNS,
    FULL,
    LARGE,
    REASONS,
    SMALL,
    UNKNOWN_ROWS,
    ForeignFiles,
    LeftWork,
    OptimizePlan,
    PlannedBin,
)
from delta_maintenance.optimize.plan.tasks import tasks_of
from delta_maintenance.partitions.partition_groups import partition_groups
from delta_maintenance.rewrite.task import PLANNED_BYTES_TAG, REWRITE_TAG, SourceFile

__all__ = [
    "OptimizeOptions",
    "OptimizePlan",
    "PlannedBin",
    "PriorWork",
    "bin_id_of",
    "candidates_for_footers",
    "plan_optimize",
    "rewrite_settings_digest",
    "rewrite_tag",
    "tasks_of",
]

#: Grows when the rewriter's output changes so much that ``full`` should write its files again. 1 gave bounds to row groups
#: of floats with a NaN, by which readers skipped rows.
_REWRITE_REVISION = 2
#: Properties that shape data files.
_SHAPING = (
    "delta.parquet.compression.codec",
    "delta.dataSkipping",
    "delta.columnMapping.",
    "delta.enableRowTracking",
    "delta.rowTracking.",
    "delta.writePartitionColumns",
)

DEFAULT_TARGET_BYTES = 1 << 30
_DEFAULT_MIN_SHARE = 0.75
#: A small file is put together with others that are at least so large a part of it; with a hundred files of 1 MB each
#: night a byte is rewritten two and a half times before its file is large enough.
THRIFT_FACTOR = 1.5
#: Smaller files than this part of the target are always worth it.
_FREE_SHARE = 64

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
_IDENTITY = ("path", "deletion_vector", "base_row_id", "default_row_commit_version")


@dataclass(frozen=True, slots=True)
class PriorWork:
    """What earlier tries of the same run have finished, by its manifests.

    :param keys: files that this try must not plan: sources of finished bins, and what is committed already.
    :param bin_ids: of all finished bins.
    :param num_files: sources of all finished bins, and ``num_bytes`` theirs: the run's budget is spent on them.
    """

    keys: Sequence[str] = ()
    bin_ids: frozenset[str] = frozenset()
    num_files: int = 0
    num_bytes: int = 0


_NOTHING_BEFORE = PriorWork()


def plan_optimize(
    snapshot: Snapshot,
    options: OptimizeOptions,
    now_ms: int,
    prior: PriorWork = _NOTHING_BEFORE,
    with_dropped_columns: Sequence[str] = (),
) -> OptimizePlan:
    """Plan one run.

    :param now_ms: decides which partitions are hot.
    :param with_dropped_columns: keys of files that hold columns which the table has dropped.
    :raises InvalidRequest: the options make no sense for this table.
    """
    target = _target(snapshot, options)
    minimum = _minimum(target, options)
    tag = rewrite_tag(snapshot, options)
    if options.max_file_size_bytes is not None and options.max_file_size_bytes < target:
        raise InvalidRequest(
            f"max_file_size_bytes ({options.max_file_size_bytes}) is below the target size ({target}): every run would "
            "split what the last one put together. Give a maximum of at least the target."
        )
    where = _where(snapshot, options.where)
    files, foreign = _files(snapshot, where, options, prior)
    num_records, deleted = _row_counts(snapshot, files, where)
    sizes = _sizes(files)
    live = _live_bytes(_planned_bytes(files, tag), num_records, deleted)
    reasons = _reasons(files, live, minimum, num_records, deleted, tag, options)
    if with_dropped_columns:
        dropped = pc.is_in(files.column("key"), value_set=pa.array(with_dropped_columns, pa.string()))
        reasons[dropped.to_numpy()] |= DROPPED_COLUMNS

    chosen = np.flatnonzero(reasons)
    groups = partition_groups(files.column("partition_values"), snapshot.partition_schema)
    alone = reasons[chosen] > SMALL  # for more than its size
    paths = files.column("path").take(pa.array(chosen))
    thrift = Thrift(THRIFT_FACTOR, target // _FREE_SHARE)
    packed = pack(groups[chosen], live[chosen], paths, target, alone, thrift)
    hot = _hot_groups(snapshot, files, groups, options, now_ms)[groups[chosen]]

    def described(bins: Bins) -> list[PlannedBin]:
        return _bins(files, chosen, bins, sizes, live, reasons, tag, hot)

    bins = [_split(planned, target) for planned in described(packed)]
    waiting = [planned for planned in bins if planned.hot and options.hot_partitions == "wait"]
    ready = [planned for planned in bins if not (planned.hot and options.hot_partitions == "wait")]
    kept, left = _within_budget(ready, options, prior)
    if left and not kept and not prior.num_files:
        cut = _cut(left, sizes[chosen[packed.order]], alone[packed.order], options)
        if cut is not None:
            whole, end = cut
            halves = Bins(packed.order, np.array([whole.start, end]), np.array([end, whole.end]))
            parts = sorted(described(halves), key=lambda part: part.start)
            kept, left = parts[:1], [*parts[1:], *(other for other in left if other is not whole)]
    rows = np.concatenate([chosen[packed.order[b.start : b.end]] for b in kept] or [np.empty(0, np.int64)])
    return OptimizePlan(
        read_version=snapshot.version,
        planned_ms=now_ms,
        options=options,
        target_size_bytes=target,
        min_file_size_bytes=minimum,
        rewrite_tag=tag,
        files=files.take(pa.array(rows, pa.int64())),
        num_records=num_records[rows],
        bins=_renumbered(kept),
        considered_files=files.num_rows,
        considered_bytes=int(sizes.sum()),
        chosen_files={
            name: int(np.count_nonzero(reasons & bit))
            for bit, name in REASONS.items()
            if (reasons & bit).any()
        },
        left_by_budget=LeftWork.of(left),
        left_as_hot=LeftWork.of(waiting),
        digest=_digest(tag, *sorted({planned.bin_id for planned in kept} | prior.bin_ids)),
        foreign=foreign,
    )


def candidates_for_footers(snapshot: Snapshot, options: OptimizeOptions) -> list[str]:
    """Keys of the files that may hold columns which the table has dropped, as far as the log can tell.

    What this rewriter wrote under the table's present settings holds none.
    """
    files = snapshot.files(("key", "tags"), _where(snapshot, options.where))
    files = files.filter(pc.invert(are_external(files.column("key"))))
    tag = rewrite_settings_digest(snapshot, _target(snapshot, options))
    keys: list[str] = files.filter(pc.invert(_written_with(files, tag))).column("key").to_pylist()
    return keys


def rewrite_tag(snapshot: Snapshot, options: OptimizeOptions) -> str:
    """What :func:`rewrite_settings_digest` says of the files that a plan would make."""
    return rewrite_settings_digest(snapshot, _target(snapshot, options))


def rewrite_settings_digest(snapshot: Snapshot, target_size_bytes: int) -> str:
    """Names everything that decides how a file is written; the value of :data:`REWRITE_TAG`."""
    shaping = {name: value for name, value in snapshot.properties.items() if name.startswith(_SHAPING)}
    schema: Any = snapshot.metadata.schemaString
    if IDENTITY_HIGH_WATER_MARK in schema:  # moves with every append
        schema = without_identity_marks(schema)
    settings = {
        "revision": _REWRITE_REVISION,
        "schema": schema,
        "partitionColumns": list(snapshot.partition_columns),
        "properties": shaping,
        "targetSizeBytes": target_size_bytes,
    }
    return _digest(json.dumps(settings, sort_keys=True))


def bin_id_of(rewrite_tag: str, sources: Sequence[SourceFile], num_outputs: int = 1) -> str:
    """The id that a plan gives to a bin of these files, in this order."""
    names = [
        f"{source.path}\0{source.deletion_vector_id or ''}{_row_id(source)}\0".encode() for source in sources
    ]
    bin_id = hashlib.sha256(f"{rewrite_tag}\0".encode() + b"".join(names)).hexdigest()[:32]
    return bin_id if num_outputs == 1 else _digest(bin_id, str(num_outputs))


def _row_id(source: SourceFile) -> str:
    if source.base_row_id is None:
        return ""
    version = source.default_row_commit_version
    return f"#{source.base_row_id}:{'' if version is None else version}"


# -- choosing ------------------------------------------------------------------------------------------------


def _files(
    snapshot: Snapshot, where: pc.Expression | None, options: OptimizeOptions, prior: PriorWork
) -> tuple[pa.Table, ForeignFiles]:
    """Those that may be rewritten, and those that are not the table's own."""
    columns = _FILE_COLUMNS if options.quiet_minutes is None else (*_FILE_COLUMNS, "modification_time")
    files = snapshot.files(columns, where)
    outside = _are_foreign(files, snapshot.table_uri)
    foreign = files.filter(outside)
    if foreign.num_rows:
        files = files.filter(pc.invert(outside))
    if prior.keys:
        done = pc.is_in(files.column("key"), value_set=pa.array(prior.keys, pa.string()))
        files = files.filter(pc.invert(done))
    size_bytes = pc.sum(foreign.column("size")).as_py() or 0
    examples = foreign.column("key").slice(0, _SHOWN_FOREIGN_FILES).to_pylist()
    return files, ForeignFiles(foreign.num_rows, size_bytes, tuple(examples))


def _sizes(files: pa.Table) -> Int64s:
    """
    :raises CorruptLog: the log states sizes that no store holds, and that cannot be added up.
    """
    column = files.column("size")
    total = pc.sum(column.cast(pa.float64(), safe=False)).as_py() or 0.0
    if column.null_count or total > _MAX_TABLE_BYTES:
        what = (
            f"{total:.3g} bytes in all"
            if total > _MAX_TABLE_BYTES
            else f"{column.null_count} files have none"
        )
        raise CorruptLog("add.size", f"the sizes of the table's files cannot be true: {what}")
    found: Int64s = column.to_numpy().astype(np.int64)
    return found


def _are_foreign(files: pa.Table, table_uri: str) -> pa.ChunkedArray:
    """Whether a file lies outside of the table's directory, or the vector that hides rows of it does: nothing there is
    ever read for a table that only names it."""
    outside = are_external(files.column("key"))
    kinds = pc.struct_field(files.column("deletion_vector").combine_chunks(), "storageType")
    absolute = np.flatnonzero(pc.fill_null(pc.equal(kinds, "p"), False).to_numpy(zero_copy_only=False))
    if not len(absolute):
        return outside
    mask: npt.NDArray[np.bool_] = outside.to_numpy(zero_copy_only=False).copy()
    for row, vector in zip(absolute, files.column("deletion_vector").take(absolute).to_pylist(), strict=True):
        mask[row] |= isinstance(vector_location(DeletionVector.from_row(vector), table_uri), ExternalFile)
    return pa.chunked_array([pa.array(mask)])


def _hot_groups(
    snapshot: Snapshot, files: pa.Table, groups: Int64s, options: OptimizeOptions, now_ms: int
) -> npt.NDArray[np.bool_]:
    """For each group, whether somebody else than this rewriter has written to it lately.

    Who deletes rows by a vector leaves the file's time as it was; but each state that a file had leaves a tombstone. A
    rewrite leaves some, too. It says that it changed no data, but checkpoints say so of everything; there a group of
    which this rewriter has lately written a file gets the benefit of the doubt.
    """
    hot = np.zeros(int(groups.max()) + 1 if len(groups) else 0, np.bool_)
    if options.quiet_minutes is None or not len(groups):
        return hot
    since = now_ms - 60_000 * options.quiet_minutes
    recent = _is_since(files.column("modification_time"), since)
    ours = pc.is_valid(pc.map_lookup(files.column("tags"), pa.scalar(REWRITE_TAG), "first")).to_numpy()
    hot[groups[recent & ~ours]] = True
    rewritten = np.zeros(len(hot), np.bool_)
    rewritten[groups[recent & ours]] = True
    removed = snapshot.tombstones(("deletion_timestamp", "data_change", "partition_values"))
    removed = removed.filter(pa.array(_is_since(removed.column("deletion_timestamp"), since)))
    values = [files.column("partition_values"), removed.column("partition_values")]
    chunks = [chunk for column in values for chunk in column.chunks]
    codes = partition_groups(pa.chunked_array(chunks, values[0].type), snapshot.partition_schema)
    known = np.full(int(codes.max()) + 1, -1, np.int64)
    known[codes[: files.num_rows]] = groups
    of_removed = known[codes[files.num_rows :]]
    changed = pc.fill_null(removed.column("data_change"), True).to_numpy()
    counts = (of_removed >= 0) & (changed | ~rewritten[of_removed])
    hot[of_removed[counts]] = True
    return hot


def _is_since(times_ms: pa.ChunkedArray, since_ms: int) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = pc.fill_null(pc.greater_equal(times_ms, since_ms), False).to_numpy()
    return found


def _written_with(files: pa.Table, tag: str) -> pa.ChunkedArray:
    written_with = pc.map_lookup(files.column("tags"), pa.scalar(REWRITE_TAG), "first")
    return pc.fill_null(pc.equal(written_with, tag), False)


def _target(snapshot: Snapshot, options: OptimizeOptions) -> int:
    if options.target_size_bytes is not None:
        return options.target_size_bytes
    return table_properties.size_bytes(snapshot.properties, "delta.targetFileSize") or DEFAULT_TARGET_BYTES


def _minimum(target: int, options: OptimizeOptions) -> int:
    if options.purge:
        return 0
    if options.min_file_size_bytes is None:
        return int(target * _DEFAULT_MIN_SHARE)
    if options.min_file_size_bytes > target:
        raise InvalidRequest(
            f"min_file_size_bytes ({options.min_file_size_bytes}) is above the target size ({target}): "
            "every run would rewrite what the last one wrote. Give a minimum of at most the target."
        )
    return options.min_file_size_bytes


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
    """Physical rows (-1: unknown or not looked up) and deleted rows of each file.

    Statistics are most of a snapshot's bytes: they are read, streamed, only where some file has deletions.
    """
    vectors = files.column("deletion_vector").combine_chunks()
    deleted = pc.fill_null(pc.struct_field(vectors, "cardinality"), 0).to_numpy(zero_copy_only=False)
    records = np.full(files.num_rows, -1, np.int64)
    with_vector = np.flatnonzero(pc.is_valid(vectors).to_numpy(zero_copy_only=False))
    if len(with_vector) == 0:
        return records, deleted.astype(np.int64)
    keys = files.column("key").take(pa.array(with_vector)).combine_chunks()
    for batch in snapshot.file_batches(["key", "stats", "deletion_vector"], where):
        wanted = pc.and_(pc.is_valid(batch.column("deletion_vector")), pc.is_valid(batch.column("stats")))
        chosen = batch.filter(wanted)
        positions = pc.index_in(chosen.column("key"), value_set=keys).to_pylist()
        for position, text in zip(positions, chosen.column("stats").to_pylist(), strict=True):
            if position is not None:
                records[with_vector[position]] = num_records_of(text)
    return records, deleted.astype(np.int64)


def num_records_of(stats: str) -> int:
    """The physical rows of a file by its statistics; -1: they do not tell."""
    try:
        count = _STATS.decode(stats).numRecords
    except (msgspec.DecodeError, RecursionError):
        return -1  # here statistics are a hint, no more
    return count if count is not None and 0 <= count < 1 << 62 else -1


def _planned_bytes(files: pa.Table, tag: str) -> Int64s:
    """Of each file its size, or what was planned for it, where that was under the present settings."""
    planned = pc.map_lookup(files.column("tags"), pa.scalar(PLANNED_BYTES_TAG), "first")
    believed = pc.and_(_written_with(files, tag), pc.match_substring_regex(planned, "^[0-9]{1,15}$"))
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
    reasons[(num_records >= 0) & (deleted > num_records * options.deleted_rows_ratio)] |= DELETED_ROWS
    reasons[has_vector & (num_records < 0)] |= UNKNOWN_ROWS
    if options.max_file_size_bytes is not None:
        reasons[live > options.max_file_size_bytes] |= LARGE
    if options.full:
        ours = _written_with(files, tag).to_numpy()
        reasons[~ours | has_vector] |= FULL
    return reasons


# -- bins ----------------------------------------------------------------------------------------------------


def _bins(
    files: pa.Table,
    chosen: Int64s,
    packed: Bins,
    sizes: Int64s,
    live: Int64s,
    reasons: npt.NDArray[np.uint8],
    tag: str,
    hot: npt.NDArray[np.bool_],
) -> list[PlannedBin]:
    if len(packed) == 0:
        return []
    order = chosen[packed.order]
    names = _Names(files, order)
    starts, ends = packed.starts.tolist(), packed.ends.tolist()
    bytes_until = np.concatenate([[0], np.cumsum(sizes[order])])
    live_until = np.concatenate([[0], np.cumsum(live[order])])
    partitions = files.column("partition_values").take(pa.array(order[packed.starts]))
    seed = f"{tag}\0".encode()
    found = []
    are_hot = hot[packed.order[packed.starts]].tolist()
    for start, end, partition, is_hot in zip(starts, ends, partitions.to_pylist(), are_hot, strict=True):
        found.append(
            PlannedBin(
                bin_id=hashlib.sha256(seed + names(start, end)).hexdigest()[:32],
                partition_values=dict(partition or ()),
                start=start,
                end=end,
                bytes_in=int(bytes_until[end] - bytes_until[start]),
                live_bytes=int(live_until[end] - live_until[start]),
                reasons=int(np.bitwise_or.reduce(reasons[order[start:end]])),
                hot=is_hot,
            )
        )
    return sorted(found, key=lambda planned: (planned.hot, -planned.live_bytes, planned.bin_id))


def _split(planned: PlannedBin, target: int) -> PlannedBin:
    """A file that is too large is above the target, and so in a bin of its own."""
    if not planned.reasons & LARGE:
        return planned
    count = -(-planned.live_bytes // target)
    return replace(planned, num_outputs=count, bin_id=_digest(planned.bin_id, str(count)))


class _Names:
    """``path NUL deletion-vector-id NUL`` of some files in their order, to be hashed bin by bin.

    Where a file has row ids, they follow the vector: with others it is another source.
    """

    def __init__(self, files: pa.Table, order: Int64s) -> None:
        rows = files.select(_IDENTITY).take(pa.array(order)).combine_chunks()
        paths = rows.column("path").cast(pa.large_string())
        sources = pc.binary_join_element_wise(
            deletion_vector_ids(rows.column("deletion_vector"), pa.large_string()), _row_ids(rows), _text("")
        )
        names = pc.binary_join_element_wise(paths, sources, _text(""), _text("\0"))
        array = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names
        _, offsets, data = array.buffers()
        self._offsets = np.frombuffer(offsets, np.int64)[array.offset :]
        self._data = memoryview(data)

    def __call__(self, start: int, end: int) -> memoryview:
        return self._data[self._offsets[start] : self._offsets[end]]


def _row_ids(rows: pa.Table) -> pa.ChunkedArray | pa.Scalar:
    """The first row id of each file and the version that gave it; the empty text where there is none."""
    first, version = (rows.column(name) for name in ("base_row_id", "default_row_commit_version"))
    if first.null_count == len(first):
        return _text("")
    first, version = (column.cast(pa.large_string()) for column in (first, version))
    joined = pc.binary_join_element_wise(_text("#"), first, _text(":"), pc.fill_null(version, ""), _text(""))
    return pc.coalesce(joined, _text(""))


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())


def _within_budget(
    bins: list[PlannedBin], options: OptimizeOptions, prior: PriorWork
) -> tuple[list[PlannedBin], list[PlannedBin]]:
    """What is done in this run, and what is left; both in their order."""
    if options.max_bytes is None and options.max_files is None:
        return bins, []
    done: set[str] = set()
    bytes_left = None if options.max_bytes is None else options.max_bytes - prior.num_bytes
    files_left = None if options.max_files is None else options.max_files - prior.num_files
    for planned in sorted(bins, key=_worth):
        if bytes_left is not None and planned.bytes_in > bytes_left:
            continue
        if files_left is not None and planned.num_files > files_left:
            continue
        bytes_left = None if bytes_left is None else bytes_left - planned.bytes_in
        files_left = None if files_left is None else files_left - planned.num_files
        done.add(planned.bin_id)
    return [b for b in bins if b.bin_id in done], [b for b in bins if b.bin_id not in done]


def _cut(
    bins: list[PlannedBin], sizes: Int64s, alone: npt.NDArray[np.bool_], options: OptimizeOptions
) -> tuple[PlannedBin, int] | None:
    """Where none of them fits into the budget, one whose first files do, and the end of these.

    :param sizes: of all files in the order of the packing, and ``alone`` which of them are worth a bin of their own.
    """
    for planned in sorted(bins, key=_worth):
        until = np.cumsum(sizes[planned.start : planned.end])
        count = len(until)
        if options.max_bytes is not None:
            count = int(np.searchsorted(until, options.max_bytes, side="right"))
        if options.max_files is not None:
            count = min(count, options.max_files)
        if count < planned.num_files and (count >= 2 or alone[planned.start : planned.start + count].any()):
            return planned, planned.start + count
    return None


def _worth(planned: PlannedBin) -> tuple[bool, float, int, str]:
    # A bin of one removes no file, only deleted rows: those count by the bytes that they free.
    files_per_byte = (planned.num_files - 1) / max(1, planned.bytes_in)
    return planned.hot, -files_per_byte, planned.live_bytes - planned.bytes_in, planned.bin_id


def _renumbered(bins: list[PlannedBin]) -> tuple[PlannedBin, ...]:
    """The bins with their rows in the plan's own table."""
    ends = np.cumsum([planned.num_files for planned in bins]).tolist()
    return tuple(
        replace(planned, start=end - planned.num_files, end=end)
        for planned, end in zip(bins, ends, strict=True)
    )


def _digest(*parts: str) -> str:
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
