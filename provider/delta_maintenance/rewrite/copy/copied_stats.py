"""Gathers the log's statistics of a new file. Those of copied row groups come from their footers.

================================================  ====================================================
statistics                                        in the log
================================================  ====================================================
bounds that the new footer keeps                  as there
bounds of floats that it leaves out               found by reading the column, if the caller does so
other bounds that it leaves out                   left out, unless all is null
nulls outside of arrays and maps                  as counted in the footer; left out if it has no count
nulls of arrays and maps                          left out: the footer counts nulls by element
================================================  ====================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa

from delta_log.stats.file_stats import StatsCollector, StatsColumn
from delta_maintenance.rewrite.encode.footer_stats import file_leaves
from parquet_parts.assembled_file import OmittedClaims
from parquet_parts.footer import RowGroup

#: The types of the physical types INT32, INT64, FLOAT and DOUBLE.
_FIXED = {1: pa.int32(), 2: pa.int64(), 4: pa.float32(), 5: pa.float64()}


class NewFileStats:
    """Gathers the statistics of the parts of a file.

    :param new_stats: function that makes an empty collector.
    :param schema: the file's schema.
    """

    def __init__(self, new_stats: Callable[[], StatsCollector], schema: pa.Schema) -> None:
        self._encoded, collector = new_stats(), new_stats()
        self._collector = collector
        leaves = {path: (number, kind) for path, number, kind in file_leaves(list(schema), (), count())}
        self._leaves = [
            _Gathered(column.path, *leaves[column.path])
            for column in collector.columns
            if column.path in leaves
        ]
        self._uncounted = [column.path for column in collector.columns if column.path not in leaves]
        self.num_rows = 0

    def include(self, stats: StatsCollector) -> None:
        """Add rows that were encoded."""
        self._encoded.include(stats)

    def add(
        self, groups: Iterable[RowGroup], distrust: OmittedClaims, found: StatsCollector | None = None
    ) -> None:
        """Add row groups that are copied.

        :param distrust: what the new file leaves out of them.
        :param found: the bounds of some columns that were read.
        """
        known = set()
        if found is not None:
            self._collector.include_bounds(found)
            known = {column.path for column in found.columns}
        for group in groups:
            self.num_rows += group.num_rows
            chunks = group.chunks
            for leaf in self._leaves:
                chunk = chunks[leaf.number]
                if leaf.null_count is not None:
                    nulls = chunk.null_count
                    leaf.null_count = None if nulls is None else leaf.null_count + nulls
                if not leaf.is_bounded or chunk.is_null or leaf.path in known:
                    continue
                bounds = None if leaf.number in distrust.bounds else chunk.bounds
                if bounds is None:
                    leaf.is_bounded = False
                else:
                    leaf.physical_type = chunk.form.physical_type
                    leaf.bounds += bounds

    def finish(self) -> StatsCollector:
        """Return the statistics of all parts."""
        self._collector.num_records += self.num_rows
        if self.num_rows:
            self._finish_copied()
        self._encoded.include(self._collector)
        return self._encoded

    def _finish_copied(self) -> None:
        for path in self._uncounted:
            self._collector.leave_out(path)
        for leaf in self._leaves:
            extremes = leaf.extremes() if leaf.is_bounded else None
            self._collector.add(leaf.path, leaf.null_count, extremes)
            if not leaf.is_bounded:
                self._collector.leave_out(leaf.path, nulls=False)


def unknown_floats(
    columns: Sequence[StatsColumn], schema: pa.Schema, distrust: OmittedClaims
) -> dict[int, StatsColumn]:
    """Return the float columns with statistics whose bounds a footer does not tell for sure, by the numbers of their leaves."""
    by_path = {column.path: column for column in columns}
    return {
        number: by_path[path]
        for path, number, kind in file_leaves(list(schema), (), count())
        if path in by_path and pa.types.is_floating(kind) and number in distrust.bounds
    }


class _Gathered:
    """The statistics of one leaf outside of arrays and maps."""

    __slots__ = ("bounds", "is_bounded", "kind", "null_count", "number", "path", "physical_type")

    def __init__(self, path: tuple[str, ...], number: int, kind: pa.DataType) -> None:
        self.path, self.number, self.kind = path, number, kind
        self.null_count: int | None = 0
        self.is_bounded = True
        self.bounds: list[bytes] = []
        self.physical_type = -1

    def extremes(self) -> pa.Array | None:
        """Return the least and the greatest value among others; ``None`` if there are none, or they are malformed."""
        if not self.bounds:
            return None
        try:
            return self._decoded()
        except (ValueError, ArithmeticError, pa.ArrowException):
            self.is_bounded = False
            return None

    def _decoded(self) -> pa.Array | None:
        kind, raw = self.kind, self.bounds
        if pa.types.is_string(kind) or pa.types.is_binary(kind):
            return pa.array([min(raw), max(raw)], pa.binary())
        if pa.types.is_boolean(kind):
            return None
        if self.physical_type not in _FIXED:
            numbers = [int.from_bytes(value, "big", signed=True) for value in raw]
            return self._decimals(numbers)
        stored = _FIXED[self.physical_type]
        if any(8 * len(value) != stored.bit_width for value in raw):
            raise ValueError("a bound has another width than its type")
        values = pa.Array.from_buffers(stored, len(raw), [None, pa.py_buffer(b"".join(raw))])
        if pa.types.is_decimal(kind):
            return self._decimals(values.to_pylist())
        return values.cast(kind)

    def _decimals(self, numbers: list[int]) -> pa.Array:
        ends: list[Any] = [Decimal(f"{number}E{-self.kind.scale}") for number in (min(numbers), max(numbers))]
        return pa.array(ends, self.kind)
