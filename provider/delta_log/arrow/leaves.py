"""The arrays inside nested Arrow arrays that hold the values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyarrow as pa


def leaves(arrays: Iterable[pa.Array]) -> Iterator[pa.Array]:
    """Yield the leaves of each array in the order in which a Parquet file numbers them.

    A slice yields the values that it shows. A value is null where a struct around it is, and a list that is null yields none.
    """
    for array in arrays:
        if pa.types.is_struct(array.type):
            yield from leaves(array.flatten())
        elif pa.types.is_map(array.type):
            first, last = array.offsets[0].as_py(), array.offsets[-1].as_py()
            yield from leaves(part.slice(first, last - first) for part in (array.keys, array.items))
        elif pa.types.is_list(array.type) or pa.types.is_large_list(array.type):
            yield from leaves([array.flatten()])
        else:
            yield array
