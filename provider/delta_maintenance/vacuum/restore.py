"""Bringing files back that a VACUUM put into quarantine, from a wish to a report. The log is not changed.

See :mod:`delta_maintenance.vacuum.quarantine`.
"""

from __future__ import annotations

from delta_log.runtime import Runtime
from delta_log.table import Table
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.vacuum.options import RESTORE_QUARANTINE, RestoreOptions
from delta_maintenance.vacuum.quarantine import restore

_SHOWN_CONFLICTS = 10


def run(spec: JobSpec, table: Table, progress: ProgressReporter, runtime: Runtime) -> JobReport:
    """Do what the spec asks.

    :raises QuarantineRefused: the log vouches for none of what is there.
    :raises DeltaLogError: the store failed; repeating goes on.
    """
    started_ms = runtime.now_ms()
    name = RestoreOptions.from_spec(RESTORE_QUARANTINE, spec.options).name
    snapshot = table.snapshot()
    if not spec.dry_run:
        table.storage.require_writable()
    found = restore(table.storage, HiddenNames.of(snapshot), name, progress, dry_run=spec.dry_run)
    if spec.dry_run:
        status = "planned"
    else:
        status = "restored" if found.num_files or found.num_present else "nothing_to_do"
    return JobReport(
        operation=spec.operation,
        table=spec.table,
        status=status,
        run_id=spec.run_id,
        read_version=snapshot.version,
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
        started_ms=started_ms,
        finished_ms=runtime.now_ms(),
    )
