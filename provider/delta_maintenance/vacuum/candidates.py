"""Looking at a table for VACUUM: first what is there, then what the log says, and then the plan.

The order matters, see :mod:`delta_maintenance.listing.listing`. Nothing is written.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.log.actions import decode_actions
from delta_log.log.log_segment import LogListing, list_log
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.table_identity import require_same_log
from delta_log.storage.storage import FileInfo, Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.listing.distributed import DistributedListing
from delta_maintenance.listing.hidden_names import LOG_DIRECTORY, HiddenNames
from delta_maintenance.listing.inventory import OpenPlace, read_inventory
from delta_maintenance.listing.key_columns import directories_of
from delta_maintenance.listing.listing import Listing, ListingCollector, not_listed
from delta_maintenance.partitions.partition_scope import PartitionScope
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.retention import Retention, retention_of
from delta_maintenance.vacuum.commit_bodies import commit_bodies
from delta_maintenance.vacuum.early_comparison import EarlyComparison, with_times
from delta_maintenance.vacuum.lite import not_behind_links, removed_files
from delta_maintenance.vacuum.options import VacuumOptions
from delta_maintenance.vacuum.plan.plan import EXPIRED, VacuumPlan
from delta_maintenance.vacuum.plan.planner import VacuumBasis, another_table, plan_vacuum, suspects
from delta_maintenance.vacuum.plan.protected_files import (
    MENTION_SCHEMA,
    ProtectedFiles,
    mentions_of,
    protected_files,
)

_TOLD_FILES = 100_000


@dataclass(frozen=True, slots=True)
class PlannedVacuum:
    """A plan, and what it rests on.

    :param lister: lists the tree elsewhere; ``None``: this process does.
    """

    basis: VacuumBasis
    plan: VacuumPlan
    lister: DistributedListing | None = None


def find_candidates(
    storage: Storage,
    open_place: OpenPlace,
    snapshot: Snapshot,
    options: VacuumOptions,
    now_ms: int,
    progress: ProgressReporter,
    lister: DistributedListing | None = None,
) -> PlannedVacuum:
    """
    :param open_place: opens the directory of an inventory.
    :param snapshot: any version; it says how the table is laid out. The plan is made on the latest.
    :param lister: where the tree is not listed by this process; the plan is the same.
    :raises VacuumRefused: see :mod:`delta_maintenance.vacuum.plan.planner`.
    :raises InvalidRequest: the options make no sense for this table.
    :raises UnsupportedFeature: the table needs what we do not know of.
    :raises TableReplaced: the table was deleted or made anew meanwhile.
    """
    retention = _retention(snapshot, options, now_ms)
    scope = PartitionScope.of(snapshot, options.where) if options.where is not None else None
    hidden = HiddenNames.of(snapshot)
    recent = _RecentCommits(storage)
    with ThreadPoolExecutor(1) as pool:

        def begun() -> Future[ProtectedFiles]:
            return pool.submit(lambda: _protected(recent, snapshot, list_log(storage), retention))

        # Mostly nothing has changed after a listing, and what is protected by then was found out meanwhile.
        early = begun() if storage.concurrency > 1 or storage.reads_while_listing else None
        sieve = EarlyComparison(storage, pool, early)
        listing = None
        if options.inventory is not None:
            progress.message(f"reading the inventory {options.inventory}")
            listing = read_inventory(options.inventory, open_place, storage.uri, hidden)
        elif lister is not None and not options.lite:
            early = early or begun()
            listing = lister.list_files(hidden, scope, early.result().keys, progress)
        elif not options.lite:
            listing = list_files(storage, hidden, scope, progress, sieve.offer)
        log = list_log(storage)
        require_same_log(storage, snapshot, log)
        latest = snapshot.refreshed(log)
        require_same_table(snapshot, latest)
        latest_retention = _retention(latest, options, now_ms)
        settled = _settled_version(log, latest_retention.cutoff_ms)
        if listing is None:
            progress.message(f"reading the log's removals up to version {settled}")
            listing = removed_files(storage, log.commits, settled, HiddenNames.of(latest))
        progress.message("working out what the live files and the retention protect")
        # What went wrong early, over a commit that was cleaned just then for one, may go well now.
        if early is not None and early.exception() is None and latest is snapshot:
            known = early.result()
        else:
            known = _protected(recent, latest, log, latest_retention)
        basis = VacuumBasis(
            snapshot=latest,
            listing=listing,
            protected=known,
            retention=latest_retention,
            options=options,
            now_ms=now_ms,
            settled_version=settled,
            earliest_commit_ms=None
            if 0 in log.commits
            else min((f.info.modification_time_ms for f in log.commits.values()), default=now_ms),
            scope=PartitionScope.of(latest, options.where) if options.where is not None else None,
            table_uri=storage.uri,
        )
        # An object store is asked about single files no sooner than they are about to go.
        is_unseen = options.lite and not storage.has_directories
        plan = plan_vacuum(basis, _suspects(storage, basis, sieve, is_unseen=is_unseen), is_unseen=is_unseen)
    refuse_links(storage, basis, plan)
    if options.inventory is not None:
        refuse_other_tables(storage, plan)
    return PlannedVacuum(basis, plan, lister)


def _retention(snapshot: Snapshot, options: VacuumOptions, now_ms: int) -> Retention:
    approved = options.approved
    return retention_of(
        snapshot.properties,
        now_ms,
        retain_hours=options.retain_hours,
        checked=options.retention_check,
        latest_cutoff_ms=None if approved is None else approved.cutoff_ms,
    )


def _suspects(storage: Storage, basis: VacuumBasis, sieve: EarlyComparison, *, is_unseen: bool) -> pa.Table:
    found = suspects(basis, sieve.unprotected(basis.listing.files, basis.protected))
    if basis.options.mode != "full":
        found = not_behind_links(storage, found)
    return found if is_unseen else with_times(storage, found)


def _protected(
    recent: _RecentCommits, snapshot: Snapshot, log: LogListing, retention: Retention
) -> ProtectedFiles:
    mentioned = recent.mentions(log, retention.cutoff_ms, every=retention.is_longer_than_configured)
    return protected_files(snapshot, mentioned, retention.cutoff_ms, recent.storage.uri)


def refuse_links(storage: Storage, basis: VacuumBasis, plan: VacuumPlan) -> None:
    """
    :raises VacuumRefused: a file that is needed is reached through a symbolic link. What the link leads to may lie in the
        table under a name that the log does not know, and so be among the files that would be deleted.
    """
    listing, candidates = basis.listing, plan.candidates
    if not storage.has_directories or not len(candidates) or (plan.mode == "full" and not listing.others):
        return
    protected = basis.protected.keys
    if plan.mode == "full":
        keys = not_listed(protected, listing).to_pylist()
    else:  # whose directories alone can be looked at
        keys = sorted(directories_of(protected))
    for key, link in zip(keys, storage.symbolic_links(keys), strict=True):
        if link is not None:
            raise VacuumRefused(
                f"{key}, which the log names and which is needed, is reached through the symbolic link {link}, and what that "
                "leads to may be among the files that would be deleted. Nothing was deleted. Put the files in the place of "
                "the link."
            )


def refuse_other_tables(storage: Storage, plan: VacuumPlan) -> None:
    """Of tables below this one an inventory may show nothing but data. What this table's log names is not another's.

    :raises VacuumRefused: candidates lie below the root of another table.
    """
    above: set[str] = set()
    candidates = plan.candidates
    unknown = candidates.filter(pc.not_equal(candidates.column("reason").cast(pa.string()), EXPIRED))
    for parent in directories_of(unknown.column("key")):
        directory = parent
        while directory and directory not in above:
            above.add(directory)
            directory = directory.rpartition("/")[0]
    directories = sorted(above)
    with ThreadPoolExecutor(storage.concurrency) as pool:
        logs = pool.map(lambda d: next(storage.list_from(f"{d}/{LOG_DIRECTORY}"), None), directories)
        others = [d for d, log in zip(directories, logs, strict=True) if log is not None]
    if others:
        raise VacuumRefused(another_table(others))


def require_same_table(known: Snapshot, found: Snapshot) -> None:
    """
    :raises VacuumRefused: the table was replaced by another one.
    :raises UnsupportedFeature: it has come to need what we do not know of.
    """
    table_features.require(found.protocol, Operation.VACUUM)
    if found.metadata.id != known.metadata.id or found.version < known.version:
        raise VacuumRefused(
            f"The table at this address was another one a moment ago (id {known.metadata.id}, now {found.metadata.id}). "
            "Nothing more is deleted. Run again when its owner is done."
        )


def list_files(
    storage: Storage,
    hidden: HiddenNames,
    scope: PartitionScope | None,
    progress: ProgressReporter,
    seen: Callable[[ListingCollector], None] | None = None,
) -> Listing:
    """:param seen: told after every page."""
    collector, told = ListingCollector(hidden, scope), 0
    progress.message("listing")
    for page in storage.list_tree(collector.enter):
        collector.take(page)
        if seen is not None:
            seen(collector)
        if collector.num_files >= told + _TOLD_FILES:
            told = collector.num_files
            progress.message(f"listing: {told:,} files so far")
    return collector.listing()


def _settled_version(log: LogListing, cutoff_ms: int) -> int | None:
    settled = None
    for version in sorted(log.commits):
        if log.commits[version].info.modification_time_ms >= cutoff_ms:
            break
        settled = version
    return settled


class _RecentCommits:
    """What commits name, each of which is read once."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._mentions: dict[FileInfo, pa.Table] = {}

    def mentions(self, log: LogListing, cutoff_ms: int, *, every: bool) -> pa.Table:
        """Of the commits since the cutoff: their files were needed then, whatever their timestamps say.

        :raises VacuumRefused: one was deleted meanwhile.
        """
        files = [
            log.commits[version]
            for version in sorted(log.commits)
            if every or log.commits[version].info.modification_time_ms >= cutoff_ms
        ]
        new = [file for file in files if file.info not in self._mentions]
        for file, body in zip(new, commit_bodies(self.storage, [file.key for file in new]), strict=True):
            self._mentions[file.info] = mentions_of(
                decode_actions(body, file.key), file.info.modification_time_ms, self.storage.uri
            )
        known = (self._mentions[file.info] for file in files)
        return pa.concat_tables([MENTION_SCHEMA.empty_table(), *known])
