"""Which files a layout takes: those that do not follow it yet, and those that have to be laid out together with them. Pure.

*A layout that the request asks for.* A file is *fresh* if no run has laid it out so, or if many of its rows are deleted. Without
fresh files a partition is left alone. With them, a run takes them, the small files, and those laid-out files that may hold like
values. So a nightly run rewrites what the day has brought, and what that overlaps.

*Clustering*, as Spark does it. Files that were clustered together make up a cube. A run takes the files that are in no cube, and
the cubes that are still smaller than the seal. It leaves larger cubes, files of another provider, and files that were clustered
by other columns. If all that is left is one cube, there is nothing to do.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from delta_log.snapshot.snapshot import Snapshot
from delta_log.table_config.clustering import CUBE_COLUMNS_TAG, CUBE_TAG
from delta_maintenance.layout.layout import Layout
from delta_maintenance.optimize.plan.bin_packing import Int64s
from delta_maintenance.optimize.plan.file_bounds import FileBounds
from delta_maintenance.optimize.plan.table_layout import TableLayout
from delta_maintenance.rewrite.task import LAYOUT_TAG

#: As in Spark: a cube of this size is sealed, and a new one has at most one and a half times of it.
DEFAULT_SEAL_BYTES = 100 << 30
_Mask = npt.NDArray[np.bool_]


class Cubes(Struct, frozen=True, eq=False):
    """The cubes of a clustered table's files.

    :param numbers: number of the cube of each file; 0: the file is in no cube.
    :param of_others: files of another provider, or clustered by other columns.
    :param sealed: files of cubes that are large enough.
    """

    numbers: Int64s
    of_others: _Mask
    sealed: _Mask

    @classmethod
    def of(cls, files: pa.Table, live: Int64s, wanted: TableLayout, seal_bytes: int) -> Cubes:
        """
        :param files: files with the columns ``tags`` and ``clustering_provider``.
        :param live: bytes of each file that are not deleted.
        """
        cubes, columns = (_tag(files, name) for name in (CUBE_TAG, CUBE_COLUMNS_TAG))
        provider = files.column("clustering_provider")
        is_ours = pc.equal(pc.coalesce(provider, pa.scalar(wanted.provider)), wanted.provider)
        is_by_these = pc.equal(pc.coalesce(columns, pa.scalar(wanted.cube_columns)), wanted.cube_columns)
        of_others = ~(_mask(is_ours) & _mask(is_by_these))
        numbers = _numbers(cubes)
        sizes = np.bincount(numbers, weights=np.where(of_others, 0, live))
        is_sealed = sizes >= seal_bytes
        is_sealed[:1] = False
        return cls(numbers, of_others, is_sealed[numbers] & ~of_others)

    @property
    def due(self) -> _Mask:
        """The files to cluster; none, if they are one cube."""
        found = ~(self.of_others | self.sealed)
        cubes = np.unique(self.numbers[found])
        return np.zeros_like(found) if len(cubes) == 1 and cubes[0] > 0 else found


def clustered_groups(files: pa.Table) -> Int64s:
    """Number the cubes of files, so that files of different cubes, columns or providers have different numbers."""
    parts = [files.column("clustering_provider"), _tag(files, CUBE_TAG), _tag(files, CUBE_COLUMNS_TAG)]
    texts = [pc.coalesce(part, pa.scalar("")) for part in parts]
    return _numbers(pc.binary_join_element_wise(*texts, "\0"))


def due_for_layout(
    snapshot: Snapshot,
    where: pc.Expression | None,
    files: pa.Table,
    groups: Int64s,
    fresh: _Mask,
    small: _Mask,
    layout: Layout,
) -> _Mask:
    """Tell which files a run lays out.

    :param groups: the partition of each file.
    :param fresh: files that do not follow the layout, and ``small`` files.
    """
    has_fresh = np.zeros(int(groups.max()) + 1 if len(groups) else 0, np.bool_)
    has_fresh[groups[fresh]] = True
    concerned = has_fresh[groups]
    due = fresh | (small & concerned)
    unsure = concerned & ~due
    if not unsure.any():
        return due
    bounds = FileBounds.of(snapshot, where, files.column("key"), layout)
    low, high = bounds.low, bounds.high
    overlaps = unsure.copy()
    for column in range(low.shape[0]):
        least = np.full(len(has_fresh), np.inf)
        most = np.full(len(has_fresh), -np.inf)
        np.minimum.at(least, groups[due], low[column, due])
        np.maximum.at(most, groups[due], high[column, due])
        overlaps &= (high[column] >= least[groups]) & (low[column] <= most[groups])
    return due | overlaps


def is_laid_out(files: pa.Table, layout: Layout) -> _Mask:
    """Tell which files follow a layout."""
    return _mask(pc.fill_null(pc.equal(_tag(files, LAYOUT_TAG), layout.tag), False))


def _tag(files: pa.Table, name: str) -> pa.ChunkedArray:
    return pc.map_lookup(files.column("tags"), pa.scalar(name), "first")


def _numbers(texts: pa.ChunkedArray) -> Int64s:
    """Number distinct texts from 1 on, in their order; null and empty text are 0."""
    encoded = pc.if_else(pc.equal(texts, ""), None, texts).combine_chunks().dictionary_encode()
    by_text = np.empty(len(encoded.dictionary), np.int64)
    by_text[pc.sort_indices(encoded.dictionary).to_numpy()] = np.arange(1, len(by_text) + 1)
    numbers = np.zeros(len(encoded), np.int64)
    known = encoded.indices.is_valid().to_numpy(zero_copy_only=False)
    numbers[known] = by_text[encoded.indices.drop_null().to_numpy()]
    return numbers


def _mask(found: pa.ChunkedArray) -> _Mask:
    mask: _Mask = found.to_numpy()
    return mask
