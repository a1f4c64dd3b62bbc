"""Gives rows their buckets: a file is made of consecutive buckets, and a bucket is sorted on its own.

A bucket has about the rows of a row group. So a bin is laid out with the memory of a few buckets, whatever its size, and row
groups and pages have narrow bounds as well as files.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from msgspec import Struct

from delta_maintenance.layout.curves import hilbert_codes, z_codes
from delta_maintenance.layout.kd_tree import KdTree
from delta_maintenance.layout.layout import KD, ZORDER
from delta_maintenance.layout.ranks import Ranks, Uint64s

_Int64s = npt.NDArray[np.int64]
Noise = npt.NDArray[np.uint32]

#: Bits of the rank of one column alone, and the most bits of a rank where a curve needs them for each of several columns.
_BITS_ALONE, _BITS_OF_A_RANK = 20, 12
#: Bits of a place on a curve: all of it, or what the number of a file leaves.
_CODE_BITS, _CODE_BITS_IN_A_FILE = 60, 40
_KD_BITS = 16


class Bucketing(Struct, frozen=True, eq=False):
    """The rule by which rows get a bucket, made from a sample of them.

    :param kind: kind of the layout.
    :param bits: number of bits of a rank on the curve.
    :param tree: tree that gives rows their file; ``None``: the curve does.
    :param codes: code of the first row of each bucket but the first, ascending; ``noise``: the random number of this row,
        which divides rows of one code.
    """

    kind: str
    ranks: tuple[Ranks, ...]
    bits: int
    tree: KdTree | None
    codes: Uint64s
    noise: Noise

    @classmethod
    def of(
        cls, kind: str, sample: Sequence[pa.Array], files: int, buckets_of_a_file: int, noise: Noise
    ) -> Bucketing:
        """
        :param kind: kind of the layout.
        :param sample: values of the layout's columns in sampled rows.
        :param noise: a random number for each sampled row.
        """
        dimensions = len(sample)
        room = _CODE_BITS_IN_A_FILE if kind == KD else _CODE_BITS
        bits = _BITS_ALONE if dimensions == 1 else max(1, min(_BITS_OF_A_RANK, room // dimensions))
        own_bits = max(bits, _KD_BITS) if kind == KD else bits
        ranks = tuple(Ranks.of(values, own_bits) for values in sample)
        found = [rank(values) for rank, values in zip(ranks, sample, strict=True)]
        tree = KdTree.of(found, files) if kind == KD else None
        draft = cls(kind, ranks, bits, tree, np.empty(0, np.uint64), np.empty(0, np.uint32))
        codes = draft._codes(found, noise)
        order = np.lexsort((noise, codes))
        cut = _cuts_in_files if tree is not None else _cuts
        return cls(kind, ranks, bits, tree, *cut(codes[order], noise[order], files, buckets_of_a_file))

    def __call__(self, columns: Sequence[pa.Array], noise: Noise) -> tuple[_Int64s, Uint64s]:
        """Return the bucket of each row, and the number that orders the rows of a bucket.

        :param columns: values of the layout's columns.
        :param noise: a random number for each row.
        """
        codes = self._codes([rank(values) for rank, values in zip(self.ranks, columns, strict=True)], noise)
        first = np.searchsorted(self.codes, codes, side="left")
        if not len(self.codes):
            return first, codes
        tied = np.flatnonzero(self.codes[np.minimum(first, len(self.codes) - 1)] == codes)
        if len(tied):
            # Rows of one code are divided between several buckets by their noise.
            order = tied[np.argsort(first[tied], kind="stable")]
            for rows in np.split(order, np.flatnonzero(np.diff(first[order])) + 1):
                start = int(first[rows[0]])
                end = int(np.searchsorted(self.codes, codes[rows[0]], side="right"))
                first[rows] = start + np.searchsorted(self.noise[start:end], noise[rows], side="right")
        return first, codes

    def _codes(self, ranks: Sequence[Uint64s], noise: Noise) -> Uint64s:
        if self.tree is None:
            return self._curve(ranks)
        shift = np.uint64(_KD_BITS - self.bits) if self.bits < _KD_BITS else np.uint64(0)
        within = self._curve([rank >> shift for rank in ranks])
        files = self.tree.files_of(ranks, noise).astype(np.uint64)
        return (files << np.uint64(_CODE_BITS_IN_A_FILE)) | within

    def _curve(self, ranks: Sequence[Uint64s]) -> Uint64s:
        if len(ranks) == 1:
            return ranks[0]
        return z_codes(ranks, self.bits) if self.kind == ZORDER else hilbert_codes(ranks, self.bits)


def random_noise(seed: str, chunk: int, count: int) -> Noise:
    """Return a random number for each row of a chunk; the same ones whenever the chunk is read."""
    generator = np.random.default_rng([*seed.encode(), chunk])
    return generator.integers(0, 1 << 32, count, np.uint32)


def _cuts(codes: Uint64s, noise: Noise, files: int, buckets_of_a_file: int) -> tuple[Uint64s, Noise]:
    """Return code and noise of the first row of each bucket but the first, for buckets of equal size.

    :param codes: codes of the sampled rows, sorted by code and noise.
    """
    buckets = files * buckets_of_a_file if len(codes) else 1
    places = np.arange(1, buckets) * len(codes) // buckets
    return codes[places], noise[places]


def _cuts_in_files(codes: Uint64s, noise: Noise, files: int, buckets_of_a_file: int) -> tuple[Uint64s, Noise]:
    """As :func:`_cuts`, where the codes begin with the number of a file: the first bucket of a file begins with the file."""
    shift = np.uint64(_CODE_BITS_IN_A_FILE)
    numbers = np.arange(files + 1, dtype=np.uint64)
    starts = np.searchsorted(codes >> shift, numbers)
    rows = np.diff(starts)[:, None]
    places = starts[:-1, None] + np.arange(1, buckets_of_a_file) * rows // buckets_of_a_file
    # A file without sampled rows has one bucket that takes all.
    is_empty = np.broadcast_to(rows == 0, places.shape)
    places = np.minimum(places, max(0, len(codes) - 1))
    ends = np.broadcast_to(((numbers[1:] << shift) - np.uint64(1))[:, None], places.shape)
    found = np.where(is_empty, ends, codes[places] if len(codes) else ends)
    found_noise = np.where(is_empty, np.uint32(0xFFFFFFFF), noise[places] if len(codes) else np.uint32(0))
    found = np.hstack([(numbers[:-1] << shift)[:, None], found])
    found_noise = np.hstack([np.zeros((files, 1), np.uint32), found_noise])
    return found.ravel()[1:], found_noise.ravel()[1:].astype(np.uint32)
