"""Plans OPTIMIZE and REORG PURGE: which files of a snapshot to rewrite together. Pure: nothing is written.

1. Choose candidates (:mod:`delta_maintenance.optimize.plan.candidates`): small files, files with many or an unknown number
   of deleted rows and, on request, files that are too large or not written by this rewriter under the present settings. A
   purge chooses files with deleted rows or dropped columns, whatever their size.
   A layout chooses by rules of its own (:mod:`delta_maintenance.optimize.plan.layout_candidates`).
2. Group them by partition and pack each group next-fit (:mod:`delta_maintenance.optimize.plan.bin_packing`). A bin of one
   file is kept only if the file was chosen for more than its size. A small file is only put together with others that are
   worth rewriting it (:data:`MERGE_FACTOR`).
3. Put the biggest bins first, so that parallel workers end together. Bins of hot partitions come last, or wait
   (:mod:`delta_maintenance.optimize.plan.hot_partitions`).
4. Take the bins that the budget allows (:mod:`delta_maintenance.optimize.plan.budget`).

The same files and options give the same bins, ids and digest, whichever checkpoint the snapshot came from, and whatever an
earlier try of the run has finished. Files stay rows of an Arrow table; Python objects are made per bin.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct
from msgspec.structs import replace

from delta_log.arrow.arrays import arrow_array
from delta_log.errors import InvalidRequest
from delta_log.snapshot.snapshot import Snapshot
from delta_log.table_config.clustering import CUBE_COLUMNS_TAG, CUBE_TAG
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.bin_id import BinIds, split_bin_id
from delta_maintenance.optimize.plan.bin_packing import Bins, Int64s, MergeRule, pack
from delta_maintenance.optimize.plan.budget import NOTHING_BEFORE, PriorWork, cut_bin, within_budget
from delta_maintenance.optimize.plan.candidates import Candidates
from delta_maintenance.optimize.plan.hot_partitions import hot_groups
from delta_maintenance.optimize.plan.layout_candidates import DEFAULT_SEAL_BYTES
from delta_maintenance.optimize.plan.plan import LARGE, SMALL, LeftWork, OptimizePlan, PlannedBin
from delta_maintenance.optimize.plan.rewrite_tag import digest, rewrite_settings_digest, target_size
from delta_maintenance.optimize.plan.selection import (
    CLEAN,
    FINISHED,
    FOREIGN,
    HOT,
    LAID_OUT,
    LARGE_ENOUGH,
    OUTSIDE_WHERE,
    OVER_BUDGET,
    UNDECIDED,
    UP_TO_DATE,
    FileCount,
    Selection,
)
from delta_maintenance.optimize.plan.table_layout import TableLayout, clustered_columns, table_layout

_DEFAULT_MIN_SHARE = 0.75
#: A file joins smaller ones if it is at most so many times as large as they are together. With a hundred files of 1 MB each
#: night, a byte is rewritten two and a half times before its file is large enough.
MERGE_FACTOR = 1.5
#: A file smaller than this part of the target always joins.
_FREE_SHARE = 64
#: More than all files of a table.
_NO_LIMIT = 1 << 60


def plan_optimize(
    snapshot: Snapshot,
    options: OptimizeOptions,
    now_ms: int,
    prior: PriorWork = NOTHING_BEFORE,
    with_dropped_columns: Sequence[str] = (),
) -> OptimizePlan:
    """Plan one run.

    :param now_ms: present time, which decides which partitions are hot.
    :param prior: what earlier tries of the run have finished.
    :param with_dropped_columns: keys of files that hold columns which the table has dropped.
    :raises InvalidRequest: the options make no sense for this table.
    """
    target = target_size(snapshot, options)
    minimum = min_file_size(target, options)
    layout = table_layout(snapshot, options)
    tag = rewrite_settings_digest(snapshot, target, layout)
    _require_maximum(target, options)
    candidates = Candidates.of(snapshot, options, tag, minimum, prior.keys, with_dropped_columns, layout)
    packing = _Packing.of(snapshot, candidates, options, tag, target, now_ms, layout)
    bins = packing.describe(packing.bins)
    waiting = [planned for planned in bins if planned.hot and options.hot_partitions == "wait"]
    ready = [planned for planned in bins if not (planned.hot and options.hot_partitions == "wait")]
    kept, left = within_budget(ready, options, prior)
    if left and not kept and not prior.num_files and (layout is None or layout.is_clustering):
        kept, left = packing.cut(left, options)
    rows = packing.rows_of(kept)
    return OptimizePlan(
        read_version=snapshot.version,
        planned_ms=now_ms,
        options=options,
        target_size_bytes=target,
        min_file_size_bytes=minimum,
        rewrite_tag=tag,
        files=candidates.files.take(arrow_array(rows)),
        num_records=candidates.num_records[rows],
        bins=_renumbered(kept),
        considered_files=candidates.files.num_rows,
        considered_bytes=int(candidates.sizes.sum()),
        chosen_files=candidates.count_by_reason(),
        left_by_budget=LeftWork.of(left),
        left_as_hot=LeftWork.of(waiting),
        digest=digest(tag, *sorted({planned.bin_id for planned in kept} | prior.bin_ids)),
        foreign=candidates.foreign,
        selection=packing.selection(FileCount.of_table(snapshot), kept, left, waiting, options, minimum),
        layout=layout,
        clustered_by=clustered_columns(snapshot),
        warnings=() if candidates.unreadable is None else (candidates.unreadable,),
    )


def min_file_size(target: int, options: OptimizeOptions) -> int:
    """The size below which a file is small.

    :param target: target size of new files.
    :raises InvalidRequest: the options ask for one above the target.
    """
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


def _require_maximum(target: int, options: OptimizeOptions) -> None:
    if options.max_file_size_bytes is not None and options.max_file_size_bytes < target:
        raise InvalidRequest(
            f"max_file_size_bytes ({options.max_file_size_bytes}) is below the target size ({target}): every run would "
            "split what the last one put together. Give a maximum of at least the target."
        )


class _Packing(Struct, frozen=True, eq=False):
    """The chosen files in bins.

    :param chosen: the rows of the candidates that were chosen.
    :param bins: indices into `chosen`.
    :param alone: mask of the chosen files that are worth a bin of their own; ``hot``: mask of the chosen files in hot partitions.
    """

    candidates: Candidates
    tag: str
    target: int
    chosen: Int64s
    bins: Bins
    alone: npt.NDArray[np.bool_]
    hot: npt.NDArray[np.bool_]
    layout: TableLayout | None

    @classmethod
    def of(
        cls,
        snapshot: Snapshot,
        candidates: Candidates,
        options: OptimizeOptions,
        tag: str,
        target: int,
        now_ms: int,
        layout: TableLayout | None,
    ) -> _Packing:
        files, groups, cubes = candidates.files, candidates.groups, candidates.cubes
        chosen = np.flatnonzero(candidates.reasons)
        alone = candidates.reasons[chosen] > SMALL  # chosen for more than its size
        paths = files.column("path").take(arrow_array(chosen))
        together, live = groups[chosen], candidates.live[chosen]
        hot = hot_groups(snapshot, files, groups, options.quiet_minutes, now_ms)[together]
        if layout is not None:
            # A layout is the better the more rows it divides. A cube is closed when it is large enough.
            seal_bytes = options.seal_size_bytes or DEFAULT_SEAL_BYTES
            most = seal_bytes + seal_bytes // 2 if layout.is_clustering else _NO_LIMIT
            first_by = cubes[chosen] if cubes is not None else None
            bins = pack(together, live, paths, most, alone, first_by=first_by)
        else:
            if cubes is not None:
                together = together * (int(cubes.max(initial=0)) + 1) + cubes[chosen]
            merge_rule = MergeRule(MERGE_FACTOR, target // _FREE_SHARE)
            bins = pack(together, live, paths, target, alone, merge_rule)
        return cls(candidates, tag, target, chosen, bins, alone, hot, layout)

    def describe(self, bins: Bins) -> list[PlannedBin]:
        """The bins as planned, biggest first, bins of hot partitions last."""
        found = [self._divided(planned) for planned in self._described(bins)]
        return sorted(found, key=lambda planned: (planned.hot, -planned.live_bytes, planned.bin_id))

    def _divided(self, planned: PlannedBin) -> PlannedBin:
        """Decide how many files a bin becomes, and which cube they belong to."""
        count = 1
        if self.layout is not None:
            # Rounded, not rounded up: two files of little more than half the target would count as small.
            count = max(1, round(planned.live_bytes / self.target))
        elif planned.reasons & LARGE:
            # It is above the target, and so in a bin of its own.
            count = -(-planned.live_bytes // self.target)
        bin_id = split_bin_id(planned.bin_id, count)
        return replace(
            planned, num_outputs=count, bin_id=bin_id, clustering=self._clustering(planned, bin_id)
        )

    def _clustering(self, planned: PlannedBin, bin_id: str) -> tuple[str, Mapping[str, str]] | None:
        layout, cubes = self.layout, self.candidates.cubes
        if layout is not None:
            return None if layout.provider is None else (layout.provider, layout.cube_tags(bin_id))
        row = int(self.chosen[self.bins.order[planned.start]])
        if cubes is None or not cubes[row]:
            return None
        # A purge leaves a cube as it is, but for the rows that are gone.
        file = self.candidates.files.slice(row, 1)
        provider = file.column("clustering_provider")[0].as_py()
        tags = dict(file.column("tags")[0].as_py() or ())
        return provider, {name: tags[name] for name in (CUBE_TAG, CUBE_COLUMNS_TAG) if tags.get(name)}

    def _described(self, bins: Bins) -> list[PlannedBin]:
        if len(bins) == 0:
            return []
        candidates, order = self.candidates, self.chosen[bins.order]
        ids = BinIds(candidates.files, order, self.tag)
        starts, ends = bins.starts.tolist(), bins.ends.tolist()
        bytes_until = np.concatenate([[0], np.cumsum(candidates.sizes[order])])
        live_until = np.concatenate([[0], np.cumsum(candidates.live[order])])
        partitions = candidates.files.column("partition_values").take(arrow_array(order[bins.starts]))
        are_hot = self.hot[bins.order[bins.starts]].tolist()
        return [
            PlannedBin(
                bin_id=ids.of(start, end),
                partition_values=dict(partition or ()),
                start=start,
                end=end,
                bytes_in=int(bytes_until[end] - bytes_until[start]),
                live_bytes=int(live_until[end] - live_until[start]),
                reasons=int(np.bitwise_or.reduce(candidates.reasons[order[start:end]])),
                hot=is_hot,
            )
            for start, end, partition, is_hot in zip(
                starts, ends, partitions.to_pylist(), are_hot, strict=True
            )
        ]

    def cut(
        self, bins: list[PlannedBin], options: OptimizeOptions
    ) -> tuple[list[PlannedBin], list[PlannedBin]]:
        """Cut one of the bins to the budget, where no bin fits as a whole.

        :return: the part that fits, if any, and what is left.
        """
        order = self.bins.order
        found = cut_bin(bins, self.candidates.sizes[self.chosen[order]], self.alone[order], options)
        if found is None:
            return [], bins
        whole, end = found
        halves = Bins(order, np.array([whole.start, end]), np.array([end, whole.end]))
        parts = sorted(self.describe(halves), key=lambda part: part.start)
        return parts[:1], [*parts[1:], *(other for other in bins if other is not whole)]

    def selection(
        self,
        table: FileCount,
        kept: list[PlannedBin],
        left: list[PlannedBin],
        waiting: list[PlannedBin],
        options: OptimizeOptions,
        minimum: int,
    ) -> Selection:
        """Count what was chosen and left.

        :param table: the live files of the planned version.
        :param left: bins that the budget leaves; ``waiting``: bins of hot partitions.
        """
        candidates = self.candidates
        foreign = FileCount(candidates.foreign.files, candidates.foreign.bytes)
        kept_out = candidates.reasons == 0
        for_others = {}
        for reason, files in candidates.kept_for.items():
            for_others[reason] = candidates.count(np.flatnonzero(kept_out & files))
            kept_out &= ~files
        found = {
            _reason_to_leave(options, self.layout): candidates.count(np.flatnonzero(kept_out)),
            **for_others,
            **{reason: candidates.count(self.chosen[rows]) for reason, rows in self.bins.left.items()},
            HOT: _file_count(waiting),
            OVER_BUDGET: _file_count(left),
            FOREIGN: foreign,
            FINISHED: candidates.finished,
            UNDECIDED: candidates.undecided,
        }
        seen = FileCount(candidates.files.num_rows, int(candidates.sizes.sum()))
        others = [seen, foreign, candidates.finished, candidates.undecided]
        found[OUTSIDE_WHERE] = FileCount(
            table.files - sum(count.files for count in others),
            max(0, table.bytes - sum(count.bytes for count in others)),
        )
        return Selection(
            table=table,
            chosen=_file_count(kept),
            bins=len(kept),
            partitions=len(
                {tuple(planned.partition_values.items()) for planned in kept if planned.partition_values}
            ),
            chosen_by_reason=candidates.count_by_reason(self.rows_of(kept)),
            left={reason: count for reason, count in found.items() if count.files},
            small_below_bytes=minimum,
        )

    def rows_of(self, bins: list[PlannedBin]) -> Int64s:
        """The rows of the candidates in some bins, in their order."""
        rows = [self.chosen[self.bins.order[planned.start : planned.end]] for planned in bins]
        return np.concatenate(rows or [np.empty(0, np.int64)])


def _reason_to_leave(options: OptimizeOptions, layout: TableLayout | None) -> str:
    """Why files that no rule chooses are left."""
    if options.purge:
        return CLEAN
    if layout is not None:
        return LAID_OUT
    return UP_TO_DATE if options.full else LARGE_ENOUGH


def _file_count(bins: list[PlannedBin]) -> FileCount:
    return FileCount(sum(planned.num_files for planned in bins), sum(planned.bytes_in for planned in bins))


def _renumbered(bins: list[PlannedBin]) -> tuple[PlannedBin, ...]:
    """Point the bins to their rows in the table of the plan."""
    ends = np.cumsum([planned.num_files for planned in bins]).tolist()
    return tuple(
        replace(planned, start=end - planned.num_files, end=end)
        for planned, end in zip(bins, ends, strict=True)
    )
