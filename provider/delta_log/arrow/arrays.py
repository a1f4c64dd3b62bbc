"""Arrow arrays: of NumPy's numbers, and the leaves of nested ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa


def arrow_array(values: npt.NDArray[Any]) -> pa.Array:
    """Return numbers or truth values as an Arrow array without nulls. Numbers that lie behind each other keep their memory.

    ``pa.array`` would load NumPy's masked arrays, to recognise one. That takes longer than a small plan, and this package has none.

    :param values: numbers or truth values in the byte order of this machine; neither objects nor times.
    """
    assert values.dtype.isnative
    kind = pa.from_numpy_dtype(values.dtype)
    packed = (
        np.packbits(values, bitorder="little") if pa.types.is_boolean(kind) else np.ascontiguousarray(values)
    )
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(packed)])


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
