"""The metrics of OPTIMIZE, under the names that Spark uses."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from delta_log.errors import CommitFailed
from delta_maintenance.rewrite.task import BinManifest


def commit_metrics(manifests: Sequence[BinManifest]) -> dict[str, int]:
    """The ``operationMetrics`` of a commit. File sizes are those of added files, in bytes."""
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


def _percentile(ascending: Sequence[int], quarters: int) -> int:
    return ascending[len(ascending) * quarters // 4] if ascending else 0
