"""VACUUM, from a wish to a report: list, read the log, plan, prove, delete, and look again.

Each step's decision is made elsewhere; this is their order:

1. the gate, and whether this very piece of work was done before;
2. the listing, by this process or in parts by Spark's executors, then the snapshot, then the plan (a dry run ends here);
3. the plan's own check: every live file is there now, and a second reading of the log protects the same files;
4. the commit ``VACUUM START``; after it the batches, before each of which newer commits are looked at, and which may be
   kept in quarantine (:mod:`delta_maintenance.vacuum.quarantine`);
5. the commit ``VACUUM END``, which says how it went, and a last look whether every live file is there.

A run that dies anywhere leaves the table whole: both commits hold nothing but what is said about the run. Its
repetition lists anew and deletes what is left.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import chain
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from delta_log.errors import DeltaLogError, InvalidRequest, StorageError
from delta_log.log.file_names import commit_key
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.storage.store_clock import require_not_ahead
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_log.transaction.commit_body import Change
from delta_log.transaction.transaction import CommitResult, Transaction, find_transaction
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.engine.choice import EngineChoice
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.job_context import JobContext
from delta_maintenance.listing.distributed import DistributedListing
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.listing.inventory import OpenPlace
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.vacuum.candidates import PlannedVacuum, find_candidates
from delta_maintenance.vacuum.deletion import (
    Deletion,
    confirm_live_files,
    live_keys,
    missing_live_files,
    some_of,
)
from delta_maintenance.vacuum.leftovers import remove_leftovers
from delta_maintenance.vacuum.lite import remember_settled_version
from delta_maintenance.vacuum.options import VacuumOptions
from delta_maintenance.vacuum.plan.plan import VacuumPlan
from delta_maintenance.vacuum.proof import Proof, prove
from delta_maintenance.vacuum.quarantine import Purge, Quarantine, purge

if TYPE_CHECKING:
    pass


def run(spec: JobSpec, context: JobContext) -> JobReport:
    """Do what the spec asks.

    :raises DeltaLogError: see :func:`execute_plan`.
    """
    table, progress, runtime, started_ms = (
        context.table,
        context.progress,
        context.runtime,
        context.started_ms,
    )
    options = VacuumOptions.from_mapping(spec.options)
    snapshot = table.snapshot()
    report = context.report(spec, "planned", snapshot.version, transaction=spec.transaction)
    identity = spec.transaction
    table_features.require(snapshot.protocol, Operation.VACUUM)
    if not spec.dry_run:
        table.storage.require_writable()
        if identity is not None:
            done = find_transaction(snapshot, table.storage, identity.app_id, identity.version)
            if done is not None:
                return replace(report, status="already_done", version=done, finished_ms=runtime.now_ms())
    choice = EngineChoice("local", "nothing is listed")
    if options.mode == "full":
        choice = context.engines.choose_lister(lambda: _num_known_files(snapshot))
    report = replace(report, engine=choice.engine, engine_reason=choice.reason)
    if choice.engine is None:
        return replace(report, status="needs_spark", finished_ms=runtime.now_ms())
    output = _Output.of(options.output, table.storage_at) if options.output is not None else None
    lister = None
    if choice.engine == "spark":
        spark = context.engines.spark().listing(progress)
        lister = DistributedListing(table.storage, spark.run, spark.parallelism, runtime.new_id)
    found = find_candidates(table.storage, table.storage_at, snapshot, options, started_ms, progress, lister)
    if output is not None:
        output.write(found.plan)
    report = replace(report, read_version=found.plan.read_version)
    hours = options.purge_quarantine_hours
    if spec.dry_run:
        plan = found.plan.to_dict()
        if options.quarantine:
            plan["quarantine"] = True
        plan |= _tidied_up(table.storage, found, hours, started_ms, progress, dry_run=True).planned()
        if options.require_proof:
            plan["proof"] = prove(table.storage, found.basis, found.plan).strength
        return replace(report, plan=plan, finished_ms=runtime.now_ms())
    tags = {**spec.tags, "delta-maintenance.run": spec.run_id}
    transaction = (identity.app_id, identity.version) if identity is not None else None
    outcome = execute_plan(table.storage, found, progress, runtime, tags, transaction)
    tidied = _tidied_up(
        table.storage,
        found,
        hours,
        started_ms,
        progress,
        dry_run=False,
        is_vacuumed=outcome.version is not None,
    )
    facts = {**outcome.facts, **tidied.facts()}
    if tidied.warning is not None:
        facts["warnings"] = [*facts.get("warnings", found.plan.warnings), tidied.warning]
    otherwise = "cleaned" if tidied.has_deleted else "nothing_to_do"
    return replace(
        report,
        status=otherwise if outcome.version is None else "committed",
        version=outcome.version,
        metrics={**outcome.metrics, **tidied.metrics()},
        plan={**found.plan.to_dict(), **facts},
        finished_ms=runtime.now_ms(),
    )


@dataclass(frozen=True, slots=True)
class _Tidied:
    """What goes besides the files of the plan.

    :param leftovers: how many old temporary files.
    :param warning: why quarantines stay, where the vacuum itself is done.
    """

    purged: Purge | None = None
    leftovers: int = 0
    warning: str | None = None

    @property
    def has_deleted(self) -> bool:
        return bool(self.leftovers or (self.purged is not None and self.purged.num_files))

    def planned(self) -> dict[str, Any]:
        """For a dry run."""
        found: dict[str, Any] = {"numTemporaryFilesToDelete": self.leftovers} if self.leftovers else {}
        if self.purged is not None:
            found |= {
                "numQuarantinedFilesToDelete": self.purged.num_files,
                "sizeOfQuarantinedDataToDelete": self.purged.size_bytes,
            }
        return found | self.facts()

    def facts(self) -> dict[str, Any]:
        return self.purged.facts() if self.purged is not None else {}

    def metrics(self) -> dict[str, int]:
        found = {"numDeletedTemporaryFiles": self.leftovers} if self.leftovers else {}
        purged = self.purged
        if purged is not None:
            found |= {"numPurgedFiles": purged.num_files, "sizeOfPurgedData": purged.size_bytes}
            found |= {"numNeededFilesInQuarantine": purged.num_needed} if purged.num_needed else {}
            found |= {"numBrokenQuarantines": len(purged.broken)} if purged.broken else {}
        return found


def _tidied_up(
    storage: Storage,
    found: PlannedVacuum,
    hours: float | None,
    now_ms: int,
    progress: ProgressReporter,
    *,
    dry_run: bool,
    is_vacuumed: bool = False,
) -> _Tidied:
    """What was in quarantine for so many hours goes, and so do old temporary files.

    :param is_vacuumed: the log says by now that the vacuum is done, so that a failure here is none of it.
    """
    purged = warning = None
    try:
        if hours is not None:
            purged = purge(storage, hours, now_ms, _live_keys(storage, found), progress, dry_run=dry_run)
    except (DeltaLogError, OSError) as error:
        if not is_vacuumed:
            raise
        warning = f"old quarantines were not deleted: {error}"
        progress.message(warning)
    leftovers = remove_leftovers(storage, found.basis.listing, now_ms, progress, dry_run=dry_run)
    return _Tidied(purged, leftovers, warning)


def _live_keys(storage: Storage, found: PlannedVacuum) -> pa.ChunkedArray:
    return live_keys(found.basis.snapshot.refreshed(), storage.uri)


def _num_known_files(snapshot: Snapshot) -> int:
    return snapshot.num_files + int(snapshot.tombstones(["key"]).num_rows)


@dataclass(frozen=True, slots=True)
class VacuumOutcome:
    """
    :param version: of ``VACUUM END``; ``None``: there was nothing to delete, and nothing was committed.
    :param facts: about proof and confirmation.
    """

    version: int | None
    metrics: Mapping[str, int]
    facts: Mapping[str, Any]


def execute_plan(
    storage: Storage,
    found: PlannedVacuum,
    progress: ProgressReporter,
    runtime: Runtime,
    tags: Mapping[str, str],
    transaction: tuple[str, int] | None = None,
) -> VacuumOutcome:
    """Carry a plan out.

    :raises VacuumRefused: the plan could not be proved, and nothing was deleted.
    :raises ClockAhead: by the store's clock the plan is about younger files; nothing was deleted.
    :raises VacuumIncomplete: some of it was deleted; a ``VACUUM END`` says ``FAILED``, if it could be committed.
    :raises LiveFilesMissing: afterwards, something alive is not there.
    """
    plan, basis = found.plan, found.basis
    if plan.is_empty:
        warnings = _remember(storage, plan, 0, progress)
        return VacuumOutcome(None, _metrics(plan, 0, 0, 0), _with_warnings(plan, warnings))
    hidden = HiddenNames.of(basis.snapshot)
    proof = _checked(storage, found, hidden, progress)
    quarantine = None
    if basis.options.quarantine and plan.candidates.num_rows:
        quarantine = Quarantine.begin(storage, plan, runtime)
    writing = _Commits(storage, runtime, tags)
    started = writing.commit(
        basis.snapshot,
        Change(
            "VACUUM START",
            parameters=_start_parameters(plan) | (quarantine.parameters if quarantine is not None else {}),
            metrics={"numFilesToDelete": plan.candidates.num_rows, "sizeOfDataToDelete": plan.size_bytes},
        ),
    )
    keep = quarantine.keep if quarantine is not None else None
    deletion = Deletion(storage, basis.snapshot, plan, progress, keep)
    try:
        _check_clock(storage, started.version, basis.now_ms)
        deletion.look_again(started.snapshot)
        deletion.run()
    except Exception:
        with suppress(DeltaLogError, OSError):
            metrics = {"numDeletedFiles": deletion.num_files, "sizeOfDeletedData": deletion.size_bytes}
            end = Change("VACUUM END", parameters={"status": "FAILED"}, metrics=metrics)
            writing.commit(started.snapshot or deletion.snapshot, end)
        raise
    metrics = _metrics(plan, deletion.num_files, deletion.size_bytes, deletion.num_directories)
    kept = {"quarantine": quarantine.name} if quarantine is not None else {}
    ended = writing.commit(
        deletion.snapshot,
        Change(
            "VACUUM END",
            parameters={"status": "COMPLETED", **(quarantine.parameters if quarantine is not None else {})},
            metrics=metrics,
            transaction=transaction,
        ),
    )
    warnings = _remember(storage, plan, deletion.num_young, progress)
    latest = ended.snapshot or deletion.snapshot.refreshed()
    confirmed = confirm_live_files(storage, latest, plan, progress, hidden, found.lister)
    facts = {"proof": proof.strength, "numSparedFiles": deletion.num_spared, **confirmed, **kept}
    facts |= _with_warnings(plan, warnings)
    if plan.is_unseen:
        facts |= {"numAbsentFiles": deletion.num_absent, "numYoungFiles": deletion.num_young}
    return VacuumOutcome(ended.version, metrics, facts)


def _checked(
    storage: Storage, found: PlannedVacuum, hidden: HiddenNames, progress: ProgressReporter
) -> Proof:
    basis, plan = found.basis, found.plan
    if plan.mode == "full":
        missing = missing_live_files(storage, basis.snapshot, basis.listing, hidden)
    else:
        probed = some_of(live_keys(basis.snapshot, storage.uri))
        missing = [key for key, info in zip(probed, storage.head_many(probed), strict=True) if info is None]
    if missing:
        raise VacuumRefused(
            f"{len(missing)} live files of version {plan.read_version} are not in the store, for example "
            f"{missing[0]!r}. The table is damaged, or this is not its place, and what would be deleted may be needed to "
            "repair it. Nothing was deleted."
        )
    progress.message("proving the protected files by a second reading of the log")
    return prove(storage, basis, plan)


def _check_clock(storage: Storage, version: int, now_ms: int) -> None:
    """What the store wrote after the plan was made cannot be older than the plan.

    :raises ClockAhead: this machine's clock is ahead, so that young files look old.
    """
    written = storage.head(commit_key(version))
    if written is not None:
        require_not_ahead(now_ms, written.modification_time_ms)


def _remember(
    storage: Storage, plan: VacuumPlan, num_young: int, progress: ProgressReporter
) -> tuple[str, ...]:
    """Note it for the next lite vacuum. One of some partitions leaves others undone, and an inventory may be old.

    The vacuum is done by then. Without the note, the next lite vacuum looks at more commits than it has to.

    :return: warnings.
    """
    is_whole = plan.where is None and plan.mode != "inventory" and not num_young
    if not is_whole or plan.settled_version is None:
        return ()
    try:
        remember_settled_version(storage, plan.settled_version)
    except (StorageError, OSError) as error:
        warning = f"for the next lite vacuum no note could be left of how far this one came: {error}"
        progress.message(warning)
        return (warning,)
    return ()


def _with_warnings(plan: VacuumPlan, warnings: tuple[str, ...]) -> dict[str, Any]:
    return {"warnings": [*plan.warnings, *warnings]} if warnings else {}


def _metrics(plan: VacuumPlan, files: int, size_bytes: int, directories: int) -> dict[str, int]:
    return {
        "numDeletedFiles": files,
        "sizeOfDeletedData": size_bytes,
        "numDeletedDirectories": directories,
        "numVacuumedDirectories": plan.num_directories,
    }


def _start_parameters(plan: VacuumPlan) -> dict[str, Any]:
    retention = plan.retention
    asked = {} if retention.asked_ms is None else {"specifiedRetentionMillis": retention.asked_ms}
    return {
        "retentionCheckEnabled": retention.checked,
        "defaultRetentionMillis": retention.configured_ms,
        **asked,
    }


@dataclass(frozen=True, slots=True)
class _Commits:
    storage: Storage
    runtime: Runtime
    tags: Mapping[str, str]

    def commit(self, snapshot: Snapshot, change: Change) -> CommitResult:
        transaction = Transaction(self.storage, snapshot, Operation.VACUUM, self.runtime)
        return transaction.commit(replace(change, tags=self.tags))


@dataclass(frozen=True, slots=True)
class _Output:
    """Where every path goes."""

    uri: str
    storage: Storage
    name: str

    @classmethod
    def of(cls, uri: str, open_place: OpenPlace) -> _Output:
        """
        :raises InvalidRequest: there is something already.
        """
        directory, _, name = uri.rpartition("/")
        if not name:
            raise InvalidRequest(f"{uri} is a directory; name a new file for the paths.")
        root = open_place(directory or ("/" if uri.startswith("/") else "."))
        if root.head(name) is not None:
            raise InvalidRequest(f"{uri} is there already. Name a new file for the paths.")
        return cls(uri, root, name)

    def write(self, plan: VacuumPlan) -> None:
        with self.storage.open_write(self.name) as file:
            for lines in chain((b"",), plan.lines()):
                file.write(lines)
