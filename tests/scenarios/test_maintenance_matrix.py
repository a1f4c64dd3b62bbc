"""The cells that `./dev test` runs leave no way of waiting and no operation out, and the table of a run says what was not run."""

from __future__ import annotations

from tests.support.runs.maintenance_matrix import (
    OPERATIONS,
    SITUATIONS,
    WAYS,
    Cell,
    all_cells,
    selected,
    table_of,
)


def test_the_selection_has_each_situation_in_each_way_of_waiting_and_each_operation_in_each_place() -> None:
    cells = all_cells()
    chosen = selected(cells)
    assert set(chosen) <= set(cells)
    for one, other in (("situation", "how_it_waits"), ("operation", "place")):
        wanted = {(getattr(cell, one), getattr(cell, other)) for cell in cells}
        assert {(getattr(cell, one), getattr(cell, other)) for cell in chosen} == wanted
    assert chosen == selected(all_cells())
    assert len(chosen) < len(cells) / 10


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
