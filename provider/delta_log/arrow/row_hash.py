"""A hash of a set of rows that depends neither on their order nor on how they are cut into batches.

A caller compares two streams of rows without holding either: the replayed log and a checkpoint read back, or the rows of old
files and of the file that replaces them. Each row is hashed to 64 bits over all its columns, and the hashes are added up. A
difference means different rows. Equality rules out accidents, not forgery.

Whole columns are hashed at once. Integers, floats, dates and decimals are hashed by their bytes, so that 0.0 and -0.0 differ.
"""

from __future__ import annotations

from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

_Hashes = npt.NDArray[np.uint64]
_Int64s = npt.NDArray[np.int64]
_WORD = 8
_MODULUS = 1 << 64
_NULL, _ROW, _TEXT, _PAIR, _STEP, _LENGTH = (
    np.uint64(n)
    for n in (
        0x9E3779B97F4A7C15,
        0xD6E8FEB86659FD93,
        0xC2B2AE3D27D4EB4F,
        0xFF51AFD7ED558CCD,
        0xE7037ED1A0B428DB,
        0x8EBC6AF09C88C6E3,
    )
)
#: Masks for the last word of a text, by the number of bytes in it (0: all eight).
_LAST_WORD = np.array([_MODULUS - 1, *((1 << (8 * n)) - 1 for n in range(1, _WORD))], np.uint64)
#: A longer text is hashed in pieces of this size, because the time of :func:`hashes_of_texts` grows with the longest text.
_PIECE_BYTES = 4096


class RowHash(Struct, frozen=True):
    """Equal for equal multisets of rows of one schema; ``total`` is the sum of the rows' hashes."""

    rows: int = 0
    total: int = 0

    @classmethod
    def of(cls, batch: pa.RecordBatch, *, ordered_maps: bool = True) -> RowHash:
        """Hash a batch by the order of its columns; their names do not count.

        :param ordered_maps: whether maps with the same entries in another order are different values.
        """
        columns = (_hashes(column, ordered_maps) for column in batch.columns)
        hashes = reduce(_combined, columns, np.full(batch.num_rows, _ROW, np.uint64))
        return cls(batch.num_rows, int(_mixed(hashes).sum(dtype=np.uint64)))

    def plus(self, other: RowHash) -> RowHash:
        return RowHash(self.rows + other.rows, (self.total + other.total) % _MODULUS)


def _hashes(array: pa.Array, ordered_maps: bool) -> _Hashes:
    """Return one hash for each value."""
    kind = array.type
    if array.null_count == len(array):
        return np.full(len(array), _NULL, np.uint64)
    if pa.types.is_struct(kind):
        members = (_hashes(pc.struct_field(array, [index]), ordered_maps) for index in range(kind.num_fields))
        found = reduce(_combined, members, np.full(len(array), _ROW, np.uint64))
    elif pa.types.is_map(kind) or pa.types.is_list(kind):
        found = _hashes_of_lists(array, ordered_maps)
    elif pa.types.is_string(kind) or pa.types.is_binary(kind):
        found = _hashes_of_any_texts(array)
    elif pa.types.is_boolean(kind) or pa.types.is_integer(kind):
        whole = array.cast(pa.int64()).fill_null(0) if array.null_count else array.cast(pa.int64())
        found = _mixed(whole.to_numpy().view(np.uint64))
    else:
        found = _hashes_of_fixed_width(array)
    if array.null_count:
        found = np.where(array.is_valid().to_numpy(zero_copy_only=False), found, _NULL)
    return found


def _combined(first: _Hashes, second: _Hashes) -> _Hashes:
    """Combine two hashes of each row; their order counts."""
    return _mixed(first * _PAIR + second)


def _mixed(values: _Hashes) -> _Hashes:
    """Spread every bit of a value over all 64 (the finaliser of SplitMix64)."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _hashes_of_fixed_width(array: pa.Array) -> _Hashes:
    """Hash floats, dates, times and decimals by their bytes, word by word."""
    width = array.type.bit_width // 8
    content = np.frombuffer(array.buffers()[1], np.uint8)
    rows = content[array.offset * width : (array.offset + len(array)) * width].reshape(len(array), width)
    found = np.full(len(array), _ROW, np.uint64)
    for start in range(0, width, _WORD):
        word = np.zeros((len(array), _WORD), np.uint8)
        part = rows[:, start : start + _WORD]
        word[:, : part.shape[1]] = part
        found = _combined(found, word.view("<u8")[:, 0])
    return found


def _hashes_of_lists(array: pa.ListArray | pa.MapArray, ordered_maps: bool) -> _Hashes:
    """Hash lists, and maps as lists of their entries."""
    ends = _ends(array)
    first, last = int(ends[0]), int(ends[-1])
    is_map = pa.types.is_map(array.type)
    parts = (array.keys, array.items) if is_map else (array.values,)
    items = reduce(_combined, (_hashes(part.slice(first, last - first), ordered_maps) for part in parts))
    if is_map and not ordered_maps:
        sums = np.zeros(len(items) + 1, np.uint64)
        np.cumsum(items, out=sums[1:])
        starts, stops = ends[:-1] - first, ends[1:] - first
        return _mixed(sums[stops] - sums[starts] + np.diff(ends).view(np.uint64))
    return _hashes_of_runs(items, ends - first)


def _ends(array: pa.Array) -> _Int64s:
    """Return where each list or text of an array begins, and where the last one ends."""
    offsets = array.buffers()[1]
    return np.frombuffer(offsets, np.int32)[array.offset : array.offset + len(array) + 1].astype(np.int64)


def _hashes_of_runs(items: _Hashes, ends: _Int64s) -> _Hashes:
    """Hash successive runs of items; the order within a run counts.

    A run's hash is the polynomial ``sum(item * step**place)``. One running sum over all items gives every run's polynomial,
    multiplied by the power at the run's start. Odd numbers have an inverse modulo 2**64, which takes that power out again.
    """
    powers = np.full(len(items) + 1, _STEP, np.uint64)
    powers[0] = 1
    np.cumprod(powers, out=powers)
    sums = np.zeros(len(items) + 1, np.uint64)
    np.cumsum(items * powers[:-1], out=sums[1:])
    inverses = np.full(len(items) + 1, pow(int(_STEP), -1, _MODULUS), np.uint64)
    inverses[0] = 1
    np.cumprod(inverses, out=inverses)
    runs = (sums[ends[1:]] - sums[ends[:-1]]) * inverses[ends[:-1]]
    return _mixed(runs + np.diff(ends).view(np.uint64) * _LENGTH)


def _hashes_of_any_texts(texts: pa.Array) -> _Hashes:
    """Hash texts of any length: a long one as the run of its pieces."""
    ends = _ends(texts)
    lengths = np.diff(ends)
    is_long = lengths > _PIECE_BYTES
    if not is_long.any():
        return hashes_of_texts(texts)
    found = np.empty(len(texts), np.uint64)
    if not is_long.all():
        found[~is_long] = hashes_of_texts(texts.filter(pa.array(~is_long)))
    for row in np.flatnonzero(is_long).tolist():
        cuts = np.append(np.arange(ends[row], ends[row + 1], _PIECE_BYTES), ends[row + 1]).astype(np.int32)
        buffers = [None, pa.py_buffer(cuts), texts.buffers()[2]]
        pieces = hashes_of_texts(pa.Array.from_buffers(pa.binary(), len(cuts) - 1, buffers))
        found[row] = _hashes_of_runs(pieces, np.array([0, len(pieces)]))[0]
    return found


def hashes_of_texts(texts: pa.StringArray | pa.BinaryArray) -> _Hashes:
    """Return one hash for each text, none of them null, reading eight bytes of all rows at a time.

    These numbers are stored (:mod:`delta_log.checkpoint.key_filter`), so a text must have the same hash in every release.
    """
    _, offsets, content = texts.buffers()
    ends = np.frombuffer(offsets, np.int32)[texts.offset : texts.offset + len(texts) + 1].astype(np.int64)
    first, last = int(ends[0]), int(ends[-1])
    # Padded, so that a whole word can be read at every byte.
    data = np.zeros(last - first + _WORD, np.uint8)
    if last > first:
        data[: last - first] = np.frombuffer(content, np.uint8)[first:last]
    words_at = np.ndarray((last - first + 1,), "<u8", data, 0, (1,))
    starts, lengths = ends[:-1] - first, np.diff(ends)
    words = -(-lengths // _WORD)
    # The longest first: the rows that still have a word at some depth are then the first ones.
    order = np.argsort(-words, kind="stable")
    starts, last_words = starts[order], _LAST_WORD[lengths[order] % _WORD]
    left = words[order]
    found = lengths[order].view(np.uint64) * _TEXT
    # How many rows have more than so many words, for every number of words.
    rows_left = len(left) - np.cumsum(np.bincount(left))
    for depth, rows in enumerate(rows_left[:-1].tolist()):
        word = words_at[starts[:rows] + depth * _WORD]
        ends_here = slice(int(rows_left[depth + 1]), rows)
        word[ends_here] &= last_words[ends_here]
        known = found[:rows]
        known ^= word
        known *= _PAIR
        known ^= known >> np.uint64(29)
    hashes = np.empty(len(texts), np.uint64)
    hashes[order] = _mixed(found)
    return hashes
