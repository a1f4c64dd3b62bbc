"""Symbolic links in a table on a disk: what lies behind one is neither deleted nor taken for an orphan."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.storage.storage import Storage
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.listing.key_columns import directories_of
from delta_maintenance.listing.listing import not_listed
from delta_maintenance.vacuum.plan.plan import VacuumPlan
from delta_maintenance.vacuum.plan.planner import VacuumBasis


def without_links(storage: Storage, files: pa.Table) -> pa.Table:
    """Select the files that are no symbolic links and to which no link leads.

    :param files: files that no listing of ours found. If all their times are still unknown, the look-up of the times leaves
        links out (:meth:`~delta_log.storage.storage.Storage.sizes_and_times`).
    """
    is_known = pc.is_valid(files.column("modification_time_ms"))
    if not storage.has_directories or not pc.any(is_known, min_count=0).as_py():
        return files
    links = storage.symbolic_links(files.column("key").to_pylist())
    return files.filter(pa.array([link is None for link in links], pa.bool_()))


def refuse_links(storage: Storage, basis: VacuumBasis, plan: VacuumPlan) -> None:
    """
    :raises VacuumRefused: a protected file is reached through a symbolic link. The link may lead to a place in the table
        where the file has a name that the log does not know, so that it would be deleted as an orphan.
    """
    listing, candidates = basis.listing, plan.candidates
    if not storage.has_directories or not len(candidates) or (plan.mode == "full" and not listing.others):
        return
    protected = basis.protected.keys
    if plan.mode == "full":
        keys = not_listed(protected, listing).to_pylist()
    else:  # without a listing, looking at each directory has to do
        keys = sorted(directories_of(protected))
    for key, link in zip(keys, storage.symbolic_links(keys), strict=True):
        if link is not None:
            raise VacuumRefused(
                f"{key}, which the log names and which is needed, is reached through the symbolic link {link}, and what that "
                "leads to may be among the files that would be deleted. Nothing was deleted. Put the files in the place of "
                "the link."
            )
