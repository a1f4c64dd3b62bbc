"""Space-filling curves: from a cell of a grid to its place on the curve, for many cells at once.

Cells that are near each other on the curve are near each other in every dimension. All numbers of one call have as many bits,
and the bits of all dimensions together fit into 64.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache

import numpy as np

from delta_maintenance.layout.ranks import Uint64s

_ONE, _BYTE = np.uint64(1), np.uint64(0xFF)
_BITS_OF_A_BYTE, _BITS_OF_A_CODE = 8, 64


def z_codes(cells: Sequence[Uint64s], bits: int) -> Uint64s:
    """Interleave the bits of the coordinates: the highest bit of each dimension in their order, then the next ones.

    :param cells: the coordinates by dimension, each below ``2 ** bits``.
    """
    _require_room(cells, bits)
    dimensions = len(cells)
    spread = _spread_bytes(dimensions)
    codes = np.zeros_like(cells[0])
    for place, coordinates in enumerate(reversed(cells)):
        for low in range(0, bits, _BITS_OF_A_BYTE):
            byte = (coordinates >> np.uint64(low)) & _BYTE
            codes |= spread[byte] << np.uint64(low * dimensions + place)
    return codes


@cache
def _spread_bytes(dimensions: int) -> Uint64s:
    """For each byte, its bits with room between them for the bits of the other dimensions, as far as 64 bits hold them."""
    places = range(0, min(_BITS_OF_A_BYTE * dimensions, _BITS_OF_A_CODE), dimensions)
    found = np.zeros(1 << _BITS_OF_A_BYTE, np.uint64)
    for bit, place in enumerate(places):
        found |= ((np.arange(len(found), dtype=np.uint64) >> np.uint64(bit)) & _ONE) << np.uint64(place)
    return found


def cells_of_z(codes: Uint64s, dimensions: int, bits: int) -> list[Uint64s]:
    """Return the coordinates of places on the Z-order curve: the inverse of :func:`z_codes`."""
    cells = [np.zeros_like(codes) for _ in range(dimensions)]
    for bit in range(bits):
        for dimension in range(dimensions):
            place = bit * dimensions + dimensions - 1 - dimension
            cells[dimension] |= ((codes >> np.uint64(place)) & _ONE) << np.uint64(bit)
    return cells


def hilbert_codes(cells: Sequence[Uint64s], bits: int) -> Uint64s:
    """Return the places of cells on the Hilbert curve, where cells that follow each other are neighbours.

    The algorithm is Skilling's ("Programming the Hilbert curve", 2004): undo the curve's rotations from the highest bit down,
    then undo the Gray code. What is left is the place with its bits interleaved as in a Z-order.

    :param cells: the coordinates by dimension, each below ``2 ** bits``.
    """
    _require_room(cells, bits)
    x = [coordinates.copy() for coordinates in cells]
    last = len(x) - 1
    for bit in range(bits - 1, 0, -1):
        _rotate(x, bit, range(last + 1))
    for dimension in range(1, last + 1):
        x[dimension] ^= x[dimension - 1]
    flips = np.zeros_like(x[0])
    for bit in range(bits - 1, 0, -1):
        is_set = ((x[last] >> np.uint64(bit)) & _ONE) * np.uint64((1 << bit) - 1)
        flips ^= is_set
    for dimension in range(last + 1):
        x[dimension] ^= flips
    return z_codes(x, bits)


def cells_of_hilbert(codes: Uint64s, dimensions: int, bits: int) -> list[Uint64s]:
    """Return the cells at places on the Hilbert curve: the inverse of :func:`hilbert_codes`."""
    x = cells_of_z(codes, dimensions, bits)
    last = dimensions - 1
    gray = x[last] >> _ONE
    for dimension in range(last, 0, -1):
        x[dimension] ^= x[dimension - 1]
    x[0] ^= gray
    for bit in range(1, bits):
        _rotate(x, bit, range(last, -1, -1))
    return x


def _rotate(x: list[Uint64s], bit: int, dimensions: Sequence[int]) -> None:
    """Where a coordinate has this bit, invert the lower bits of the first one; elsewhere exchange the lower bits of both."""
    low = np.uint64((1 << bit) - 1)
    for dimension in dimensions:
        is_set = (x[dimension] >> np.uint64(bit)) & _ONE
        inverted = is_set * low
        exchanged = (x[0] ^ x[dimension]) & low & ~inverted
        x[0] ^= exchanged | inverted
        if dimension:
            x[dimension] ^= exchanged


def _require_room(cells: Sequence[Uint64s], bits: int) -> None:
    if len(cells) * bits > _BITS_OF_A_CODE:
        raise ValueError(f"{len(cells)} dimensions of {bits} bits do not fit into {_BITS_OF_A_CODE} bits")
