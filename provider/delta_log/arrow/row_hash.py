"""A number for a set of rows, whatever their order and however they are cut into batches.

Two streams of file actions that came by different ways (the replayed log, a checkpoint read back) are compared without
holding either: each row is hashed to 64 bits over all its columns, and the hashes are added up. It finds accidents, not
forgery. Whole columns are hashed at once; texts eight bytes at a time, all rows side by side.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt
import pyarrow as pa

_Hashes = npt.NDArray[np.uint64]
_WORD = 8
_MODULUS = 1 << 64
_NULL, _ROW, _TEXT, _PAIR = (
    np.uint64(n) for n in (0x9E3779B97F4A7C15, 0xD6E8FEB86659FD93, 0xC2B2AE3D27D4EB4F, 0xFF51AFD7ED558CCD)
)
#: Of the last word of a text, the bytes that belong to it, by how many there are (0: all).
_TAIL = np.array([_MODULUS - 1, *((1 << (8 * n)) - 1 for n in range(1, _WORD))], np.uint64)


@dataclass(frozen=True, slots=True)
class Fingerprint:
    """Equal for equal multisets of rows; ``total`` is the sum of the rows' hashes."""

    rows: int = 0
    total: int = 0

    @classmethod
    def of(cls, batch: pa.RecordBatch) -> Fingerprint:
        """The columns' order counts, their names do not."""
        hashes = reduce(
            _then, (_hashes(column) for column in batch.columns), np.full(batch.num_rows, _ROW, np.uint64)
        )
        return cls(batch.num_rows, int(_mixed(hashes).sum(dtype=np.uint64)))

    def plus(self, other: Fingerprint) -> Fingerprint:
        return Fingerprint(self.rows + other.rows, (self.total + other.total) % _MODULUS)


def _hashes(array: pa.Array) -> _Hashes:
    """One hash for each value."""
    kind = array.type
    if array.null_count == len(array):
        return np.full(len(array), _NULL, np.uint64)
    if pa.types.is_struct(kind):
        members = (_hashes(array.field(index)) for index in range(kind.num_fields))
        found = reduce(_then, members, np.full(len(array), _ROW, np.uint64))
    elif pa.types.is_map(kind):
        found = _hashes_of_maps(array)
    elif pa.types.is_string(kind):
        found = hashes_of_texts(array)
    else:
        whole = array.cast(pa.int64()).fill_null(0) if array.null_count else array.cast(pa.int64())
        found = _mixed(whole.to_numpy().view(np.uint64))
    if array.null_count:
        found = np.where(array.is_valid().to_numpy(zero_copy_only=False), found, _NULL)
    return found


def _then(first: _Hashes, second: _Hashes) -> _Hashes:
    """Of both, in this order."""
    return _mixed(first * _PAIR + second)


def _mixed(values: _Hashes) -> _Hashes:
    """Every bit of a value spread over the whole of it."""
    values = (values ^ (values >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    values = (values ^ (values >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return values ^ (values >> np.uint64(31))


def _hashes_of_maps(maps: pa.MapArray) -> _Hashes:
    """The order of the entries means nothing."""
    ends = maps.offsets.to_numpy().astype(np.int64)
    first, last = int(ends[0]), int(ends[-1])
    entries = _then(
        _hashes(maps.keys.slice(first, last - first)), _hashes(maps.items.slice(first, last - first))
    )
    sums = np.zeros(len(entries) + 1, np.uint64)
    np.cumsum(entries, out=sums[1:])
    ends -= first
    return _mixed(sums[ends[1:]] - sums[ends[:-1]] + np.diff(ends).view(np.uint64))


def hashes_of_texts(texts: pa.StringArray) -> _Hashes:
    """One hash for each text, none of them null. What is stored rests on it (:mod:`delta_log.checkpoint.key_filter`)."""
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
    starts, tails = starts[order], _TAIL[lengths[order] % _WORD]
    left = words[order]
    found = lengths[order].view(np.uint64) * _TEXT
    # How many rows have more than so many words, for every number of words.
    rows_left = len(left) - np.cumsum(np.bincount(left))
    for depth, rows in enumerate(rows_left[:-1].tolist()):
        word = words_at[starts[:rows] + depth * _WORD]
        ends_here = slice(int(rows_left[depth + 1]), rows)
        word[ends_here] &= tails[ends_here]
        known = found[:rows]
        known ^= word
        known *= _PAIR
        known ^= known >> np.uint64(29)
    hashes = np.empty(len(texts), np.uint64)
    hashes[order] = _mixed(found)
    return hashes
