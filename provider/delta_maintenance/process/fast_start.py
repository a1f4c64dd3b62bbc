"""Starts the programs of this package faster: the command line, the entry point of a job on one machine, a worker.

1. The first time that pyarrow converts a Python list, it tries to import pandas, so that it recognises a Series, and remembers the
   answer. Importing pandas takes 0.2 to 0.4 s and 30 MB, and no code of this package holds a Series. So that first conversion is made
   here, while pandas cannot be found. Other code of the process can import pandas afterwards; ``to_pandas`` of pyarrow looks for it again.
2. NumPy's linear algebra, which is not used here, starts threads that spin for an eighth of a second.
3. Arrow's own allocator has up to twice the memory that is in use. The allocator of the C library needs less.

A process of another program that imports this package, and a Spark driver, stay as they are. Spark has loaded pyarrow into its Python
workers before a task of ours begins, so only the first point is left to do there. It is done in a Spark application that is ours,
whose workers serve no other program (:func:`prepare_spark_worker`).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib.util import find_spec

#: Set to 1 in the Python workers of a Spark application that is ours.
OWN_WORKERS_VARIABLE = "DELTA_MAINTENANCE_OWN_WORKERS"
_SETTINGS = {"OPENBLAS_NUM_THREADS": "1", "ARROW_DEFAULT_MEMORY_POOL": "system"}


def start_fast() -> None:
    """Import pyarrow, and make its first conversion. Do nothing if pyarrow is loaded already, or missing."""
    if "pyarrow" not in sys.modules and find_spec("pyarrow") is not None:
        with _environment(_SETTINGS):
            convert_without_pandas()


def prepare_spark_worker() -> None:
    """Make pyarrow's first conversion, if this process is a Python worker of a Spark application that is ours."""
    if os.environ.get(OWN_WORKERS_VARIABLE) == "1":
        convert_without_pandas()


def convert_without_pandas() -> None:
    """Make pyarrow's first conversion while pandas cannot be found. A process that has loaded pandas keeps it."""
    import pyarrow as pa

    if "pandas" in sys.modules:
        return
    finder = _NoPandas()
    sys.meta_path.insert(0, finder)
    try:
        # Without a type, since the inference of types looks for pandas once more.
        pa.array([None])
    finally:
        sys.meta_path.remove(finder)


class _NoPandas:
    """Meta-path finder that raises ``ModuleNotFoundError`` for pandas. ``importlib.abc``, with a base class for it, is slow to import."""

    def find_spec(self, name: str, path: object = None, target: object = None) -> None:
        if name == "pandas":
            raise ModuleNotFoundError("pandas is not needed here", name=name)


@contextmanager
def _environment(variables: Mapping[str, str]) -> Iterator[None]:
    """Set variables that libraries read when they are loaded. What a user has set stays, and children inherit none."""
    ours = {name: value for name, value in variables.items() if name not in os.environ}
    os.environ.update(ours)
    try:
        yield
    finally:
        for name in ours:
            del os.environ[name]
