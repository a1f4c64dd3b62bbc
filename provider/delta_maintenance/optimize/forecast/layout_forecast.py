"""Foretells, for a dry run, which part of the files queries will skip after a layout, and which they skip now; and measures it after
the run. Pure.

Only statistics are read. Rows are drawn at random between the bounds of their files, each column by itself, and laid out as the run
would do it. So the forecast is good for columns that do not depend on each other within a file, and too low for others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from delta_log.snapshot.snapshot import Snapshot
from delta_maintenance.layout.bucketing import Bucketing, random_noise
from delta_maintenance.optimize.plan.bin_packing import Int64s
from delta_maintenance.optimize.plan.file_bounds import FileBounds
from delta_maintenance.optimize.plan.plan import OptimizePlan, PlannedBin

#: The share of the rows that a query for a range asks for.
RANGE_SHARE = 0.02
#: The largest bins tell enough.
BINS = 8
#: More files than these would be skipped to nearly the same part.
_MOST_FILES = 512
_ROWS_OF_A_FILE, _LEAST_ROWS, _QUERIES = 64, 1 << 12, 256
_Floats = npt.NDArray[np.float64]
_Parts = tuple[float, float, float, float]


def layout_forecast(plan: OptimizePlan, snapshot: Snapshot) -> dict[str, Any]:
    """Return the member ``skipping`` of a plan's summary: for each column, the parts of files that queries skip; nothing without a
    layout.

    A column has ``now`` and ``after`` for queries for one value, and ``rangeNow`` and ``rangeAfter`` for queries for
    :data:`RANGE_SHARE` of the rows. It has none of them if a file has no bounds of it.
    """
    if plan.layout is None or not plan.bins:
        return {}
    bounds = FileBounds.of(snapshot, None, plan.files.column("key"), plan.layout.layout)
    largest = plan.bins[:BINS]
    found = [_forecast(plan, planned, bounds) for planned in largest]
    keys = ("now", "after", "rangeNow", "rangeAfter")
    return {"skipping": _averages(plan.layout.names, keys, largest, found)}


def measured_skipping(
    plan: OptimizePlan, snapshot: Snapshot, written: Mapping[str, Sequence[str | None]]
) -> list[dict[str, Any]] | None:
    """Return the member ``skipping`` of a report: what queries skip of the files that a run wrote, and skipped of those that these
    replace; ``None`` without a layout.

    :param written: statistics of the new files of each bin, by bin id.
    """
    largest = [planned for planned in plan.bins if written.get(planned.bin_id)][:BINS]
    if plan.layout is None or not largest:
        return None
    layout = plan.layout.layout
    sources = FileBounds.of(snapshot, None, plan.files.column("key"), layout)
    found: list[list[_Parts | None]] = []
    for planned in largest:
        texts = pa.array(written[planned.bin_id], pa.string())
        new = FileBounds.of_stats(snapshot.schema, texts, layout)
        of_bin = slice(planned.start, planned.end)
        drawn = DrawnRows.between(new.low, new.high, new.rows, len(texts))
        found.append([None] * len(new.low))
        for place, number in enumerate(drawn.known):
            low, high = sources.low[number, of_bin], sources.high[number, of_bin]
            if np.isfinite(low).all() and np.isfinite(high).all():
                found[-1][number] = _parts(
                    drawn.values[place], (low, high), (new.low[number], new.high[number])
                )
    keys = ("before", "after", "rangeBefore", "rangeAfter")
    return _averages(plan.layout.names, keys, largest, found)


def _averages(
    names: Sequence[str],
    keys: Sequence[str],
    bins: Sequence[PlannedBin],
    found: Sequence[Sequence[_Parts | None]],
) -> list[dict[str, Any]]:
    """Average the parts of each column over the bins.

    :param keys: names of the parts.
    """
    weights = np.array([max(1, planned.bytes_in) for planned in bins], float)
    columns = []
    for number, name in enumerate(names):
        known = [part for part in (one[number] for one in found) if part is not None]
        entry: dict[str, Any] = {"column": name}
        if len(known) == len(found):
            shares = np.average(np.array(known), axis=0, weights=weights)
            entry |= {key: round(float(share), 3) for key, share in zip(keys, shares, strict=True)}
        columns.append(entry)
    return columns


class DrawnRows(Struct, frozen=True, eq=False):
    """Rows that are drawn between the bounds of a bin's files.

    :param low: lower bounds of each column in the files as they are; ``high``: the upper bounds.
    :param files: the number of new files.
    :param known: numbers of the columns of which all files have bounds.
    :param values: values of these columns in the drawn rows.
    """

    low: _Floats
    high: _Floats
    files: int
    known: tuple[int, ...]
    values: _Floats

    @classmethod
    def of(cls, planned: PlannedBin, bounds: FileBounds) -> DrawnRows:
        of_bin = slice(planned.start, planned.end)
        low, high, rows = bounds.low[:, of_bin], bounds.high[:, of_bin], bounds.rows[of_bin]
        return cls.between(low, high, rows, planned.num_outputs)

    @classmethod
    def between(cls, low: _Floats, high: _Floats, rows: Int64s, num_outputs: int) -> DrawnRows:
        known = np.flatnonzero(np.isfinite(low).all(axis=1) & np.isfinite(high).all(axis=1))
        files = min(num_outputs, _MOST_FILES)
        count = max(_LEAST_ROWS, _ROWS_OF_A_FILE * files)
        generator = np.random.default_rng(0)
        of_file = generator.choice(len(rows), count, p=rows / rows.sum())
        spread = generator.random((len(known), count)) * (high - low)[known][:, of_file]
        return cls(low, high, files, tuple(known.tolist()), low[known][:, of_file] + spread)

    def laid_out(self, kind: str, by: Sequence[int]) -> tuple[_Floats, _Floats]:
        """Return the bounds of the known columns in the new files of a layout.

        :param by: numbers of the layout's columns, which must be known.
        """
        columns = [pa.array(self.values[self.known.index(number)]) for number in by]
        noise = random_noise("forecast", 0, self.values.shape[1])
        buckets, _ = Bucketing.of(kind, columns, self.files, 1, noise)(columns, noise)
        shape = (len(self.known), self.files)
        least, most = np.full(shape, np.inf), np.full(shape, -np.inf)
        for place, values in enumerate(self.values):
            np.minimum.at(least[place], buckets, values)
            np.maximum.at(most[place], buckets, values)
        return least, most


def _forecast(plan: OptimizePlan, planned: PlannedBin, bounds: FileBounds) -> list[_Parts | None]:
    """The parts of a bin's files that are skipped, by column; ``None`` where bounds are missing."""
    assert plan.layout is not None
    drawn = DrawnRows.of(planned, bounds)
    found: list[_Parts | None] = [None] * len(drawn.low)
    if not drawn.known:
        return found
    least, most = drawn.laid_out(plan.layout.layout.kind, drawn.known)
    for place, number in enumerate(drawn.known):
        now, after = (drawn.low[number], drawn.high[number]), (least[place], most[place])
        found[number] = _parts(drawn.values[place], now, after)
    return found


def _parts(values: _Floats, before: tuple[_Floats, _Floats], after: tuple[_Floats, _Floats]) -> _Parts:
    """The parts of files that queries skip, before and after, for one value and for a range.

    :param values: values that are asked for.
    :param before: the bounds of the files.
    """
    asked = _queries(values)
    return (
        _skipped(asked[0], asked[0], *before),
        _skipped(asked[0], asked[0], *after),
        _skipped(*asked, *before),
        _skipped(*asked, *after),
    )


def _queries(values: _Floats) -> tuple[_Floats, _Floats]:
    """The ends of ranges that hold :data:`RANGE_SHARE` of the values; the first ends are values of random rows."""
    ascending = np.sort(values)
    width = int(len(values) * RANGE_SHARE)
    first = np.linspace(0, len(values) - 1 - width, _QUERIES).astype(np.int64)
    return ascending[first], ascending[first + width]


def _skipped(begin: _Floats, end: _Floats, least: _Floats, most: _Floats) -> float:
    """The part of the files that hold nothing between the ends, on average over the queries."""
    return 1 - float(((least <= end[:, None]) & (begin[:, None] <= most)).mean())
