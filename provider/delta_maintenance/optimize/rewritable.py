"""Refuses a table whose files this release cannot write."""

from __future__ import annotations

from delta_log.snapshot.snapshot import Snapshot
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_log.table_config.schema import storable
from delta_maintenance.rewrite.live_rows import row_tracking
from delta_maintenance.rewrite.writer_settings import WriterSettings


def require_rewritable(snapshot: Snapshot, gate: Operation) -> None:
    """Refuse a table that cannot be rewritten; called before anything else, so that a dry run is refused, too.

    :param gate: OPTIMIZE or PURGE.
    :raises DeltaLogError: this release cannot write a file of the table.
    """
    table_features.require(snapshot.protocol, gate, snapshot.unused_features)
    storable(snapshot.schema.without(snapshot.partition_columns))
    row_tracking(snapshot.properties)
    WriterSettings.codec_of(snapshot.properties)
