"""How other systems choose the tables of a night: by the rules that their sources and documentation state."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tests.support.fleet.simulated_tables import Floats, SimulatedTables
from tests.support.fleet.table_figures import TARGET_BYTES

Selected = npt.NDArray[np.int64]
Selector = Callable[[SimulatedTables], Selected]
_AMORO_FRAGMENT_BYTES, _AMORO_FRAGMENTS = 16 << 20, 12
_OPENHOUSE_BYTES_PER_SECOND, _OPENHOUSE_GB, _OPENHOUSE_START = 2e6, 2, 0.5
_OPENHOUSE_TABLES, _OPENHOUSE_BUDGET = 10, 1000.0


def every_table(tables: SimulatedTables) -> Selected:
    """OPTIMIZE of each table that has anything to merge."""
    return np.flatnonzero((tables.small >= 2) | tables.is_over)


def small_files_over(limit: int) -> Selector:
    return lambda tables: np.flatnonzero(tables.small > limit)


def amoro(tables: SimulatedTables) -> Selected:
    """Minor: 12 fragments, or two and an hour since the last run. Major: undersized files fill a target, or a tenth is deleted."""
    is_fragment = tables.traits.file_bytes <= _AMORO_FRAGMENT_BYTES
    # A look each night is always more than an hour after the last run.
    minor = is_fragment & (tables.small >= 2)
    major = (tables.small >= 2) & (tables.small_bytes >= TARGET_BYTES)
    return np.flatnonzero(minor | major | tables.is_over)


def _openhouse_order(tables: SimulatedTables) -> tuple[Selected, Floats]:
    """The candidates by falling score, and what each costs in GB-hours."""
    candidates = np.flatnonzero(tables.small >= 2)
    read = tables.small_bytes[candidates]
    gain = tables.small[candidates] - np.ceil(read / TARGET_BYTES)
    # An unpartitioned table with a snapshot within seven days may be overwritten anyway.
    is_written = tables.traits.commits[candidates] > 0
    gain = gain * ~(is_written & ~tables.traits.is_partitioned[candidates])
    cost = read / _OPENHOUSE_BYTES_PER_SECOND / 3600 * _OPENHOUSE_GB + _OPENHOUSE_START
    order = np.argsort(-(0.7 * _normed(gain) - 0.3 * _normed(cost)), kind="stable")
    return candidates[order], cost[order]


def _normed(values: Floats) -> Floats:
    low, high = values.min(), values.max()
    return (values - low) / (high - low) if high > low else np.zeros_like(values)


def openhouse(tables: SimulatedTables) -> Selected:
    """Ten tables by score, until a thousand GB-hours are exceeded."""
    order, cost = _openhouse_order(tables)
    # A candidate is added before the budget is checked.
    fits = np.cumsum(cost) - cost <= _OPENHOUSE_BUDGET
    return order[fits][:_OPENHOUSE_TABLES]


def openhouse_within(read_bytes: float) -> Selector:
    """The same order without the limit of ten, at so many bytes a night on average: what one night exceeds, the next ones lack."""
    left = 0.0

    def select(tables: SimulatedTables) -> Selected:
        nonlocal left
        left += read_bytes
        order, _ = _openhouse_order(tables)
        read = tables.read_bytes()[order]
        chosen = order[np.cumsum(read) - read < left]
        left -= float(read[: len(chosen)].sum())
        return chosen

    return select
