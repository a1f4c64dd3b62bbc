"""How long VACUUM keeps a file after the last version that needed it, and the cutoff that follows.

Three clocks take part: the store dates files, the committer dates tombstones, and this machine says what time it is. A
:data:`~delta_log.storage.store_clock.CLOCK_MARGIN_MS` is subtracted for their differences, but never more than the
retention itself, so that a retention of zero stays zero.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from delta_log.errors import InvalidRequest
from delta_log.storage.store_clock import CLOCK_MARGIN_MS
from delta_log.table_config.properties import (
    DELETED_FILE_RETENTION,
    deleted_file_retention_ms,
    log_retention_ms,
    readable,
)
from delta_maintenance.units import HOUR_MS, format_hours


class Retention(Struct, frozen=True):
    """The retention of one vacuum.

    :param configured_ms: the table's own retention; ``None``: the property is not a duration.
    :param asked_ms: the retention of the request; ``None``: the table's own applies.
    :param retention_ms: the one that applies.
    :param cutoff_ms: a file that a version needed at this moment or later is kept.
    :param checked: a retention shorter than the table's is refused.
    :param log_retention_ms: how long the table keeps its commits; ``None``: the property is not a duration.
    """

    configured_ms: int | None
    asked_ms: int | None
    cutoff_ms: int
    checked: bool
    log_retention_ms: int | None
    retention_ms: int

    @property
    def is_longer_than_configured(self) -> bool:
        """Then checkpoints may have dropped tombstones that this retention still protects."""
        return self.configured_ms is None or self.retention_ms > self.configured_ms


def retention_of(
    properties: Mapping[str, str],
    now_ms: int,
    *,
    retain_hours: float | None = None,
    checked: bool = True,
    latest_cutoff_ms: int | None = None,
) -> Retention:
    """Decide the retention of a vacuum.

    :param properties: properties of the table.
    :param retain_hours: the retention of the request; ``None``: the table's own.
    :param checked: ``True``: refuse a retention shorter than the table's.
    :param latest_cutoff_ms: cutoff of an approved plan; the vacuum goes no further.
    :raises InvalidRequest: the retention is shorter than the table's, and `checked`.
    :raises InvalidProperty: the table's own retention is not a duration, and the request has none.
    """
    configured = readable(deleted_file_retention_ms, properties)
    asked = None if retain_hours is None else round(retain_hours * HOUR_MS)
    retention = deleted_file_retention_ms(properties) if asked is None else asked
    # What a table promises that cannot be read is at least the default.
    promised = deleted_file_retention_ms({}) if configured is None else configured
    if checked and retention < promised:
        raise InvalidRequest(
            f"A retention of {format_hours(retention)} is shorter than the {format_hours(promised)} that this table "
            f"promises its readers and writers ({DELETED_FILE_RETENTION}): it could delete what a running query or a "
            "transaction in flight still needs. Nothing was deleted. Ask for more, or switch the retention check off if "
            "no other process uses the table."
        )
    cutoff = now_ms - retention - min(CLOCK_MARGIN_MS, retention)
    if latest_cutoff_ms is not None:
        cutoff = min(cutoff, latest_cutoff_ms)
    return Retention(configured, asked, cutoff, checked, readable(log_retention_ms, properties), retention)
