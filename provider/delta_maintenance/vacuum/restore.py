"""Bringing files back that a VACUUM put into quarantine, from a wish to a report. The log is not changed.

See :mod:`delta_maintenance.vacuum.quarantine`.
"""

from __future__ import annotations

from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.job_context import JobContext
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.vacuum.options import RESTORE_QUARANTINE, RestoreOptions
from delta_maintenance.vacuum.quarantine import restore

_SHOWN_CONFLICTS = 10


def run(spec: JobSpec, context: JobContext) -> JobReport:
    """Do what the spec asks.

    :raises QuarantineRefused: the log vouches for none of what is there.
    :raises DeltaLogError: the store failed; repeating goes on.
    """
    table = context.table
    name = RestoreOptions.from_spec(RESTORE_QUARANTINE, spec.options).name
    snapshot = table.snapshot()
    if not spec.dry_run:
        table.storage.require_writable()
    found = restore(table.storage, HiddenNames.of(snapshot), name, context.progress, dry_run=spec.dry_run)
    if spec.dry_run:
        status = "planned"
    else:
        status = "restored" if found.num_files or found.num_present else "nothing_to_do"
    return context.report(
        spec,
        status,
        snapshot.version,
        metrics={
            "numRestoredFiles": found.num_files,
            "sizeOfRestoredData": found.size_bytes,
            "numPresentFiles": found.num_present,
            "numConflictingFiles": len(found.conflicts),
            "numRefusedFiles": found.num_refused,
            "numUnnamedFiles": found.num_unnamed,
            "numRefusedQuarantines": len(found.refused),
        },
        plan={
            "quarantines": found.names,
            "conflicts": found.conflicts[:_SHOWN_CONFLICTS],
            "leftFiles": found.examples,
            "refusedQuarantines": dict(list(found.refused.items())[:_SHOWN_CONFLICTS]),
        },
    )
