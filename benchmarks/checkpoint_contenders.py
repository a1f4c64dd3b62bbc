"""What the checkpoint benchmark measures: from a cold open to a new checkpoint, on a copy of the table."""

from __future__ import annotations

import os
import resource
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import checkpoint_tables
import deltalake
import pyarrow as pa
import pyarrow.dataset
import pyarrow.parquet

from delta_log import Table
from delta_log.checkpoint.writer import CheckpointPolicy, write_checkpoint
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot  # noqa: F401 - the same

# The first conversion of a Python list imports pandas where it is installed; that is an import as well.
pa.array([1])


def our_classic(uri: str) -> dict[str, Any]:
    return _on_a_copy(uri, lambda copy: _ours(copy, "classic", incremental=False))


def our_v2(uri: str) -> dict[str, Any]:
    return _on_a_copy(uri, lambda copy: _ours(copy, "v2", incremental=False))


def our_incremental(uri: str) -> dict[str, Any]:
    return _on_a_copy(uri, lambda copy: _ours(copy, "v2", incremental=True))


def delta_rs(uri: str) -> dict[str, Any]:
    return _on_a_copy(uri, lambda copy: deltalake.DeltaTable(copy).create_checkpoint())


def _ours(uri: str, policy: CheckpointPolicy, *, incremental: bool) -> None:
    table = Table(uri)
    write_checkpoint(table.storage, table.snapshot(), Runtime(), policy, incremental=incremental)


def _on_a_copy(uri: str, checkpoint: Callable[[str], None]) -> dict[str, Any]:
    place = Path(tempfile.mkdtemp(dir=Path(uri).parent))
    try:
        copy = checkpoint_tables.linked(Path(uri), place / "table")
        before = _log_files(copy)
        started, processor = time.perf_counter(), _processor_seconds()
        checkpoint(str(copy))
        wall, processor = time.perf_counter() - started, _processor_seconds() - processor
        written = sum(size for path, size in _log_files(copy).items() if path not in before)
        return {"measured_seconds": wall, "measured": {"cpu": processor}, "written_mb": written / 1e6}
    finally:
        shutil.rmtree(place)


def _processor_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def _log_files(table: Path) -> dict[str, int]:
    return {
        os.path.join(directory, name): os.stat(os.path.join(directory, name)).st_size
        for directory, _, names in os.walk(table / "_delta_log")
        for name in names
        if name != "_last_checkpoint"
    }
