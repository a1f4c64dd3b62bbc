"""Finding what a vacuum may delete: list the table, then read the log, then plan. Nothing is written.

The listing comes first: a file that is written and committed in between is then in the log and not in the listing, so it
is no candidate (:mod:`delta_maintenance.listing.listing`).
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct

from delta_log.log.log_segment import LogListing, list_log
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.table_identity import require_same_log
from delta_log.storage.storage import Storage
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.listing.distributed import DistributedListing
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.listing.inventory import OpenStorage, read_inventory
from delta_maintenance.listing.key_columns import directories_of
from delta_maintenance.listing.listing import LISTING_SCHEMA, Listing, list_files, not_listed
from delta_maintenance.partitions.partition_scope import PartitionScope
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.vacuum.commit_reader import RecentCommits, kept_files
from delta_maintenance.vacuum.lite import removed_files
from delta_maintenance.vacuum.nested_tables import neighbours_of, require_same_table, without_neighbours
from delta_maintenance.vacuum.options import VacuumOptions
from delta_maintenance.vacuum.plan.cutoff import Retention, retention_of
from delta_maintenance.vacuum.plan.plan import VacuumPlan
from delta_maintenance.vacuum.plan.planner import VacuumBasis, plan_vacuum, suspects, unprotected
from delta_maintenance.vacuum.plan.protected_files import ProtectedFiles, protected_files

_LOOKED_UP_ROWS = 1 << 13


class PlannedVacuum(Struct, frozen=True):
    """A plan, and what it rests on.

    :param distributed: listing of the table on other machines; ``None`` if this process lists it.
    """

    basis: VacuumBasis
    plan: VacuumPlan
    distributed: DistributedListing | None = None


def find_candidates(
    storage: Storage,
    open_storage: OpenStorage,
    snapshot: Snapshot,
    options: VacuumOptions,
    now_ms: int,
    progress: ProgressReporter,
    distributed: DistributedListing | None = None,
) -> PlannedVacuum:
    """Find the files that may be deleted, and plan their deletion on the latest version.

    :param open_storage: function that opens the directory of an inventory.
    :param snapshot: any version; the listing follows its partition columns and properties.
    :param distributed: listing of the table on other machines; the plan is the same.
    :raises VacuumRefused: see :mod:`delta_maintenance.vacuum.plan.planner` and
        :mod:`delta_maintenance.vacuum.nested_tables`.
    :raises InvalidRequest: the options do not fit this table.
    :raises UnsupportedFeature: the table uses a feature that VACUUM does not support.
    :raises TableReplaced: the table was deleted or replaced meanwhile.
    """
    retention = _retention(snapshot, options, now_ms)
    hidden, scope = HiddenNames.of(snapshot), _scope(snapshot, options)
    is_distributed = distributed is not None and options.mode == "full"
    recent = RecentCommits(storage)
    with ThreadPoolExecutor(1) as pool:
        # The table seldom changes during a listing. So the log is read now, on another core or while the store answers.
        early = None
        if storage.concurrency > 1 or storage.reads_while_listing or is_distributed:
            early = pool.submit(lambda: _protected(recent, snapshot, list_log(storage), retention, options))
        listing = None  # a lite vacuum reads the log instead
        if options.inventory is not None:
            progress.message(f"reading the inventory {options.inventory}")
            listing = read_inventory(options.inventory, open_storage, storage.uri, hidden)
        elif distributed is not None and early is not None and is_distributed:
            listing = distributed.list_files(hidden, scope, early.result().keys, progress)
        elif not options.lite:
            listing = list_files(storage, hidden, scope, progress)
        basis = _basis(storage, snapshot, listing, options, now_ms, progress, recent, early)
        # On an object store each look at a file is a request. So a lite vacuum looks at a file just before it deletes it.
        is_unseen = options.lite and not storage.has_directories
        found = _suspects(storage, basis, is_unseen=is_unseen)
        basis = replace(basis, neighbours=neighbours_of(storage, basis, found))
        plan = plan_vacuum(basis, without_neighbours(basis, found), is_unseen=is_unseen)
    refuse_links(storage, basis, plan)
    return PlannedVacuum(basis, plan, distributed)


def _basis(
    storage: Storage,
    snapshot: Snapshot,
    listing: Listing | None,
    options: VacuumOptions,
    now_ms: int,
    progress: ProgressReporter,
    recent: RecentCommits,
    early: Future[ProtectedFiles] | None,
) -> VacuumBasis:
    """Read the log after the listing, and collect all that the plan needs.

    :param listing: ``None``: the files that commits removed take its place.
    :param early: the protected files as of ``snapshot``; used if the table has not changed since.
    """
    log = list_log(storage)
    require_same_log(storage, snapshot, log)
    latest = snapshot.refreshed(log)
    require_same_table(snapshot, latest)
    retention = _retention(latest, options, now_ms)
    settled = _settled_version(log, retention.cutoff_ms)
    if listing is None:
        progress.message(f"reading the log's removals up to version {settled}")
        listing = removed_files(storage, log.commits, settled, HiddenNames.of(latest))
    progress.message("working out what the live files and the retention protect")
    # The early reading may have failed because a log cleanup deleted a commit just then. This reading may succeed.
    if early is not None and early.exception() is None and latest is snapshot:
        protected = early.result()
    else:
        protected = _protected(recent, latest, log, retention, options)
    return VacuumBasis(
        snapshot=latest,
        listing=listing,
        protected=protected,
        retention=retention,
        options=options,
        now_ms=now_ms,
        settled_version=settled,
        earliest_commit_ms=_earliest_commit_ms(log, now_ms),
        scope=_scope(latest, options),
        table_uri=storage.uri,
    )


def _retention(snapshot: Snapshot, options: VacuumOptions, now_ms: int) -> Retention:
    approved = options.approved
    return retention_of(
        snapshot.properties,
        now_ms,
        retain_hours=options.retain_hours,
        checked=options.retention_check,
        latest_cutoff_ms=None if approved is None else approved.cutoff_ms,
    )


def _scope(snapshot: Snapshot, options: VacuumOptions) -> PartitionScope | None:
    return PartitionScope.of(snapshot, options.where) if options.where is not None else None


def _protected(
    recent: RecentCommits,
    snapshot: Snapshot,
    log: LogListing,
    retention: Retention,
    options: VacuumOptions,
) -> ProtectedFiles:
    mentioned = recent.mentions(log, retention.cutoff_ms, every=retention.is_longer_than_configured)
    kept = kept_files(recent.storage, snapshot, log, options.kept_versions(snapshot.properties))
    return protected_files(snapshot, mentioned, retention.cutoff_ms, recent.storage.uri, kept)


def _suspects(storage: Storage, basis: VacuumBasis, *, is_unseen: bool) -> pa.Table:
    found = suspects(basis, unprotected(basis.listing.files, basis.protected))
    if basis.options.mode != "full":
        found = without_links(storage, found)
    return found if is_unseen else with_times(storage, found)


def with_times(storage: Storage, found: pa.Table) -> pa.Table:
    """Look up the times and sizes that a listing did not tell.

    Files that are gone meanwhile are left out, as are symbolic links and files behind them.
    """
    unknown = pc.is_null(found.column("modification_time_ms"))
    if not found.num_rows or not pc.any(unknown).as_py():
        return found
    keys = found.filter(unknown).column("key")
    batches = [*_looked_up(storage, keys)]
    known = found.filter(pc.invert(unknown))
    return pa.concat_tables([known, pa.Table.from_batches(batches, LISTING_SCHEMA)])


def _looked_up(storage: Storage, keys: pa.ChunkedArray) -> Iterator[pa.RecordBatch]:
    for start in range(0, len(keys), _LOOKED_UP_ROWS):
        part = keys.slice(start, _LOOKED_UP_ROWS).combine_chunks()
        sizes, times = storage.sizes_and_times(part.to_pylist())
        found = pa.record_batch(
            [part, pa.array(sizes, pa.int64()), pa.array(times, pa.int64())], schema=LISTING_SCHEMA
        )
        yield found if None not in times else found.filter(pc.is_valid(found.column(2)))


def _settled_version(log: LogListing, cutoff_ms: int) -> int | None:
    """Find the newest version that, like all before it, was committed before the cutoff."""
    settled = None
    for version in sorted(log.commits):
        if log.commits[version].info.modification_time_ms >= cutoff_ms:
            break
        settled = version
    return settled


def _earliest_commit_ms(log: LogListing, now_ms: int) -> int | None:
    if 0 in log.commits:
        return None
    return min((commit.info.modification_time_ms for commit in log.commits.values()), default=now_ms)


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
