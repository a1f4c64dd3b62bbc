"""Refuses a table whose files this release cannot write, and a plan whose files it may not read."""

from __future__ import annotations

from delta_log.errors import SymbolicLinkRefused, UnsupportedFeature
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_log.table_config.schema import parquet_levels, storable
from delta_maintenance.optimize.plan.plan import OptimizePlan
from delta_maintenance.rewrite.encode.writer_settings import WriterSettings
from delta_maintenance.rewrite.read.row_reader import row_tracking

#: Arrow neither reads nor writes deeper columns. An array or a map takes two levels, a struct or a value one.
MAX_LEVELS = 99


def require_rewritable(snapshot: Snapshot, gate: Operation) -> None:
    """Refuse a table that cannot be rewritten; called before anything else, so that a dry run is refused, too.

    :param gate: OPTIMIZE or PURGE.
    :raises DeltaLogError: this release cannot write a file of the table.
    """
    table_features.require(snapshot.protocol, gate, snapshot.unused_features)
    if snapshot.num_files:
        # Of an empty table no file is ever written.
        for column in storable(snapshot.schema.without(snapshot.partition_columns)):
            if parquet_levels(column.type) > MAX_LEVELS:
                feature = f"the column {column.name!r}, which is nested more than {MAX_LEVELS} levels deep in Parquet"
                raise UnsupportedFeature((feature,), "write files of")
    row_tracking(snapshot.properties)
    WriterSettings.codec_of(snapshot.properties)


def require_no_links(plan: OptimizePlan, storage: Storage) -> None:
    """Refuse a plan with a source that is a symbolic link or lies behind one, before a bin is written.

    A worker that meets a link refuses it, too. By then other bins may be done.

    :raises SymbolicLinkRefused: names the link.
    """
    if not storage.has_directories:
        return
    for batch in plan.files.select(["key"]).to_batches():
        keys = batch.column(0).to_pylist()
        for link in storage.symbolic_links(keys):
            if link is not None:
                raise SymbolicLinkRefused(f"{storage.uri}/{link}", link)
