"""Questions about a column of keys, answered from the column's bytes. That is many times faster than key by key."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

#: Characters whose UTF-8 spellings together use every byte of UTF-8 except the slash.
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
    """Give the bytes of all keys of a column, one key after the other, without a copy."""
    _, offsets, data = keys.buffers()
    if not len(keys) or data is None:
        return memoryview(b"")
    ends = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    return memoryview(data)[ends[0] : ends[-1]]


def may_contain(keys: pa.StringArray, texts: Iterable[bytes]) -> bool:
    """Test whether a key may contain one of some texts.

    ``False`` is certain. A text that two neighbouring keys make up together gives ``True``.
    """
    content = key_bytes(keys).tobytes()
    # In most columns one byte of the text does not occur at all, and that is found faster.
    return any(all(byte in content for byte in text) and text in content for text in texts)


def may_begin(keys: pa.StringArray, first: bytes) -> bool:
    """Test whether a key begins with one of some characters. ``False`` is certain."""
    _, offsets, data = keys.buffers()
    if not len(keys) or data is None:
        return False
    ends = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    starts = ends[:-1][ends[:-1] < ends[1:]]
    return bool(np.isin(np.frombuffer(data, np.uint8)[starts], np.frombuffer(first, np.uint8)).any())


def names_beginning(keys: pa.StringArray, runs: Mapping[str, int], first: bytes) -> npt.NDArray[np.int64]:
    """Find the rows of files whose own names begin with one of some characters.

    :param runs: the directories of the files, in the order of the keys, and the number of files in each.
    """
    if not len(keys):
        return np.empty(0, np.int64)
    _, offsets, data = keys.buffers()
    starts = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys)].astype(np.int64)
    prefixes = np.array([len(directory.encode()) + 1 if directory else 0 for directory in runs])
    starts += np.repeat(prefixes, list(runs.values()))
    return np.flatnonzero(np.isin(np.frombuffer(data, np.uint8)[starts], np.frombuffer(first, np.uint8)))


def files_by_directory(keys: pa.Array | pa.ChunkedArray) -> dict[str, int]:
    """Count the files of each directory; the root is the empty text."""
    # Trimmed to their directories, most keys are equal, so few Python objects are made.
    counted = pc.value_counts(pc.ascii_rtrim(keys, characters=_NO_SLASH))
    return {row["values"][:-1]: row["counts"] for row in counted.to_pylist()}


def are_within(keys: pa.ChunkedArray, roots: Collection[str]) -> pa.ChunkedArray:
    """Mask the keys that are one of some roots, or lie below one."""
    directories = pc.dictionary_encode(pc.ascii_rtrim(keys, characters=_NO_SLASH)).unify_dictionaries()
    masks = [
        pa.array([is_within(name[:-1], roots) for name in chunk.dictionary.to_pylist()], pa.bool_()).take(
            chunk.indices
        )
        for chunk in directories.chunks
    ]
    named = pc.is_in(keys, value_set=pa.array(list(roots), pa.string()))
    return pc.or_(pa.chunked_array(masks, pa.bool_()), named)


def is_within(key: str, roots: Collection[str]) -> bool:
    """Whether a key is one of some roots, or lies below one."""
    while key:
        if key in roots:
            return True
        key = key.rpartition("/")[0]
    return False


def directories_of(keys: pa.Array | pa.ChunkedArray) -> set[str]:
    """Collect the directories of some files."""
    return set(files_by_directory(keys))
