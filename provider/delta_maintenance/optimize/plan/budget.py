"""Which bins a run does under its budget of bytes and files. Pure.

The bins that remove most files for their bytes come first. If none fits, the first one of which a part fits is cut.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
from msgspec import Struct

from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.bin_packing import Int64s
from delta_maintenance.optimize.plan.plan import PlannedBin


class PriorWork(Struct, frozen=True):
    """What earlier tries of the same run have finished.

    :param keys: files that this try must not plan: sources of finished bins, and files that are committed.
    :param bin_ids: ids of all bins with a manifest.
    :param num_files: number of sources of all finished bins, of ``num_bytes``. Both count against the budget of the run.
    """

    keys: Sequence[str] = ()
    bin_ids: frozenset[str] = frozenset()
    num_files: int = 0
    num_bytes: int = 0


NOTHING_BEFORE = PriorWork()


def within_budget(
    bins: list[PlannedBin], options: OptimizeOptions, prior: PriorWork
) -> tuple[list[PlannedBin], list[PlannedBin]]:
    """Divide the bins into bins of this run and bins that are left; both keep their order."""
    if options.max_bytes is None and options.max_files is None:
        return bins, []
    done: set[str] = set()
    bytes_left = None if options.max_bytes is None else options.max_bytes - prior.num_bytes
    files_left = None if options.max_files is None else options.max_files - prior.num_files
    for planned in sorted(bins, key=_worth):
        if bytes_left is not None and planned.bytes_in > bytes_left:
            continue
        if files_left is not None and planned.num_files > files_left:
            continue
        bytes_left = None if bytes_left is None else bytes_left - planned.bytes_in
        files_left = None if files_left is None else files_left - planned.num_files
        done.add(planned.bin_id)
    return [b for b in bins if b.bin_id in done], [b for b in bins if b.bin_id not in done]


def cut_bin(
    bins: list[PlannedBin], sizes: Int64s, alone: npt.NDArray[np.bool_], options: OptimizeOptions
) -> tuple[PlannedBin, int] | None:
    """Cut a bin to the budget, where no bin fits as a whole.

    :param sizes: sizes of all files in the order of the packing; ``alone`` says which files are worth a bin of their own.
    :return: the bin, and the end of the files in it that fit; ``None``: no part of a bin is worth its work.
    """
    for planned in sorted(bins, key=_worth):
        until = np.cumsum(sizes[planned.start : planned.end])
        count = len(until)
        if options.max_bytes is not None:
            count = int(np.searchsorted(until, options.max_bytes, side="right"))
        if options.max_files is not None:
            count = min(count, options.max_files)
        if count < planned.num_files and (count >= 2 or alone[planned.start : planned.start + count].any()):
            return planned, planned.start + count
    return None


def _worth(planned: PlannedBin) -> tuple[bool, float, int, str]:
    # A bin of one file removes no file, only deleted rows: those count by the bytes that they free.
    files_per_byte = (planned.num_files - 1) / max(1, planned.bytes_in)
    return planned.hot, -files_per_byte, planned.live_bytes - planned.bytes_in, planned.bin_id
