"""The job that brings files back from quarantine, from its spec to its report. The log is not changed."""

from __future__ import annotations

from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.job_context import JobContext
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.vacuum.options import RESTORE_QUARANTINE, RestoreOptions
from delta_maintenance.vacuum.quarantine.restoration import Restoration, restore

_SHOWN_CONFLICTS = 10


def run(spec: JobSpec, context: JobContext) -> JobReport:
    """Restore one quarantine of a table, or all.

    :raises QuarantineRefused: the log vouches for none of the quarantines that hold files.
    :raises DeltaLogError: the store failed; running again continues.
    """
    table = context.table
    name = RestoreOptions.from_spec(RESTORE_QUARANTINE, spec.options).name
    snapshot = table.snapshot()
    if not spec.dry_run:
        table.storage.require_writable()
    restoration = restore(
        table.storage, HiddenNames.of(snapshot), name, context.progress, dry_run=spec.dry_run
    )
    return context.report(
        spec,
        _status(restoration, dry_run=spec.dry_run),
        snapshot.version,
        metrics={
            "numRestoredFiles": restoration.num_files,
            "sizeOfRestoredData": restoration.size_bytes,
            "numPresentFiles": restoration.num_present,
            "numConflictingFiles": len(restoration.conflicts),
            "numRefusedFiles": restoration.num_refused,
            "numUnnamedFiles": restoration.num_unnamed,
            "numRefusedQuarantines": len(restoration.refused),
        },
        plan={
            "quarantines": restoration.names,
            "conflicts": restoration.conflicts[:_SHOWN_CONFLICTS],
            "leftFiles": restoration.examples,
            "refusedQuarantines": dict(list(restoration.refused.items())[:_SHOWN_CONFLICTS]),
        },
    )


def _status(restoration: Restoration, *, dry_run: bool) -> str:
    if dry_run:
        return "planned"
    return "restored" if restoration.num_files or restoration.num_present else "nothing_to_do"
