"""Reads and writes the log of Delta tables: the Delta protocol on pyarrow, fsspec and pyroaring, with no JVM.

:class:`Table` opens a table, :meth:`Table.snapshot` returns one version of it, and :mod:`delta_log.errors` has every error
that calls raise.

This module loads its parts when they are first asked for: importing :mod:`delta_log` costs nothing.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from delta_log.errors import DeltaLogError as DeltaLogError
    from delta_log.snapshot.snapshot import Snapshot as Snapshot
    from delta_log.table import Table as Table

_HOMES = {
    "DeltaLogError": "delta_log.errors",
    "Snapshot": "delta_log.snapshot.snapshot",
    "Table": "delta_log.table",
}

__all__ = ["DeltaLogError", "Snapshot", "Table"]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOMES[name]), name)
