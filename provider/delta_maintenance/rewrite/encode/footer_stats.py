"""Takes bounds and counts of nulls for the log from the footer that the Parquet writer wrote.

Finding the bounds of a column takes a look at each value, which the writer does for the statistics of row groups anyway. The log
uses the writer's results, except where they mean something else:

============================================  ==============================================================
float, double                                 the footer ignores NaN: bounds are computed here
array, map                                    the footer counts nulls by element: counted here
string with values longer than 4,000 bytes    the footer leaves its bounds out: computed here
============================================  ==============================================================
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from decimal import Decimal
from itertools import count
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_log.stats.file_stats import StatsCollector, leaf_values

#: The Parquet writer leaves longer bounds out (its limit is 4,096).
_LONG_TEXT_BYTES = 4_000

_Path = tuple[str, ...]


class FooterStats:
    """Gathers the statistics of a part of a file from its rows and from its footer.

    :param schema: the file's schema.
    """

    def __init__(self, collector: StatsCollector, schema: pa.Schema) -> None:
        self.collector = collector
        wanted = {column.path for column in collector.columns}
        #: The number of each leaf in the file and its type, by path.
        self._in_footer = {
            path: (number, kind)
            for path, number, kind in file_leaves(list(schema), (), count())
            if path in wanted and not pa.types.is_floating(kind)
        }
        self._texts = [path for path, (_, kind) in self._in_footer.items() if pa.types.is_string(kind)]
        self._by_value = wanted - set(self._in_footer)

    def update(self, group: pa.Table) -> None:
        """Add a row group before it is written. Where it has dictionaries, the chunks of a column share one."""
        self.collector.update(group, self._by_value)
        for path in self._texts:
            values = leaf_values(group, path)
            assert values is not None
            if pa.types.is_dictionary(values.type):
                # Rows may have but some of its values.
                if not _has_long(values.chunk(0).dictionary):
                    continue
                values = values.cast(values.type.value_type)
            longest = pc.max(pc.binary_length(values)).as_py()
            if longest is not None and longest > _LONG_TEXT_BYTES:
                found = pc.min_max(values.cast(pa.binary())).as_py()
                self.collector.add(path, 0, pa.array([found["min"], found["max"]], pa.binary()))

    def finish(self, footer: pq.FileMetaData) -> None:
        """Add the footer."""
        for number in range(footer.num_row_groups):
            group = footer.row_group(number)
            if group.num_rows:
                for path, (leaf, kind) in self._in_footer.items():
                    found = group.column(leaf).statistics
                    bounds = [found.min_raw, found.max_raw] if found.has_min_max else None
                    self.collector.add(path, found.null_count, bounds and _extremes(bounds, kind))


def _has_long(values: pa.Array) -> bool:
    longest = pc.max(pc.binary_length(values)).as_py()
    return longest is not None and longest > _LONG_TEXT_BYTES


def file_leaves(
    fields: Sequence[pa.Field], path: _Path, numbers: Iterator[int]
) -> Iterator[tuple[_Path, int, pa.DataType]]:
    """Yield paths, numbers and types of the leaves outside arrays and maps. Leaves inside count for the numbers."""
    for field in fields:
        names = (*path, field.name)
        if pa.types.is_struct(field.type):
            yield from file_leaves(list(field.type), names, numbers)
        elif pa.types.is_nested(field.type):
            inner = [field.type.field(n) for n in range(field.type.num_fields)]
            if pa.types.is_map(field.type):
                inner = [field.type.key_field, field.type.item_field]
            for _ in file_leaves(inner, names, numbers):
                pass
        else:
            yield names, next(numbers), field.type


def _extremes(bounds: list[Any], kind: pa.DataType) -> pa.Array:
    """Convert bounds of a footer to values of their column."""
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return pa.array(bounds, pa.binary())
    if pa.types.is_decimal(kind):
        return pa.array([Decimal(f"{_integer(bound)}E{-kind.scale}") for bound in bounds], kind)
    if pa.types.is_temporal(kind):
        return pa.array(bounds, pa.int32() if pa.types.is_date(kind) else pa.int64()).cast(kind)
    return pa.array(bounds, kind)


def _integer(unscaled: int | bytes) -> int:
    return unscaled if isinstance(unscaled, int) else int.from_bytes(unscaled, "big", signed=True)
