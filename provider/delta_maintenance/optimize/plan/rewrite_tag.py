"""Names the settings that decide how data files are written: the value of the tag that each new file gets.

Two files with one tag were written the same way, so a run need not write them again.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.snapshot.snapshot import Snapshot
from delta_log.table_config import properties as table_properties
from delta_log.table_config.features import materializes_partitions
from delta_log.transaction.conflict import IDENTITY_HIGH_WATER_MARK, without_identity_marks
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.table_layout import TableLayout, clustered_columns, table_layout
from delta_maintenance.rewrite.task import REWRITE_TAG

DEFAULT_TARGET_BYTES = 1 << 30
#: Grows when the output of the rewriter changes so much that ``full`` should write its files again. Revision 1 gave bounds
#: to row groups of floats with a NaN, by which readers skipped rows.
_REWRITE_REVISION = 2
#: Properties that shape data files.
_SHAPING = (
    "delta.parquet.compression.codec",
    "delta.dataSkipping",
    "delta.columnMapping.",
    "delta.enableRowTracking",
    "delta.rowTracking.",
    "delta.writePartitionColumns",
)


def target_size(snapshot: Snapshot, options: OptimizeOptions) -> int:
    """The target size of new files: of the request, else of the table, else 1 GiB."""
    if options.target_size_bytes is not None:
        return options.target_size_bytes
    return table_properties.size_bytes(snapshot.properties, "delta.targetFileSize") or DEFAULT_TARGET_BYTES


def rewrite_tag(snapshot: Snapshot, options: OptimizeOptions) -> str:
    """The tag of the files that a plan would write."""
    layout = table_layout(snapshot, options)
    return rewrite_settings_digest(snapshot, target_size(snapshot, options), layout)


def rewrite_settings_digest(
    snapshot: Snapshot, target_size_bytes: int, layout: TableLayout | None = None
) -> str:
    """Digest everything that decides how a file is written."""
    shaping = {name: value for name, value in snapshot.properties.items() if name.startswith(_SHAPING)}
    schema: Any = snapshot.metadata.schemaString
    if IDENTITY_HIGH_WATER_MARK in schema:  # moves with every append
        schema = without_identity_marks(schema)
    settings = {
        "revision": _REWRITE_REVISION,
        "schema": schema,
        "partitionColumns": list(snapshot.partition_columns),
        "properties": shaping,
        "targetSizeBytes": target_size_bytes,
    }
    if materializes_partitions(snapshot.properties, snapshot.protocol):
        settings["partitionColumnsInFiles"] = True
    clustered_by = clustered_columns(snapshot)
    if clustered_by:
        settings["clusteringColumns"] = clustered_by
    if layout is not None:
        settings["layout"] = layout.layout.tag
    return digest(json.dumps(settings, sort_keys=True))


def written_with(files: pa.Table, tag: str) -> pa.ChunkedArray:
    """For each file, whether this rewriter wrote it under these settings."""
    tags = pc.map_lookup(files.column("tags"), pa.scalar(REWRITE_TAG), "first")
    return pc.fill_null(pc.equal(tags, tag), False)


def digest(*parts: str) -> str:
    """Thirty-two hexadecimal digits that name some texts."""
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:32]
