"""Actions with every member that readers demand, where a careless writer left some out.

Protocol sections "Change Metadata" and "Add File and Remove File". Each missing member gets the
value that readers assume in its absence. Checkpoints and version checksums hold completed actions only.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
from msgspec.structs import replace

from delta_log.log.actions import Metadata


def complete_metadata(metadata: Metadata) -> Metadata:
    """Fill in the required members; nulls in the two maps of texts are dropped, since they mean nothing."""
    stated = metadata.format or {}
    options = {name: str(value) for name, value in (stated.get("options") or {}).items() if value is not None}
    return replace(
        metadata,
        format={"provider": stated.get("provider") or "parquet", "options": options},
        partitionColumns=list(metadata.partitionColumns or ()),
        configuration=dict(metadata.properties),
    )


def complete_adds(adds: pa.RecordBatch) -> pa.RecordBatch:
    """Fill in partition values (none) and modification times (1970)."""
    adds = _filled(adds, "partition_values", _without_null_maps)
    return _filled(adds, "modification_time", partial(pc.fill_null, fill_value=0))


def complete_removes(removes: pa.RecordBatch) -> pa.RecordBatch:
    """Fill in ``data_change`` (false)."""
    return _filled(removes, "data_change", partial(pc.fill_null, fill_value=False))


def _filled(batch: pa.RecordBatch, name: str, fill: Callable[[pa.Array], pa.Array]) -> pa.RecordBatch:
    index = batch.schema.get_field_index(name)
    if index < 0 or not batch.column(index).null_count:
        return batch
    return batch.set_column(index, name, fill(batch.column(index)))


def _without_null_maps(maps: pa.MapArray) -> pa.MapArray:
    return pc.if_else(pc.is_null(maps), pa.scalar([], maps.type), maps)
