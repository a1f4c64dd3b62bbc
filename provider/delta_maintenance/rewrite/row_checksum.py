"""A number for a set of rows over all their columns, whatever their order and however they are cut into batches.

What was read from old files and what is read back from the new one are compared by it, without holding either. Each
value is hashed to 64 bits by its bytes as Arrow keeps them (so that -0.0 and 0.0, and two kinds of NaN, are different),
a row by its values in the order of the columns, and the rows' hashes are added up. It finds accidents, not forgery.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

_Hashes = npt.NDArray[np.uint64]
_NULL, _ROW, _STEP, _LENGTH = (
    np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xA0761D6478BD642F, 0xE7037ED1A0B428DB, 0x8EBC6AF09C88C6E3)
)
#: So many bytes of texts are hashed at once; each costs eight bytes and more meanwhile.
_PIECE_BYTES = 4 << 20


@dataclass(frozen=True, slots=True)
class RowChecksum:
    """Equal for equal multisets of rows of one schema."""

    rows: int = 0
    total: int = 0

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> RowChecksum:
        """The columns' order counts, their names do not."""
        hashes = np.full(batch.num_rows, _ROW, np.uint64)
        for column in batch.columns:
            hashes = _mixed(hashes * _STEP + _hashes(column))
        return cls(batch.num_rows, int(_mixed(hashes).sum(dtype=np.uint64)))

    def plus(self, other: RowChecksum) -> RowChecksum:
        return RowChecksum(self.rows + other.rows, (self.total + other.total) & (2**64 - 1))


def _hashes(array: pa.Array) -> _Hashes:
    """One hash for each value."""
    kind = array.type
    if array.null_count == len(array):
        return np.full(len(array), _NULL, np.uint64)
    if pa.types.is_struct(kind):
        found = np.full(len(array), _ROW, np.uint64)
        for index in range(kind.num_fields):
            found = _mixed(found * _STEP + _hashes(pc.struct_field(array, [index])))
    elif pa.types.is_map(kind):
        entries = _mixed(_hashes(array.keys) * _STEP + _hashes(array.items))
        found = _of_runs(entries, _ends(array))
    elif pa.types.is_list(kind):
        found = _of_runs(_hashes(array.values), _ends(array))
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        found = _of_texts(array)
    elif pa.types.is_boolean(kind):
        found = _mixed(array.cast(pa.uint8()).fill_null(0).to_numpy().astype(np.uint64) + _ROW)
    else:
        found = _of_fixed_width(array)
    if array.null_count:
        found = np.where(array.is_valid().to_numpy(zero_copy_only=False), found, _NULL)
    return found


def _mixed(values: _Hashes) -> _Hashes:
    """Every bit of a value spread over the whole of it."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _of_fixed_width(array: pa.Array) -> _Hashes:
    """Of numbers, dates, times and decimals: by their bytes."""
    width = array.type.bit_width // 8
    content = np.frombuffer(array.buffers()[1], np.uint8)
    rows = content[array.offset * width : (array.offset + len(array)) * width].reshape(len(array), width)
    found = np.full(len(array), _ROW, np.uint64)
    for start in range(0, width, 8):
        word = np.zeros((len(array), 8), np.uint8)
        part = rows[:, start : start + 8]
        word[:, : part.shape[1]] = part
        found = _mixed(found * _STEP + word.view("<u8")[:, 0].astype(np.uint64))
    return found


def _ends(array: pa.Array) -> npt.NDArray[np.int64]:
    """Where each list of an array begins and ends among all values, those outside of a slice included."""
    offsets = array.buffers()[1]
    return np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _of_texts(array: pa.Array) -> _Hashes:
    ends = _ends(array)
    data = array.buffers()[2]
    content = np.empty(0, np.uint8) if data is None else np.frombuffer(data, np.uint8)
    found = np.empty(len(array), np.uint64)
    start = 0
    while start < len(array):
        stop = int(np.searchsorted(ends, ends[start] + _PIECE_BYTES, "right")) - 1
        stop = min(len(array), max(stop, start + 1))
        first, last = int(ends[start]), int(ends[stop])
        bytes_of = _mixed(content[first:last].astype(np.uint64) + _ROW)
        found[start:stop] = _of_runs(bytes_of, ends[start : stop + 1] - first)
        start = stop
    return found


def _of_runs(items: _Hashes, ends: npt.NDArray[np.int64]) -> _Hashes:
    """Of successive items, in their order: each is multiplied by a power that grows with its place in the run."""
    first, last = int(ends[0]), int(ends[-1])
    powers = np.full(last - first + 1, _STEP, np.uint64)
    powers[0] = 1
    np.cumprod(powers, out=powers)
    sums = np.zeros(last - first + 1, np.uint64)
    np.cumsum(items[first:last] * powers[:-1], out=sums[1:])
    bounds = ends - first
    # An odd number has an inverse modulo 2**64, so that every run can be brought to begin with the same power.
    inverses = np.full(last - first + 1, pow(int(_STEP), -1, 1 << 64), np.uint64)
    inverses[0] = 1
    np.cumprod(inverses, out=inverses)
    runs = (sums[bounds[1:]] - sums[bounds[:-1]]) * inverses[bounds[:-1]]
    return _mixed(runs + np.diff(ends).astype(np.uint64) * _LENGTH)
