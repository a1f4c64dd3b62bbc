"""Decides which statistics are missing or untrue. Pure.

Protocol section "Per-file Statistics". Statistics are *missing* where a file has no ``numRecords``, or a column that should have statistics has
no ``nullCount``. They are *untrue* where a count is wrong, or a bound excludes a value of the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.errors import CorruptLog
from delta_log.stats.file_stats import StatsColumn, parse_stats
from delta_log.stats.stats_columns import parse_stats_column

#: Other writers round the maximum of a timestamp down to milliseconds, and readers know that.
_ROUNDED = timedelta(milliseconds=1)


def are_missing(stats: pa.StringArray, columns: Sequence[StatsColumn]) -> pa.BooleanArray:
    """Tell of each file whether it lacks statistics, by the log alone.

    :param stats: JSON texts of the files.
    :param columns: columns that should have statistics.
    """
    parsed = parse_stats_column(stats, columns)
    missing = pc.is_null(pc.struct_field(parsed, "numRecords"))
    for column in columns:
        missing = pc.or_(missing, pc.is_null(pc.struct_field(parsed, ["nullCount", *column.path])))
    return missing


def are_untrue(stats: str, exact: str, columns: Sequence[StatsColumn]) -> bool:
    """Tell whether the statistics of a file contradict the file.

    :param exact: statistics that were just computed, with uncut strings.
    """
    try:
        said = parse_stats(stats, columns)
    except CorruptLog:
        return True
    true = parse_stats(exact, columns)
    if said.num_records != true.num_records:
        return True
    if any(true.null_count.get(path, nulls) != nulls for path, nulls in said.null_count.items()):
        return True
    # Spark orders NaN above all numbers, and says so: such a maximum holds, and so does its minimum.
    nan = {path for path, high in said.max_values.items() if high != high}  # noqa: PLR0124 - only NaN differs from itself
    lows = ((low, true.min_values.get(path)) for path, low in said.min_values.items() if path not in nan)
    highs = (
        (true.max_values.get(path), _rounded_up(high))
        for path, high in said.max_values.items()
        if path not in nan
    )
    return any(_excludes(lower, upper) for lower, upper in (*lows, *highs))


def _excludes(lower: Any, upper: Any) -> bool:
    """Tell whether a lower bound is above an upper one. A bound where the file has none, as with a NaN, is untrue, too."""
    return lower is None or upper is None or bool(lower > upper)


def _rounded_up(high: Any) -> Any:
    return high + _ROUNDED if isinstance(high, datetime) else high
