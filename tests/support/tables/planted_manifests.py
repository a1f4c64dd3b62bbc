"""Forges manifests in ``_maintenance/<run>/``, as a writer with access to the table's directory can.

The forger knows everything about the table and the run except the run's key: names, sources, settings, the format.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq

from delta_log import Table
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.tasks import tasks_of
from delta_maintenance.rewrite.task import REWRITE_TAG, RewriteTask

#: The one row that every forged data file holds.
FORGED_ID = -666


def planned(table: Path, run_id: str = "run") -> list[RewriteTask]:
    """Returns the tasks of a run that begins now."""
    opened = Table(str(table))
    snapshot = opened.snapshot()
    return list(tasks_of(plan_optimize(snapshot, OptimizeOptions(), 0), snapshot, run_id, opened.uri))


def forged_file(path: Path) -> Path:
    """Writes a data file with one row of the schema ``id``, for a table partitioned by ``part``."""
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table({"id": pa.array([FORGED_ID], pa.int64())}), path)
    return path


def forged(task: RewriteTask, **outputs: Any) -> dict[str, Any]:
    """Returns a manifest as releases without keys wrote it; it claims that the task is done and has one row.

    :param outputs: members of its only output.
    """
    output = {
        "path": "forged.parquet",
        "key": "forged.parquet",
        "size_bytes": 1,
        "modification_time_ms": 1,
        "num_records": 1,
        "stats": '{"numRecords": 1}',
        "tags": {REWRITE_TAG: task.rewrite_tag},
    }
    return {
        "bin_id": task.bin_id,
        "run_id": task.run_id,
        "partition_values": dict(task.partition_values),
        "sources": [msgspec.to_builtins(source) for source in task.sources],
        "outputs": [{**output, **outputs}],
        "rows_in": 1,
        "rows_deleted": 0,
        "rows_out": 1,
        "elapsed_ms": 1,
        "rewrite_tag": task.rewrite_tag,
        "source_rows": [],
        "manifest_version": 1,
    }


def of_gone_sources(manifest: Mapping[str, Any]) -> dict[str, Any]:
    """Returns such a manifest for sources that are not in the table, so that its outputs look like orphans."""
    return {**manifest, "sources": [{"path": "gone.parquet", "key": "gone.parquet", "size_bytes": 1}]}


def plant(table: Path, manifest: Mapping[str, Any], run_id: str = "run", name: str | None = None) -> Path:
    path = table / "_maintenance" / run_id / f"{name or manifest['bin_id']}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(manifest))
    return path
