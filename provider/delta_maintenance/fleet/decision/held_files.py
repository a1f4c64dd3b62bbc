"""The removed files of a table that VACUUM would delete, also where the log does not name them any more.

A checkpoint drops each tombstone that is older than the retention, while its file stays until a VACUUM. Thus a table with frequent
checkpoints never shows more reclaimable bytes than one of its days removes. Surveys remember what was removed before it gets old enough.
"""

from __future__ import annotations

from msgspec.structs import replace

from delta_maintenance.fleet.history import HeldFiles, TableHistory
from delta_maintenance.health.facts import FileTotal, HealthFacts


def with_forgotten_files(facts: HealthFacts, history: TableHistory) -> HealthFacts:
    """The facts of a table, with the reclaimable files that earlier surveys saw when the log still named them.

    The log and the surveys know partly the same files, so the greater number counts.
    """
    total = FileTotal()
    for held in _not_deleted(facts, history):
        if held.measured_ms <= facts.removed.cutoff_ms:
            total = total.plus(held.total.files, held.total.size_bytes)
    if total.size_bytes <= facts.removed.reclaimable.size_bytes:
        return facts
    return replace(facts, removed=replace(facts.removed, reclaimable=total))


def held_files(facts: HealthFacts, history: TableHistory) -> tuple[HeldFiles, ...]:
    """What is to be remembered of the removed files, after a survey with these facts."""
    kept = _not_deleted(facts, history)
    is_apart = not kept or kept[-1].measured_ms <= facts.removed.cutoff_ms
    if not is_apart or not facts.removed.held.files:
        return kept
    return (*kept, HeldFiles(facts.measured_ms, facts.removed.held))


def _not_deleted(facts: HealthFacts, history: TableHistory) -> tuple[HeldFiles, ...]:
    retention_ms = facts.measured_ms - facts.removed.cutoff_ms
    deleted_ms = _last_vacuum_ms(facts, history) - retention_ms
    return tuple(held for held in history.held if held.measured_ms > deleted_ms)


def _last_vacuum_ms(facts: HealthFacts, history: TableHistory) -> int:
    """The beginning of the last VACUUM, by this fleet or by others."""
    own = [run.started_ms for run in history.last_runs("vacuum") if not run.has_failed]
    noted = [one.timestamp_ms for one in facts.commits if one.operation == "VACUUM START"]
    return max([0, *own, *noted])
