"""NumPy's numbers as Arrow's.

``pa.array`` loads NumPy's masked arrays, to know one when it gets one. That takes longer than a small plan, and no code of this
package has any.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

if TYPE_CHECKING:
    import numpy.typing as npt


def arrow_array(values: npt.NDArray[Any]) -> pa.Array:
    """Return numbers or truth values as an Arrow array without nulls. Numbers that lie behind each other keep their memory.

    :param values: in the byte order of this machine; neither objects nor times.
    """
    assert values.dtype.isnative
    kind = pa.from_numpy_dtype(values.dtype)
    packed = (
        np.packbits(values, bitorder="little") if pa.types.is_boolean(kind) else np.ascontiguousarray(values)
    )
    return pa.Array.from_buffers(kind, len(values), [None, pa.py_buffer(packed)])
