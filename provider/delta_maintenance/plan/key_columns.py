"""Questions about a column of keys that its bytes answer at once, where a look at each key would cost many times more."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

_SLASH = ord("/")


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
    return any(text in content for text in texts)


def may_begin(keys: pa.StringArray, first: bytes) -> bool:
    """``False``: no key begins with one of these characters."""
    _, offsets, data = keys.buffers()
    if not len(keys) or data is None:
        return False
    ends = np.frombuffer(offsets, np.int32)[keys.offset : keys.offset + len(keys) + 1]
    starts = ends[:-1][ends[:-1] < ends[1:]]
    return bool(np.isin(np.frombuffer(data, np.uint8)[starts], np.frombuffer(first, np.uint8)).any())


def directories_of(keys: pa.Array | pa.ChunkedArray) -> set[str]:
    """The directories of some files, each once; the root is the empty text."""
    found: set[str] = set()
    for chunk in keys.chunks if isinstance(keys, pa.ChunkedArray) else [keys]:
        found.update(key.rpartition("/")[0] for key in chunk.to_pylist())
    return found
