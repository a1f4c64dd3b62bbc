"""Carrying out the plan of a vacuum: check, commit, delete, commit, check again.

1. Check the plan: every live file is there now, and a second reading of the log protects the same files.
2. Commit ``VACUUM START``.
3. Delete the files in batches. Before each batch, newer commits are read for files that they need again.
4. Commit ``VACUUM END``, which says whether the vacuum was completed.
5. Check again that every live file is there.

The table stays readable wherever a run dies, since both commits only describe the run. The next run lists anew and deletes
what is left.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from delta_log.errors import DeltaLogError, StorageError
from delta_log.log.file_names import commit_key
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.storage.store_clock import require_not_ahead
from delta_log.table_config.features import Operation
from delta_log.transaction.commit_body import Change
from delta_log.transaction.transaction import CommitResult, Transaction
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.vacuum.candidates import PlannedVacuum
from delta_maintenance.vacuum.deletion import Deletion
from delta_maintenance.vacuum.lite import remember_settled_version
from delta_maintenance.vacuum.plan.plan import VacuumPlan
from delta_maintenance.vacuum.presence_check import confirm_live_files, live_keys, missing_live_files, sample
from delta_maintenance.vacuum.proof import prove
from delta_maintenance.vacuum.quarantine.quarantine import Quarantine


class VacuumOutcome(Struct, frozen=True):
    """What a vacuum did.

    :param version: the version of ``VACUUM END``; ``None`` if there was nothing to delete and nothing was committed.
    :param facts: what the report's plan says about the proof and the last check.
    :param ended: the commit of ``VACUUM END``.
    """

    version: int | None
    metrics: Mapping[str, int]
    facts: Mapping[str, Any]
    ended: CommitResult | None = None


def execute_plan(
    storage: Storage,
    planned: PlannedVacuum,
    progress: ProgressReporter,
    runtime: Runtime,
    tags: Mapping[str, str],
    transaction: tuple[str, int] | None = None,
) -> VacuumOutcome:
    """Delete what a plan names.

    :param tags: tags for the ``commitInfo`` of both commits.
    :param transaction: application id and version of this piece of work, for ``VACUUM END``.
    :raises VacuumRefused: a check of the plan failed; nothing was deleted.
    :raises ClockAhead: the plan rests on a clock that is ahead of the store's; nothing was deleted.
    :raises VacuumIncomplete: only some files were deleted. A ``VACUUM END`` says ``FAILED``, if it could be committed.
    :raises LiveFilesMissing: a live file is absent after the deletion.
    """
    plan, basis = planned.plan, planned.basis
    if plan.is_empty:
        warnings = _remember(storage, plan, 0, progress)
        return VacuumOutcome(None, _metrics(plan, 0, 0, 0), _with_warnings(plan, warnings))
    refuse_missing_files(storage, planned)
    progress.message("proving the protected files by a second reading of the log")
    proof = prove(storage, basis, plan)
    quarantine = None
    if basis.options.quarantine and plan.candidates.num_rows:
        quarantine = Quarantine.begin(storage, plan, runtime)
    commits = _Commits(storage, runtime, tags, quarantine.commit_parameters if quarantine is not None else {})
    started = commits.start(basis.snapshot, plan)
    copy_files = quarantine.copy_files if quarantine is not None else None
    deletion = Deletion(storage, basis.snapshot, plan, progress, copy_files)
    with commits.recorded_failure(started, deletion):
        _check_clock(storage, started.version, basis.now_ms)
        deletion.spare_new_commits(started.snapshot)
        deletion.run()
    metrics = _metrics(plan, deletion.num_files, deletion.size_bytes, deletion.num_directories)
    ended = commits.end(deletion.snapshot, metrics, transaction)
    warnings = _remember(storage, plan, deletion.num_young, progress)
    latest = ended.snapshot or deletion.snapshot.refreshed()
    hidden = HiddenNames.of(basis.snapshot)
    confirmed = confirm_live_files(storage, latest, plan, progress, hidden, planned.distributed)
    facts = {"proof": proof.strength, "numSparedFiles": deletion.num_spared, **confirmed}
    facts |= {"quarantine": quarantine.name} if quarantine is not None else {}
    facts |= _with_warnings(plan, warnings)
    if plan.is_unseen:
        facts |= {"numAbsentFiles": deletion.num_absent, "numYoungFiles": deletion.num_young}
    return VacuumOutcome(ended.version, metrics, facts, ended)


def refuse_missing_files(storage: Storage, planned: PlannedVacuum) -> None:
    """Look whether the store has the live files. A dry run looks too, since it must not promise what the run refuses.

    :raises VacuumRefused: live files are absent, and there is something to delete.
    """
    basis, plan = planned.basis, planned.plan
    if plan.is_empty:
        return
    if plan.mode == "full":
        hidden = HiddenNames.of(basis.snapshot)
        missing = missing_live_files(storage, basis.snapshot, basis.listing, hidden)
    else:
        probed = sample(live_keys(basis.snapshot, storage.uri))
        missing = [key for key, info in zip(probed, storage.head_many(probed), strict=True) if info is None]
    if missing:
        raise VacuumRefused(
            f"{len(missing)} live files of version {plan.read_version} are not in the store, for example "
            f"{missing[0]!r}. The table is damaged, or this is not its place, and what would be deleted may be needed to "
            "repair it. Nothing was deleted."
        )


def _check_clock(storage: Storage, version: int, now_ms: int) -> None:
    """Compare the plan's time with the store's: a commit that was written after the plan cannot be older than it.

    :raises ClockAhead: this machine's clock is ahead, so young files look old.
    """
    written = storage.head(commit_key(version))
    if written is not None:
        require_not_ahead(now_ms, written.modification_time_ms)


def _remember(
    storage: Storage, plan: VacuumPlan, num_young: int, progress: ProgressReporter
) -> tuple[str, ...]:
    """Note for the next lite vacuum where to start, if this vacuum has deleted everything up to there.

    A vacuum of some partitions leaves the others undone, and an inventory may be old. The vacuum itself is done by now, so
    a note that cannot be written is no failure: the next lite vacuum reads more commits than it has to.

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


def _metrics(plan: VacuumPlan, num_files: int, size_bytes: int, num_directories: int) -> dict[str, int]:
    return {
        "numDeletedFiles": num_files,
        "sizeOfDeletedData": size_bytes,
        "numDeletedDirectories": num_directories,
        "numVacuumedDirectories": plan.num_directories,
    }


class _Commits(Struct, frozen=True):
    """The two commits that enclose a deletion.

    :param quarantine_parameters: parameters for both commits, so that the log vouches for the quarantine however the vacuum ends.
    """

    storage: Storage
    runtime: Runtime
    tags: Mapping[str, str]
    quarantine_parameters: Mapping[str, str]

    def start(self, snapshot: Snapshot, plan: VacuumPlan) -> CommitResult:
        retention = plan.retention
        asked = {} if retention.asked_ms is None else {"specifiedRetentionMillis": retention.asked_ms}
        configured = (
            {} if retention.configured_ms is None else {"defaultRetentionMillis": retention.configured_ms}
        )
        parameters = {
            "retentionCheckEnabled": retention.checked,
            # As delta-io/delta#5588 has it: an inventory stands for a listing of the whole directory.
            "opType": "LITE" if plan.mode == "lite" else "FULL",
            **configured,
            **asked,
            **self.quarantine_parameters,
        }
        metrics = {"numFilesToDelete": plan.candidates.num_rows, "sizeOfDataToDelete": plan.size_bytes}
        return self._commit(snapshot, Change("VACUUM START", parameters=parameters, metrics=metrics))

    def end(
        self, snapshot: Snapshot, metrics: Mapping[str, int], transaction: tuple[str, int] | None
    ) -> CommitResult:
        parameters = {"status": "COMPLETED", **self.quarantine_parameters}
        change = Change("VACUUM END", parameters=parameters, metrics=metrics, transaction=transaction)
        return self._commit(snapshot, change)

    @contextmanager
    def recorded_failure(self, started: CommitResult, deletion: Deletion) -> Iterator[None]:
        """Commit a ``VACUUM END`` that says ``FAILED`` if the block raises, and let the error pass."""
        try:
            yield
        except Exception:
            with suppress(DeltaLogError, OSError):
                metrics = {"numDeletedFiles": deletion.num_files, "sizeOfDeletedData": deletion.size_bytes}
                change = Change("VACUUM END", parameters={"status": "FAILED"}, metrics=metrics)
                self._commit(started.snapshot or deletion.snapshot, change)
            raise

    def _commit(self, snapshot: Snapshot, change: Change) -> CommitResult:
        transaction = Transaction(self.storage, snapshot, Operation.VACUUM, self.runtime)
        return transaction.commit(replace(change, tags=self.tags))
