"""The id of a bin: a digest of its sources and of how they are rewritten.

The same files under the same settings give the same id, whichever checkpoint the snapshot came from. So a later try of a
run recognises the bins that an earlier one finished. A file with other deleted rows or other row ids is another source.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_log.arrow.arrays import arrow_array
from delta_log.log.action_columns import deletion_vector_ids
from delta_maintenance.optimize.plan.bin_packing import Int64s
from delta_maintenance.optimize.plan.rewrite_tag import digest
from delta_maintenance.rewrite.task import SourceFile

_IDENTITY = ("path", "deletion_vector", "base_row_id", "default_row_commit_version")


def bin_id_of(rewrite_tag: str, sources: Sequence[SourceFile], num_outputs: int = 1) -> str:
    """The id of a bin of these files, in this order."""
    names = [
        f"{source.path}\0{source.deletion_vector_id or ''}{_row_id(source)}\0".encode() for source in sources
    ]
    bin_id = hashlib.sha256(f"{rewrite_tag}\0".encode() + b"".join(names)).hexdigest()[:32]
    return split_bin_id(bin_id, num_outputs)


def split_bin_id(bin_id: str, num_outputs: int) -> str:
    """The id of the bin if its file is split into so many."""
    return bin_id if num_outputs == 1 else digest(bin_id, str(num_outputs))


def _row_id(source: SourceFile) -> str:
    if source.base_row_id is None:
        return ""
    version = source.default_row_commit_version
    return f"#{source.base_row_id}:{'' if version is None else version}"


class BinIds:
    """The ids of bins over the columns of a snapshot's files; as :func:`bin_id_of`, without an object per file.

    What is hashed of a file is ``path NUL deletion-vector-id row-ids NUL``.

    :param order: rows of `files`; a bin is a slice of it.
    :param tag: tag of the files that would be written.
    """

    def __init__(self, files: pa.Table, order: Int64s, tag: str) -> None:
        self._seed = f"{tag}\0".encode()
        rows = files.select(_IDENTITY).take(arrow_array(order)).combine_chunks()
        paths = rows.column("path").cast(pa.large_string())
        sources = pc.binary_join_element_wise(
            deletion_vector_ids(rows.column("deletion_vector"), pa.large_string()), _row_ids(rows), _text("")
        )
        names = pc.binary_join_element_wise(paths, sources, _text(""), _text("\0"))
        array = names.combine_chunks() if isinstance(names, pa.ChunkedArray) else names
        _, offsets, data = array.buffers()
        self._offsets = np.frombuffer(offsets, np.int64)[array.offset :]
        self._data = memoryview(data)

    def of(self, start: int, end: int) -> str:
        names = self._data[self._offsets[start] : self._offsets[end]]
        return hashlib.sha256(self._seed + names).hexdigest()[:32]


def _row_ids(rows: pa.Table) -> pa.ChunkedArray | pa.Scalar:
    """The first row id of each file, with the version that gave it; empty text for a file without row ids."""
    first, version = (rows.column(name) for name in ("base_row_id", "default_row_commit_version"))
    if first.null_count == len(first):
        return _text("")
    first, version = (column.cast(pa.large_string()) for column in (first, version))
    joined = pc.binary_join_element_wise(_text("#"), first, _text(":"), pc.fill_null(version, ""), _text(""))
    return pc.coalesce(joined, _text(""))


def _text(value: str) -> pa.Scalar:
    return pa.scalar(value, pa.large_string())
