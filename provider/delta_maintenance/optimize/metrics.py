"""The metrics of OPTIMIZE, under the names that Spark uses."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from delta_log.errors import CommitFailed, brief
from delta_maintenance.contract import MAX_PARTITIONS
from delta_maintenance.rewrite.task import BinManifest

#: The longest value of a partition column that a report quotes.
_MAX_VALUE = 120


def commit_metrics(manifests: Sequence[BinManifest]) -> dict[str, int]:
    """The ``operationMetrics`` of a commit. File sizes are sizes of added files, in bytes."""
    added = sorted(output.size_bytes for manifest in manifests for output in manifest.outputs)
    sources = [source for manifest in manifests for source in manifest.sources]
    return {
        "numAddedFiles": len(added),
        "numRemovedFiles": len(sources),
        "numAddedBytes": sum(added),
        "numRemovedBytes": sum(source.size_bytes for source in sources),
        "numCopiedBytes": sum(manifest.bytes_copied for manifest in manifests),
        "numDeletionVectorsRemoved": sum(source.deletion_vector is not None for source in sources),
        "minFileSize": added[0] if added else 0,
        "p25FileSize": _percentile(added, 1),
        "p50FileSize": _percentile(added, 2),
        "p75FileSize": _percentile(added, 3),
        "maxFileSize": added[-1] if added else 0,
    }


def dropped_bin(manifest: BinManifest, conflict: CommitFailed) -> dict[str, Any]:
    """Describe a bin that was left out of the commit, for the report."""
    return {
        "bin": manifest.bin_id,
        "partition_values": dict(manifest.partition_values),
        "files": len(manifest.sources),
        "bytes": manifest.bytes_in,
        "type": type(conflict).__name__,
        "message": str(conflict),
        "version": conflict.version,
    }


def partition_changes(manifests: Sequence[BinManifest], columns: Mapping[str, str]) -> list[dict[str, Any]]:
    """What committed bins changed, by partition: first the partition that lost the most files.

    :param columns: logical names of the partition columns, by physical name.
    """
    found: dict[tuple[str | None, ...], dict[str, Any]] = {}
    for manifest in manifests if columns else ():
        values = tuple(manifest.partition_values.get(physical) or None for physical in columns)
        change = found.setdefault(
            values, dict.fromkeys(("files_before", "files_after", "bytes_before", "bytes_after"), 0)
        )
        change["files_before"] += len(manifest.sources)
        change["files_after"] += len(manifest.outputs)
        change["bytes_before"] += manifest.bytes_in
        change["bytes_after"] += sum(output.size_bytes for output in manifest.outputs)
    most = sorted(found.items(), key=lambda one: one[1]["files_after"] - one[1]["files_before"])
    return [
        {"partition": dict(zip(columns.values(), map(_shortened, values), strict=True)), **change}
        for values, change in most[:MAX_PARTITIONS]
    ]


def _shortened(value: str | None) -> str | None:
    return value if value is None else brief(value, _MAX_VALUE)


def _percentile(ascending: Sequence[int], quarters: int) -> int:
    return ascending[len(ascending) * quarters // 4] if ascending else 0
