"""Loads pyarrow into a program of this package without pandas, which pyarrow imports where it is installed.

The first time that pyarrow converts a Python list, it tries to import pandas, so that it knows a Series when it gets one,
and remembers the answer. The import takes longer than all that a small job does, and no code of this package holds a Series.
So a program that is ours from its first line makes that first conversion while pandas cannot be found.

1. Only programs call this: the command line, the entry point of a job on one machine, a worker. A process of someone else
   that imports this package, a Spark driver and a Spark executor stay as they are.
2. Other libraries of the process can import pandas afterwards. ``to_pandas`` of pyarrow works, too: it tries the import again.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager

#: NumPy's linear algebra, which is not used here, starts threads that spin for an eighth of a second.
_THREADS_VARIABLE = "OPENBLAS_NUM_THREADS"


def load_arrow_without_pandas() -> None:
    """Import pyarrow, and make its first conversion. Does nothing where pandas is already imported."""
    if "pandas" in sys.modules:
        return
    with _single_threaded_algebra():
        import pyarrow as pa
    hidden = _HidesPandas()
    sys.meta_path.insert(0, hidden)
    try:
        # Without a type, since the inference of types looks for pandas once more.
        pa.array([None])
    finally:
        sys.meta_path.remove(hidden)


class _HidesPandas:
    """A finder of modules. It has no base class, since the module of that class is slow to import."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=name)


@contextmanager
def _single_threaded_algebra() -> Iterator[None]:
    if _THREADS_VARIABLE in os.environ:
        yield
        return
    os.environ[_THREADS_VARIABLE] = "1"
    try:
        yield
    finally:
        del os.environ[_THREADS_VARIABLE]
