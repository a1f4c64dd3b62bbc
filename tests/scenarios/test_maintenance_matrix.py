"""The cells that `./dev test slow` runs have every pair, and the table of a run says what was not run."""

from __future__ import annotations

from itertools import combinations

from tests.support.runs.maintenance_matrix import (
    CELLS_AT_ONCE,
    OPERATIONS,
    SITUATIONS,
    WAYS,
    Cell,
    all_cells,
    cells_of,
    selected,
    table_of,
)


def pairs(cell: Cell) -> set[tuple[str, str]]:
    kind = SITUATIONS[cell.situation]
    found = set(combinations((cell.operation, cell.place, cell.how_it_waits, kind), 2))
    return found | {(cell.how_it_waits, cell.situation)}


def test_the_selection_has_every_pair_and_is_the_same_each_time() -> None:
    cells = all_cells()
    chosen = selected(cells)
    assert set(chosen) <= set(cells)
    assert {pair for cell in chosen for pair in pairs(cell)} == {
        pair for cell in cells for pair in pairs(cell)
    }
    assert {cell.situation for cell in chosen} == set(SITUATIONS)
    assert chosen == selected(all_cells())
    assert len(chosen) < len(cells) / 10


def test_the_cells_of_a_situation_run_side_by_side() -> None:
    """Then a situation takes as long as its longest cell, and most of that is waiting."""
    chosen = selected(all_cells())
    assert max(len(cells_of(situation, chosen)) for situation in SITUATIONS) <= CELLS_AT_ONCE


def test_each_operation_each_way_and_each_situation_occurs() -> None:
    cells = all_cells()
    for names, index in ((OPERATIONS, "operation"), (WAYS, "way"), (SITUATIONS, "situation")):
        assert {getattr(cell, index) for cell in cells} == set(names)


def test_the_table_tells_what_was_run_what_was_not_and_what_does_not_apply() -> None:
    lines = table_of({Cell("purge", "client", "outage"): "yes"}).splitlines()
    (line,) = (line for line in lines if line.startswith("| outage | client |"))
    assert line == "| outage | client | not run | yes | not run | does not apply |"
    (line,) = (line for line in lines if line.startswith("| outage | connect deferred |"))
    assert line == "| outage | connect deferred | not run | not run | does not apply | does not apply |"
