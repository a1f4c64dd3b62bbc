"""Questions about a column of keys that its bytes answer at once, where a look at each key would cost many times more."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

#: Characters that together are spelt with every byte that UTF-8 knows but a slash's.
_NO_SLASH = "".join(
    chr(code)
    for code in (
        *range(ord("/")),
        *range(ord("/") + 1, 0x800),
        *range(0x800, 0xD800, 0x800),
        *range(0xE000, 0x110000, 0x800),
    )
)


def key_bytes(keys: pa.StringArray) -> memoryview:
    """The keys of a column, one after the other."""
    _, offsets, data = keys.buffers()
    if not len(keys) or data is None:
        return memoryview(b"")
    ends = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    return memoryview(data)[ends[0] : ends[-1]]


def may_contain(keys: pa.StringArray, texts: Iterable[bytes]) -> bool:
    """``False``: no key contains any of these. What two neighbours make up together counts, too."""
    content = key_bytes(keys).tobytes()
    # Mostly one of its bytes is not there at all, which is seen sooner.
    return any(all(byte in content for byte in text) and text in content for text in texts)


def may_begin(keys: pa.StringArray, first: bytes) -> bool:
    """``False``: no key begins with one of these characters."""
    _, offsets, data = keys.buffers()
    if not len(keys) or data is None:
        return False
    ends = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    starts = ends[:-1][ends[:-1] < ends[1:]]
    return bool(np.isin(np.frombuffer(data, np.uint8)[starts], np.frombuffer(first, np.uint8)).any())


def names_beginning(keys: pa.StringArray, runs: Mapping[str, int], first: bytes) -> npt.NDArray[np.int64]:
    """Rows of files whose own names begin with one of these characters.

    :param runs: the directories that the files lie in, and how many in each, in the order of the keys.
    """
    if not len(keys):
        return np.empty(0, np.int64)
    _, offsets, data = keys.buffers()
    starts = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys)].astype(np.int64)
    prefixes = np.array([len(directory.encode()) + 1 if directory else 0 for directory in runs])
    starts += np.repeat(prefixes, list(runs.values()))
    return np.flatnonzero(np.isin(np.frombuffer(data, np.uint8)[starts], np.frombuffer(first, np.uint8)))


def files_by_directory(keys: pa.Array | pa.ChunkedArray) -> dict[str, int]:
    """The directories of some files, and how many lie in each; the root is the empty text."""
    # Without their names the keys of a directory are the same, and few become objects.
    counted = pc.value_counts(pc.ascii_rtrim(keys, characters=_NO_SLASH))
    return {row["values"][:-1]: row["counts"] for row in counted.to_pylist()}


def directories_of(keys: pa.Array | pa.ChunkedArray) -> set[str]:
    """The directories of some files, each once."""
    return set(files_by_directory(keys))
