"""Foretells, for a dry run, how many bytes a plan copies and how many it decodes, and why.

It opens only files that may be copied, and reads no more than their footers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import partial
from itertools import chain
from typing import Any

import numpy as np
import pyarrow.compute as pc
from msgspec.structs import replace

from delta_log.arrow.arrays import arrow_array
from delta_log.arrow.prefetch import map_ordered
from delta_log.storage.storage import Storage
from delta_maintenance.optimize.plan.plan import OptimizePlan, source_of
from delta_maintenance.rewrite.bin_context import BinContext
from delta_maintenance.rewrite.copy.copy_rules import DELETED_ROWS, SEVERAL_FILES, SMALL
from delta_maintenance.rewrite.copy.source_footers import CopiedFiles
from delta_maintenance.rewrite.limits import LARGE_BYTES, LARGE_ROWS
from delta_maintenance.rewrite.task import RewriteTask, SourceFile

#: Footers that are read. A dry run must not take as long as the run.
_MOST_FOOTERS = 2_000
#: The smallest file with an unknown number of rows whose footer is read.
_PERHAPS_LARGE_BYTES = 1 << 20
ENCODE = "it was asked for"
LAYOUT = "a layout moves rows"
NOT_LOOKED_AT = f"not known: only {_MOST_FOOTERS:,} footers were read"


def copy_forecast(plan: OptimizePlan, tasks: Sequence[RewriteTask], storage: Storage) -> dict[str, Any]:
    """Sum up the bytes of all sources by what becomes of them.

    :param tasks: tasks of the plan.
    :return: ``numBytesToCopyEstimate``, and ``numBytesToDecode`` by reason, most bytes first.
    """
    copied, decoded = 0, Counter[str]()
    if not tasks:
        return {}
    if plan.layout is not None or plan.options.rewrite == "encode":
        decoded[LAYOUT if plan.layout is not None else ENCODE] = plan.bytes_in
        return _facts(copied, decoded)
    sizes = plan.files.column("size").to_numpy()
    whole = np.zeros(plan.num_files, bool)
    for planned in plan.bins:
        whole[planned.start : planned.end] = planned.num_outputs == 1
    has_vector = pc.is_valid(plan.files.column("deletion_vector")).to_numpy()
    is_small = np.zeros(plan.num_files, bool)
    if plan.options.rewrite == "auto":
        # A small file with many rows may have large row groups all the same.
        is_small = (sizes < LARGE_BYTES) & (plan.num_records < LARGE_ROWS)
        is_small &= (plan.num_records >= 0) | (sizes < _PERHAPS_LARGE_BYTES)
    for reason, found in (
        (SEVERAL_FILES, ~whole),
        (DELETED_ROWS, whole & has_vector),
        (SMALL, whole & ~has_vector & is_small),
    ):
        decoded[reason] += int(sizes[found].sum())
    asked = np.flatnonzero(whole & ~has_vector & ~is_small)
    decoded[NOT_LOOKED_AT] += int(sizes[asked[_MOST_FOOTERS:]].sum())
    rows = plan.files.take(arrow_array(asked[:_MOST_FOOTERS])).to_pylist()
    sources = tuple(source_of(row, -1) for row in rows)
    if sources:
        files = BinContext.of(replace(tasks[0], sources=sources, num_outputs=1), storage).copied_files
        assert files is not None
        outcomes = map_ordered(partial(_outcome, files), sources, min(storage.concurrency, len(sources)))
        for against, size_bytes in chain.from_iterable(outcomes):
            if against is None:
                copied += size_bytes
            else:
                decoded[against] += size_bytes
    return _facts(copied, +decoded)


def _facts(copied: int, decoded: Counter[str]) -> dict[str, Any]:
    return {"numBytesToCopyEstimate": copied, "numBytesToDecode": dict(decoded.most_common())}


def _outcome(files: CopiedFiles, source: SourceFile) -> list[tuple[str | None, int]]:
    """Divide the bytes of a source between its row groups: why each is decoded, ``None`` if it is copied."""
    found = files.open(source)
    if isinstance(found, str):
        return [(found, source.size_bytes)]
    sizes = [
        sum(chunk.place[1] for chunk in group.chunks) if group.num_rows else 0
        for group in found.footer.row_groups
    ]
    return list(zip(found.copies.reasons, sizes, strict=True))
