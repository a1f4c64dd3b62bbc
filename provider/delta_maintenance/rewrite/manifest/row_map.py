"""The row map of a bin with a layout: a file that tells where each row of the sources went.

Without a layout, rows keep their order, and their places follow from counts (:class:`SourceRows`). A
layout moves them. So that deletions by others can be carried over to the new files, the task then leaves a file beside the
manifest: for each row of the new files, in their order, its number among the live rows of the sources, little-endian. A number
takes 4 bytes, or 8 if the sources have more than 2³² rows.

The file lies where others may write. So the manifest, which carries a proof of its writer, holds the file's digest, and a reader
uses nothing of a file with another digest. Writer and reader keep a few blocks in memory, whatever the number of rows.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from itertools import pairwise
from types import TracebackType
from typing import IO

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from delta_log.arrow.prefetch import map_ordered
from delta_log.data.row_bitmap import RowBitmap
from delta_log.errors import DeltaLogError
from delta_log.storage.storage import Storage
from delta_maintenance.rewrite.limits import ROW_MAP_BLOCK_BYTES, ROW_MAP_BLOCKS_AT_ONCE
from delta_maintenance.rewrite.task import BinManifest, RowMap, row_map_key

#: The places in the outputs, taken together, of live rows of the sources that are given by their numbers; both ascending.
NewPlaces = Callable[[npt.NDArray[np.int64]], npt.NDArray[np.int64]]


class NotRemappable(ValueError):
    """Deletions cannot be carried over to the new files; the text says why."""


class SourceRows(Struct, frozen=True):
    """The rows of a source file.

    Without a layout, the live rows of a bin follow each other in its outputs in the order of its sources and of the rows in them. Row
    ``i`` of a source whose deletion vector hid ``D`` when it was read is therefore row ``start + i - |{d in D: d < i}|`` of the
    outputs taken together, ``start`` being the number of live rows of the sources before it.

    :param rows: the number of its rows, deleted ones included.
    :param read: the rows that were deleted when the task read the file.
    :param now: the rows that are deleted now; ``None``: the whole file was removed.
    """

    rows: int
    read: RowBitmap
    now: RowBitmap | None


def remapped(
    sources: Sequence[SourceRows], output_rows: Sequence[int], new_places: NewPlaces | None = None
) -> list[RowBitmap]:
    """Return the rows of each output that are deleted now.

    :param sources: sources in the order in which the task read them.
    :param output_rows: the rows of each output, in the order in which the task wrote them.
    :param new_places: function that returns the new places of rows; ``None``: they kept their order.
    :raises NotRemappable: rows are live again that the outputs lack, or the counts do not add up.
    """
    dead = [np.empty(0, np.int64)]
    start = still_live = 0
    for source in sources:
        live = source.rows - len(source.read)
        if source.now is None:
            dead.append(np.arange(start, start + live))
        else:
            if not source.read <= source.now:
                raise NotRemappable("rows came back that had been deleted when it was read")
            gone = (source.now - source.read).rows()
            if gone.size and gone[-1] >= source.rows:
                raise NotRemappable(f"row {gone[-1]} was deleted, and it has {source.rows}")
            dead.append(start + gone - np.searchsorted(source.read.rows(), gone))
            still_live += source.rows - len(source.now)
        start += live
    if start != sum(output_rows):
        raise NotRemappable(f"{start} rows were live in the sources, and {sum(output_rows)} were written")
    places = np.concatenate(dead)
    if new_places is not None:
        places = new_places(places)
    bounds = np.concatenate(([0], np.cumsum(output_rows))).tolist()
    found = [
        RowBitmap(places[(places >= first) & (places < last)] - first) for first, last in pairwise(bounds)
    ]
    if start - sum(map(len, found)) != still_live:
        raise NotRemappable(
            f"{still_live} rows are live in the sources, and {start - sum(map(len, found))} would be"
        )
    return found


_Int64s = npt.NDArray[np.int64]
_SHORT, _LONG = np.dtype("<u4"), np.dtype("<u8")


class RowMapWriter:
    """Writes a row map while the new files are written. As a context, it removes the file if the block fails.

    :param token: part of the file's name, which no other try uses.
    :param source_rows: physical rows of each source; complete when the first row is written.
    """

    def __init__(
        self, storage: Storage, run_id: str, bin_id: str, token: str, source_rows: Sequence[int]
    ) -> None:
        self._storage, self._token, self._source_rows = storage, token, source_rows
        self._key = row_map_key(run_id, bin_id, token)
        self._digest, self._type = hashlib.sha256(), _SHORT
        self._open = ExitStack()
        self._file: IO[bytes] | None = None

    def __enter__(self) -> RowMapWriter:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._open.__exit__(kind, error, trace)
        if self._file is not None and kind is not None:
            # The error of the block tells more.
            with suppress(DeltaLogError):
                self._storage.delete([self._key])

    def add(self, numbers: npt.NDArray[np.uint64]) -> None:
        """Write the numbers of the next rows of the new files."""
        if self._file is None:
            self._file = self._open.enter_context(self._storage.open_write(self._key))
            self._type = _type_for(sum(self._source_rows))
        content = numbers.astype(self._type).tobytes()
        self._digest.update(content)
        self._file.write(content)

    def finish(self) -> RowMap | None:
        """Return what the manifest says of the file; ``None``: there are no rows."""
        self._open.close()
        if self._file is None:
            return None
        return RowMap(self._token, self._digest.hexdigest(), tuple(self._source_rows))


def new_places(manifest: BinManifest, storage: Storage, numbers: _Int64s) -> _Int64s:
    """Return the places of some live rows of the sources in the new files taken together, ascending.

    :param numbers: numbers of the rows among the live rows of the sources, ascending.
    :raises NotRemappable: the row map is gone, or it is not the one that the task wrote.
    """
    row_map = manifest.row_map
    assert row_map is not None
    if not len(numbers):
        return numbers
    first, found = 0, []
    for here in numbers_in(row_map, storage, manifest.run_id, manifest.bin_id, manifest.rows_out):
        at = np.minimum(np.searchsorted(numbers, here), len(numbers) - 1)
        found.append(first + np.flatnonzero(numbers[at] == here))
        first += len(here)
    return np.concatenate(found)


def numbers_in(row_map: RowMap, storage: Storage, run_id: str, bin_id: str, rows: int) -> Iterator[_Int64s]:
    """Yield the numbers of a row map, some at a time.

    :param rows: how many numbers it holds.
    :raises NotRemappable: after the last numbers: the row map is gone, or it is not the one that the task wrote.
    """
    kind, digest = _type_for(sum(row_map.source_rows)), hashlib.sha256()
    key, size = row_map_key(run_id, bin_id, row_map.token), rows * kind.itemsize
    starts = range(0, size, ROW_MAP_BLOCK_BYTES)
    blocks = map_ordered(
        partial(_block, storage, key, size), starts, min(ROW_MAP_BLOCKS_AT_ONCE, storage.concurrency)
    )
    for block in blocks:
        digest.update(block)
        yield np.frombuffer(block, kind, len(block) // kind.itemsize).astype(np.int64)
    if digest.hexdigest() != row_map.sha256:
        raise NotRemappable("the file that tells where its rows went is gone, or was changed")


def _block(storage: Storage, key: str, size: int, start: int) -> bytes:
    try:
        return storage.read(key, start, min(ROW_MAP_BLOCK_BYTES, size - start))
    except FileNotFoundError:
        return b""


def _type_for(rows: int) -> np.dtype[np.unsignedinteger]:
    return _SHORT if rows <= 1 << 32 else _LONG
