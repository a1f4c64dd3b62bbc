"""How long a file is kept after the last version that needed it, and the moment that follows from it.

Times come from three clocks: a file's from the store, a tombstone's from its committer, now from this machine. A
:data:`~delta_log.storage.store_clock.CLOCK_MARGIN_MS` is taken off for their differences, but never more than the retention itself: whoever asks for
no retention gets none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from delta_log.errors import InvalidRequest
from delta_log.storage.store_clock import CLOCK_MARGIN_MS
from delta_log.table_config.retention import (
    DELETED_FILE_RETENTION,
    deleted_file_retention_ms,
    log_retention_ms,
)
from delta_maintenance.units import HOUR_MS
from delta_maintenance.vacuum.options import VacuumOptions


@dataclass(frozen=True, slots=True)
class Retention:
    """
    :param configured_ms: of the table.
    :param asked_ms: ``None``: not asked for.
    :param cutoff_ms: what was needed at this moment or later stays.
    :param checked: the retention may not be shorter than the table's.
    :param log_retention_ms: how long the table's log keeps its commits.
    """

    configured_ms: int
    asked_ms: int | None
    cutoff_ms: int
    checked: bool
    log_retention_ms: int

    @property
    def retention_ms(self) -> int:
        return self.configured_ms if self.asked_ms is None else self.asked_ms

    @property
    def is_longer_than_configured(self) -> bool:
        """Checkpoints may have forgotten removals that this retention still protects."""
        return self.retention_ms > self.configured_ms


def retention_of(properties: Mapping[str, str], options: VacuumOptions, now_ms: int) -> Retention:
    """
    :raises InvalidRequest: shorter than the table's, and nobody switched the check off.
    :raises CorruptLog: the table's own is no duration.
    """
    configured = deleted_file_retention_ms(properties)
    log_retention = log_retention_ms(properties)
    asked = None if options.retain_hours is None else round(options.retain_hours * HOUR_MS)
    retention = configured if asked is None else asked
    if options.retention_check and retention < configured:
        raise InvalidRequest(
            f"A retention of {_hours(retention)} is shorter than the {_hours(configured)} that this table promises its "
            f"readers and writers ({DELETED_FILE_RETENTION}): it could delete what a running query or a transaction in flight still "
            "needs. Nothing was deleted. Ask for more, or switch the retention check off if nobody else uses the table."
        )
    cutoff = now_ms - retention - min(CLOCK_MARGIN_MS, retention)
    if options.approved is not None:
        cutoff = min(cutoff, options.approved.cutoff_ms)
    return Retention(
        configured,
        asked,
        cutoff,
        options.retention_check,
        log_retention,
    )


def _hours(milliseconds: int) -> str:
    return f"{milliseconds / HOUR_MS:g} hours"
