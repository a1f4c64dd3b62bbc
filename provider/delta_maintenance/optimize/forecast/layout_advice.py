"""Finds the columns for a layout, by the predicates of typical queries and by statistics alone. Pure.

Columns are taken one after the other: each time the one with which the queries skip most files, as long as that is clearly more than
without it. The forecast (:mod:`delta_maintenance.optimize.forecast.layout_forecast`) draws rows between the bounds of the files. A query
asks for values of one of these rows: for its value in a column, or for the :data:`RANGE_SHARE` of the rows that follow it there. A query
that combines filters with OR asks for values of several rows, and reads what one of the filters reads.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

import msgspec
import numpy as np
import numpy.typing as npt
from msgspec import Struct

from delta_log.errors import InvalidRequest
from delta_log.snapshot.snapshot import Snapshot
from delta_maintenance.layout.layout import KD, MAX_COLUMNS, ZORDER, Layout
from delta_maintenance.optimize.forecast.layout_forecast import BINS, RANGE_SHARE, DrawnRows
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.file_bounds import FileBounds
from delta_maintenance.optimize.plan.plan import OptimizePlan
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.plan.table_layout import usable_column

#: More columns make each other worse.
_MOST_COLUMNS = 4
#: A column that lets queries skip less than this part of the files in addition is not worth its place.
_LEAST_GAIN = 0.01
_ROWS_ASKED = 256
_Floats = npt.NDArray[np.float64]

#: The filters that a query combines with OR. Each has columns, with whether it asks for a range; without columns it reads everything.
Query = Sequence[Mapping[str, bool]]
#: The same, with the numbers of columns.
_Query = Sequence[Mapping[int, bool]]


class LayoutAdvice(Struct, frozen=True):
    """A layout, and what it would gain.

    :param plan: plan of the run that makes the layout.
    :param options: options of that run.
    :param now: the part of the table's bytes that the queries skip, on average, and ``after`` the run.
    :param unusable: why columns of the queries were not considered, by name.
    """

    plan: OptimizePlan
    options: OptimizeOptions
    now: float
    after: float
    unusable: Mapping[str, str]

    @property
    def gain(self) -> float:
        return max(0.0, self.after - self.now)


class _Candidates(Struct, frozen=True):
    """The columns of the queries that a layout may use."""

    paths: tuple[tuple[str, ...], ...]
    names: tuple[str, ...]
    queries: tuple[_Query, ...]
    unusable: Mapping[str, str]

    @classmethod
    def of(cls, snapshot: Snapshot, queries: Sequence[Query]) -> _Candidates:
        found: dict[tuple[str, ...], str] = {}
        unusable: dict[str, str] = {}
        paths: dict[str, tuple[str, ...]] = {}
        for name in {name: None for query in queries for one in query for name in one}:
            try:
                path, full = usable_column(snapshot, name)
            except InvalidRequest as error:
                unusable[name] = str(error)
                continue
            found.setdefault(path, full)
            paths[name] = path
        if len(found) > MAX_COLUMNS:
            raise InvalidRequest(
                f"The queries filter by {len(found)} columns, and at most {MAX_COLUMNS} can be compared. Name the columns of the most "
                "frequent queries."
            )
        numbers = {path: number for number, path in enumerate(found)}
        told = [
            [
                {numbers[paths[name]]: is_range for name, is_range in one.items() if name in paths}
                for one in query
            ]
            for query in queries
        ]
        usable = tuple(query for query in told if any(query))
        return cls(tuple(found), tuple(found.values()), usable, unusable)


def advised_layout(
    snapshot: Snapshot, queries: Sequence[Query], options: OptimizeOptions, now_ms: int
) -> LayoutAdvice | None:
    """Find a layout for some queries of a table that is not clustered; ``None``: no layout would change anything.

    :param options: options of the run, without a layout.
    :raises InvalidRequest: no column of the queries can be used, or there are too many.
    """
    candidates = _Candidates.of(snapshot, queries)
    if not candidates.queries:
        reasons = " ".join(candidates.unusable.values())
        raise InvalidRequest(f"No column of the queries can be used for a layout. {reasons}")
    everything = replace(options, layout=ZORDER, by=candidates.names)
    drawn = _Drawn.of(plan_optimize(snapshot, everything, now_ms), snapshot, candidates.paths)
    chosen = drawn.best_columns(candidates.queries)
    if not chosen:
        return None
    kind = ZORDER if len(chosen) == 1 else KD
    wanted = replace(options, layout=kind, by=tuple(candidates.names[number] for number in chosen))
    plan = plan_optimize(snapshot, wanted, now_ms)
    return _advice(snapshot, plan, wanted, candidates, kind, chosen)


def clustering_advice(
    snapshot: Snapshot, queries: Sequence[Query], options: OptimizeOptions, now_ms: int
) -> LayoutAdvice | None:
    """Say what it would gain to cluster a clustered table; ``None``: there is nothing to do, or nothing is known.

    :param queries: none: for one value in each column of the clustering.
    """
    plan = plan_optimize(snapshot, options, now_ms)
    assert plan.layout is not None
    layout, candidates = plan.layout.layout, _Candidates.of(snapshot, queries)
    paths = tuple(dict.fromkeys((*candidates.paths, *layout.columns)))
    by = [paths.index(path) for path in layout.columns]
    asked = candidates.queries or tuple([{number: False}] for number in by)
    return _advice(
        snapshot,
        plan,
        options,
        msgspec.structs.replace(candidates, paths=paths, queries=asked),
        layout.kind,
        by,
    )


def _advice(
    snapshot: Snapshot,
    plan: OptimizePlan,
    options: OptimizeOptions,
    candidates: _Candidates,
    kind: str,
    by: Sequence[int],
) -> LayoutAdvice | None:
    if not plan.bins:
        return None
    drawn = _Drawn.of(plan, snapshot, candidates.paths)
    if not all(number in one.known for one in drawn.bins for number in by):
        return None
    # What the run does not take stays as it is.
    share = plan.bytes_in / max(1, snapshot.size_bytes)
    now, after = drawn.skipped(candidates.queries, kind, ()), drawn.skipped(candidates.queries, kind, by)
    return LayoutAdvice(plan, options, now, now + (after - now) * min(1.0, share), candidates.unusable)


class _Drawn(Struct, frozen=True, eq=False):
    """Drawn rows of the largest bins of a plan.

    :param weights: the bytes of each bin.
    """

    bins: Sequence[DrawnRows]
    weights: Sequence[int]

    @classmethod
    def of(cls, plan: OptimizePlan, snapshot: Snapshot, paths: tuple[tuple[str, ...], ...]) -> _Drawn:
        bounds = FileBounds.of(snapshot, None, plan.files.column("key"), Layout(ZORDER, paths))
        largest = plan.bins[:BINS]
        return cls(
            [DrawnRows.of(planned, bounds) for planned in largest], [max(1, one.bytes_in) for one in largest]
        )

    def best_columns(self, queries: Sequence[_Query]) -> tuple[int, ...]:
        """Choose columns, the most useful one first."""
        left = {number for query in queries for one in query for number in one}
        left = {number for number in left if all(number in one.known for one in self.bins)}
        chosen: tuple[int, ...] = ()
        reached = 0.0
        while left and len(chosen) < _MOST_COLUMNS:
            ways = {number: self.skipped(queries, KD, (*chosen, number)) for number in sorted(left)}
            best = max(ways, key=lambda number: ways[number])
            if ways[best] < reached + _LEAST_GAIN:
                break
            chosen, reached = (*chosen, best), ways[best]
            left.remove(best)
        return chosen

    def skipped(self, queries: Sequence[_Query], kind: str, by: Sequence[int]) -> float:
        """The part of the files that the queries skip on average: as the files are, or after a layout by some columns."""
        if not self.bins:
            return 0.0
        found = []
        for drawn in self.bins:
            known = list(drawn.known)
            least, most = drawn.laid_out(kind, by) if by else (drawn.low[known], drawn.high[known])
            found.append(np.mean([_skipped(query, drawn, least, most) for query in queries]))
        return float(np.average(found, weights=self.weights))


def _skipped(query: _Query, drawn: DrawnRows, least: _Floats, most: _Floats) -> float:
    """The part of the files that hold nothing of what a query asks for, on average over the rows that it asks for."""
    rows = drawn.values.shape[1]
    asked = np.linspace(0, rows - 1, min(rows, _ROWS_ASKED)).astype(np.int64)
    reads = np.zeros((len(asked), least.shape[1]), np.bool_)
    for place, one in enumerate(query):
        # Another filter asks for another row.
        reads |= _read(one, drawn, least, most, np.roll(asked, place * len(asked) // len(query)))
    return 1 - float(reads.mean())


def _read(
    query: Mapping[int, bool],
    drawn: DrawnRows,
    least: _Floats,
    most: _Floats,
    asked: npt.NDArray[np.int64],
) -> npt.NDArray[np.bool_]:
    """Tell for each row that is asked for, and each file, whether the file has to be read."""
    rows = drawn.values.shape[1]
    reads = np.ones((len(asked), least.shape[1]), np.bool_)
    for number, is_range in query.items():
        if number not in drawn.known:
            continue
        place = drawn.known.index(number)
        begin = end = drawn.values[place][asked]
        if is_range:
            ascending = np.sort(drawn.values[place])
            last = np.searchsorted(ascending, begin) + int(rows * RANGE_SHARE)
            end = ascending[np.minimum(last, rows - 1)]
        reads &= (least[place] <= end[:, None]) & (begin[:, None] <= most[place])
    return reads
