from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_maintenance.layout.curves import cells_of_hilbert, cells_of_z, hilbert_codes, z_codes

GRIDS = [(1, 6), (2, 1), (2, 5), (3, 3), (4, 3), (5, 2), (9, 1)]
dimensions_and_bits = st.sampled_from([(1, 64), (2, 32), (3, 20), (4, 16), (7, 9), (9, 7), (32, 2), (64, 1)])


@pytest.mark.parametrize(("dimensions", "bits"), GRIDS)
@pytest.mark.parametrize(("codes_of", "cells_of"), [(z_codes, cells_of_z), (hilbert_codes, cells_of_hilbert)])
def test_a_curve_visits_each_cell_of_a_grid_once(
    codes_of: object, cells_of: object, dimensions: int, bits: int
) -> None:
    codes = np.arange(1 << (dimensions * bits), dtype=np.uint64)
    cells = cells_of(codes, dimensions, bits)  # type: ignore[operator]
    assert (codes_of(cells, bits) == codes).all()  # type: ignore[operator]
    assert len(set(zip(*(cell.tolist() for cell in cells), strict=True))) == len(codes)


@pytest.mark.parametrize(("dimensions", "bits"), GRIDS)
def test_neighbours_on_the_hilbert_curve_are_neighbours_in_the_grid(dimensions: int, bits: int) -> None:
    cells = cells_of_hilbert(np.arange(1 << (dimensions * bits), dtype=np.uint64), dimensions, bits)
    steps = np.sum([np.abs(np.diff(cell.astype(np.int64))) for cell in cells], axis=0)
    assert (steps == 1).all()


@given(dimensions_and_bits, st.data())
def test_codes_have_an_inverse_with_all_64_bits(shape: tuple[int, int], data: st.DataObject) -> None:
    dimensions, bits = shape
    coordinate = st.integers(0, (1 << bits) - 1)
    rows = data.draw(st.lists(st.tuples(*[coordinate] * dimensions), min_size=1, max_size=20), label="cells")
    cells = [np.array(column, np.uint64) for column in zip(*rows, strict=True)]
    for codes_of, cells_of in ((z_codes, cells_of_z), (hilbert_codes, cells_of_hilbert)):
        found = cells_of(codes_of(cells, bits), dimensions, bits)
        assert all((one == other).all() for one, other in zip(found, cells, strict=True))


@given(dimensions_and_bits, st.data())
def test_a_z_order_never_falls_where_a_coordinate_grows(shape: tuple[int, int], data: st.DataObject) -> None:
    dimensions, bits = shape
    cell = data.draw(
        st.tuples(*[st.integers(0, (1 << bits) - 2)] * dimensions) if bits > 1 else st.just((0,) * dimensions)
    )
    grown = data.draw(st.integers(0, dimensions - 1))
    pair = [np.array([value, value + (number == grown)], np.uint64) for number, value in enumerate(cell)]
    before, after = z_codes(pair, bits).tolist()
    assert before < after


def test_too_many_bits_are_refused() -> None:
    with pytest.raises(ValueError, match="do not fit into 64 bits"):
        z_codes([np.zeros(1, np.uint64)] * 9, 8)
