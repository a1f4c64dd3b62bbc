"""Reads the facts of many tables in one process, and of most only that nothing is new.

A survey lists the log of each table: one request. If the listing is the same as last time, the known facts hold. Otherwise the snapshot
is read by this listing, and what is known of older commits is not read again.

The listing does not show what time alone changes, and what deletes files without a commit. So a table without news is read again, too:

1. when all removed files that were held by the retention have passed it;
2. once in :data:`REREAD_DAYS` days, on a day that depends on its address, so that no survey has all tables;
3. when the options of the reading have changed, or the release of this package.

A caller that deletes files of a table itself takes it out of the memory (:meth:`SurveyMemory.without`).

What cannot be read is a finding. A table is forgotten only where the store has answered that there is no log.
"""

from __future__ import annotations

import hashlib
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from delta_log.arrow.prefetch import map_ordered
from delta_log.catalog.lookup import opening_options, without_catalogs
from delta_log.errors import NotATable, TableDropped
from delta_log.log.file_names import LOG_DIRECTORY, LogFileKind
from delta_log.log.log_segment import LogSegment, segment_of
from delta_log.redaction import redacted
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.table_identity import noticing_a_drop
from delta_log.storage.opening import StoragePool, open_storage, with_catalog
from delta_log.storage.storage import FileInfo, Storage
from delta_log.table_config.features import supports
from delta_log.upkeep.log_inventory import LogInventory, inventory_of, list_everything
from delta_log.version import VERSION
from delta_maintenance.errors import error_report, log_failure
from delta_maintenance.fleet.byte_budget import ByteBudget
from delta_maintenance.fleet.discovery import FoundTable
from delta_maintenance.fleet.facts import SurveyedTable, UnreadTable
from delta_maintenance.fleet.listed_log import ListedLog
from delta_maintenance.fleet.survey_memory import KnownTable, SurveyMemory
from delta_maintenance.health.facts import HealthFacts, PlannedRewrite
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.health.reading import read_facts
from delta_maintenance.progress import ProgressReporter, SilentProgress

#: Given the address of a table and its properties, returns the options of its reading.
Limits: TypeAlias = Callable[[str, Mapping[str, str]], HealthOptions]

REREAD_DAYS = 30
_DAY_MS = 86_400_000
#: Bytes of logs that are read at once, which take several times as much memory. A table with more is read while no other is.
LOG_BYTES_AT_ONCE = 16 << 20


class Survey(Struct, frozen=True):
    """What a survey has found.

    :param tables: tables that could be read, in the order in which they were given.
    :param unread: tables that could not be read, in that order.
    :param memory: memory for the next survey.
    :param num_read: number of tables with news, or whose facts had to be read for another reason.
    """

    tables: tuple[SurveyedTable, ...]
    unread: tuple[UnreadTable, ...]
    memory: SurveyMemory
    num_read: int


def survey(
    tables: Iterable[FoundTable],
    limits: Limits,
    memory: SurveyMemory | None = None,
    storage_options: Mapping[str, Any] | None = None,
    *,
    threads: int = 16,
    runtime: Runtime | None = None,
    progress: ProgressReporter | None = None,
    open_table: Callable[[str], Storage] | None = None,
) -> Survey:
    """Read the facts of tables.

    :param limits: function that returns the options of a reading; an error that it raises is a finding about the table.
    :param memory: memory of the last survey.
    :param storage_options: options of the stores.
    :param threads: number of tables that are looked at at once.
    :param open_table: function that opens the storage of a table at an address; default: one client for each bucket, and one for each
        table for which a catalog gives out credentials.
    """
    wanted, known = list(tables), memory or SurveyMemory()
    now_ms, told = (runtime or Runtime()).now_ms(), progress or SilentProgress()
    pool = StoragePool(without_catalogs(storage_options))

    def opened(table: FoundTable) -> Storage:
        if open_table is not None:
            return open_table(table.location)
        options = opening_options(table.table, storage_options)
        # Clients of single tables are not kept: there may be thousands.
        if "vended" in options:
            return open_storage(table.location, options)
        return with_catalog(pool.open(table.location), options.get("managed_by"))

    surveyor = _Surveyor(opened, limits, now_ms, ByteBudget(LOG_BYTES_AT_ONCE))
    told.message(f"surveying {len(wanted):,} tables")
    results: list[_Result] = []
    for result in map_ordered(
        lambda table: surveyor.look(table, known.tables.get(table.table)), wanted, threads
    ):
        results.append(result)
        told.step(f"{len(results):,} of {len(wanted):,} tables surveyed")
    return Survey(
        tuple(
            result.known.surveyed for result in results if result.known is not None and result.unread is None
        ),
        tuple(result.unread for result in results if result.unread is not None),
        _next_memory(known, wanted, results, now_ms),
        sum(result.was_read for result in results),
    )


class _Result(Struct, frozen=True):
    """What a look at one table has shown.

    :param known: what to remember of it; ``None``: nothing.
    """

    known: KnownTable | None
    unread: UnreadTable | None = None
    was_read: bool = False


def _next_memory(
    memory: SurveyMemory, wanted: Sequence[FoundTable], results: Sequence[_Result], now_ms: int
) -> SurveyMemory:
    """Add what was found. Tables that were not asked for, as where their directory could not be listed, are kept for a while."""
    asked = {table.table for table in wanted}
    oldest_ms = now_ms - REREAD_DAYS * _DAY_MS
    kept = {
        address: known
        for address, known in memory.tables.items()
        if address not in asked and known.surveyed.seen_ms > oldest_ms
    }
    found = {one.known.surveyed.table: one.known for one in results if one.known is not None}
    return SurveyMemory(dict(sorted({**kept, **found}.items())))


def is_to_be_read_again(known: SurveyedTable, now_ms: int) -> bool:
    """Whether time alone may have changed the facts of a table: rules 1 and 2 of the module."""
    measured_ms, removed = known.facts.measured_ms, known.facts.removed
    retention_ms = measured_ms - removed.cutoff_ms
    if removed.held.files and now_ms >= measured_ms + retention_ms:
        return True
    return _period(known.table, now_ms) != _period(known.table, measured_ms)


def _period(table: str, time_ms: int) -> int:
    """The number of the period of :data:`REREAD_DAYS` days that a moment is in, where each table's begin on a day of its own."""
    first_day = zlib.crc32(table.encode()) % REREAD_DAYS
    return (time_ms // _DAY_MS + first_day) // REREAD_DAYS


class _Surveyor:
    """Looks at tables; any thread may use it."""

    def __init__(
        self, open_table: Callable[[FoundTable], Storage], limits: Limits, now_ms: int, budget: ByteBudget
    ) -> None:
        self._open, self._limits, self._now_ms, self._budget = open_table, limits, now_ms, budget

    def look(self, table: FoundTable, known: KnownTable | None) -> _Result:
        try:
            return self._looked(table, known)
        # A table that cannot be read in a way that nobody has foreseen must not hide all others.
        except Exception as error:  # noqa: BLE001 - it becomes a finding, and is logged
            log_failure(error)
            is_gone = isinstance(error, (NotATable, TableDropped))
            unread = UnreadTable(table.table, self._now_ms, error_report(error))
            return _Result(None if is_gone else known, unread)

    def _looked(self, table: FoundTable, known: KnownTable | None) -> _Result:
        storage = self._open(table)
        log = list(storage.list_from(LOG_DIRECTORY))
        log_digest = _digest(log)
        if known is not None and (known.location, known.log_digest) == (table.location, log_digest):
            limits_digest = _digest_of_limits(self._limits(table.table, known.surveyed.properties))
            if limits_digest == known.limits_digest and not is_to_be_read_again(known.surveyed, self._now_ms):
                return _Result(replace(known, surveyed=replace(known.surveyed, seen_ms=self._now_ms)))
        listed, inventory = _sorted_log(storage, log)
        segment = segment_of(inventory.listing, storage)
        earlier = known.surveyed.facts if known is not None and _is_same_log(known, inventory) else None
        held = self._budget.held(_log_bytes(segment, inventory))
        with held, noticing_a_drop(storage, lambda: True):
            snapshot = Snapshot(listed, segment)
            if supports(snapshot.protocol, "v2Checkpoint") and not inventory.sidecars:
                # A checkpoint with a classic name may have sidecars, too.
                inventory = list_everything(listed)
            properties: Mapping[str, str] = redacted(snapshot.properties)
            options = self._limits(table.table, properties)
            facts = read_facts(listed, snapshot, inventory, options, self._now_ms, earlier)
            columns = snapshot.partition_columns
        surveyed = SurveyedTable(table.table, self._now_ms, _without_details(facts), properties, columns)
        last_commit = None if segment.last_commit is None else segment.last_commit.info
        found = KnownTable(surveyed, table.location, log_digest, _digest_of_limits(options), last_commit)
        return _Result(found, was_read=True)


def _sorted_log(storage: Storage, log: Sequence[FileInfo]) -> tuple[Storage, LogInventory]:
    """Sort a listing of the log by kinds of files, and return a storage that answers with it.

    Further directories are listed where there are sidecars. Where a commit is missing, all is listed a second time.
    """
    inventory = inventory_of(log)
    listed = storage if inventory.listing.is_torn else ListedLog(storage, log)
    checkpoints = inventory.listing.checkpoints
    has_sidecars = any(one.files[0].kind is LogFileKind.UUID_CHECKPOINT for one in checkpoints)
    return listed, list_everything(listed) if has_sidecars or listed is storage else inventory


def _log_bytes(segment: LogSegment, inventory: LogInventory) -> int:
    """Return how many bytes of the log a snapshot reads, at most."""
    checkpoint = () if segment.checkpoint is None else segment.checkpoint.files
    sidecars = sum(file.size for file in inventory.sidecars)
    return sidecars + sum(file.info.size for file in (*checkpoint, *segment.tail))


def _is_same_log(known: KnownTable, inventory: LogInventory) -> bool:
    """Whether the newest commit that is known is still the same file; otherwise the table may have been made anew."""
    commit = inventory.listing.commits.get(known.surveyed.facts.version)
    return commit is not None and known.last_commit is not None and known.last_commit == commit.info


def _without_details(facts: HealthFacts) -> HealthFacts:
    """Leave out the files by partition, from which the partitions in need were found."""
    files = facts.files
    layout = files.layout and replace(files.layout, rewrite=_without_partitions(files.layout.rewrite))
    return replace(
        facts,
        files=replace(
            files,
            optimize=files.optimize and _without_partitions(files.optimize),
            purge=files.purge and _without_partitions(files.purge),
            layout=layout,
        ),
    )


def _without_partitions(rewrite: PlannedRewrite) -> PlannedRewrite:
    return replace(rewrite, merged_by_partition={})


def _digest(log: Iterable[FileInfo]) -> bytes:
    lines = (f"{file.name} {file.size} {file.modification_time_ms} {file.tag}" for file in log)
    return _short_hash("\n".join(lines))


def _digest_of_limits(options: HealthOptions) -> bytes:
    """A digest of what facts depend on besides the table: the options, and how this release counts."""
    return _short_hash(f"{VERSION} {options!r}")


def _short_hash(text: str) -> bytes:
    return hashlib.blake2b(text.encode(), digest_size=16).digest()
