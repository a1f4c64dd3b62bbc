"""How much a nightly run rewrites of a clustered table that grows every day. ``./dev bench write_amplification``.

A simulation on real logs and statistics: every day, a commit adds files of random rows. Every night, OPTIMIZE's own planner
decides which files become cubes, and its own rule divides their rows between the new files, whose statistics decide what a
query for one value skips. Files are not written; each row stands for many. The table is clustered by two columns.

Delta Lake on Spark clusters by the same rule with a seal of 100 GiB, which `tests/integration/test_layout_readers.py` shows: it
finds nothing to do after us, and we find nothing to do after it. Its ZORDER BY lays out the whole table at every run.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import svg_chart

from delta_log.log.log_segment import find_log_segment
from delta_log.snapshot.snapshot import Snapshot
from delta_log.testing import MemoryStorage
from delta_maintenance.layout.bucketing import Bucketing, random_noise
from delta_maintenance.layout.layout import HILBERT
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.tasks import tasks_of
from delta_maintenance.rewrite.task import RewriteTask

_GIB = 1 << 30
_ROWS_OF_A_GIB, _FILES_OF_A_DAY, _TARGET_BYTES = 1024, 24, 256 << 20
_COLUMNS, _QUERIES = ("account", "item"), 300
#: By name, the seal; the last one is never reached, so that everything is laid out anew each night.
_CONTENDERS = {
    "seal of 8 GiB": 8 * _GIB,
    "seal of 100 GiB, as Delta Lake on Spark": 100 * _GIB,
    "ZORDER BY of Delta Lake on Spark": 1 << 50,
}
_Rows = npt.NDArray[np.int64]


@dataclass(slots=True)
class _Table:
    """A log in memory, and the rows of its live files: one array of the columns for each file."""

    storage: MemoryStorage = field(default_factory=lambda: MemoryStorage("memory://simulated"))
    version: int = -1
    rows: dict[str, _Rows] = field(default_factory=dict)
    made: int = 0

    def commit(self, actions: list[dict[str, Any]]) -> None:
        self.version += 1
        text = "".join(
            json.dumps(action) + "\n" for action in [{"commitInfo": {"operation": "WRITE"}}, *actions]
        )
        self.storage.put(f"_delta_log/{self.version:020d}.json", text.encode())

    def snapshot(self) -> Snapshot:
        return Snapshot(self.storage, find_log_segment(self.storage))

    def add(self, rows: _Rows, task: RewriteTask | None = None) -> dict[str, Any]:
        """The action for a new file."""
        self.made += 1
        path = f"f{self.made}"
        self.rows[path] = rows
        bounds = {
            side: dict(zip(_COLUMNS, getattr(rows, how)(axis=1).tolist(), strict=True))
            for side, how in (("minValues", "min"), ("maxValues", "max"))
        }
        stats = {"numRecords": rows.shape[1], **bounds, "nullCount": dict.fromkeys(_COLUMNS, 0)}
        action = {
            "path": path,
            "size": rows.shape[1] * _GIB // _ROWS_OF_A_GIB,
            "partitionValues": {},
            "modificationTime": 1,
            "dataChange": task is None,
            "stats": json.dumps(stats),
        }
        if task is not None:
            action |= {"tags": task.output_tags, "clusteringProvider": task.clustering_provider}
        return {"add": action}

    def skipped(self) -> float:
        """The share of files that a query for the value of a random row skips, on average over the columns."""
        low = np.stack([rows.min(axis=1) for rows in self.rows.values()], axis=1)
        high = np.stack([rows.max(axis=1) for rows in self.rows.values()], axis=1)
        every = np.concatenate(list(self.rows.values()), axis=1)
        asked = every[:, np.random.default_rng(5).integers(0, every.shape[1], _QUERIES)]
        reads = (low[:, None, :] <= asked[:, :, None]) & (asked[:, :, None] <= high[:, None, :])
        return 100 * (1 - float(reads.mean()))


def _header() -> list[dict[str, Any]]:
    fields = [{"name": name, "type": "long", "nullable": True, "metadata": {}} for name in _COLUMNS]
    metadata = {
        "id": "simulated",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {},
    }
    protocol = {
        "minReaderVersion": 1,
        "minWriterVersion": 7,
        "writerFeatures": ["clustering", "domainMetadata"],
    }
    by = json.dumps({"clusteringColumns": [[name] for name in _COLUMNS]})
    domain = {"domain": "delta.clustering", "configuration": by, "removed": False}
    return [{"protocol": protocol}, {"metaData": metadata}, {"domainMetadata": domain}]


def _day(day: int, gib: float) -> list[_Rows]:
    """The rows of each file that comes on a day."""
    rng = np.random.default_rng(day)
    rows = int(gib * _ROWS_OF_A_GIB)
    values = np.stack([rng.integers(0, 1 << 40, rows), rng.integers(0, 1 << 20, rows)])
    return np.array_split(values, _FILES_OF_A_DAY, axis=1)


def _night(table: _Table, seal_bytes: int) -> int:
    """Cluster as a run does it; return the bytes that it rewrites."""
    snapshot = table.snapshot()
    options = OptimizeOptions(seal_size_bytes=seal_bytes, target_size_bytes=_TARGET_BYTES)
    plan = plan_optimize(snapshot, options, 0)
    actions: list[dict[str, Any]] = []
    for task in tasks_of(plan, snapshot, f"night{table.version}", table.storage.uri):
        rows = np.concatenate([table.rows.pop(source.path) for source in task.sources], axis=1)
        columns = [pa.array(column) for column in rows]
        noise = random_noise(task.bin_id, 0, rows.shape[1])
        numbers, _ = Bucketing.of(HILBERT, columns, task.num_outputs, 1, noise)(columns, noise)
        parts = (rows[:, numbers == number] for number in range(task.num_outputs))
        actions += [table.add(part, task) for part in parts if part.shape[1]]
        actions += [
            {"remove": {"path": source.path, "deletionTimestamp": 1, "dataChange": False}}
            for source in task.sources
        ]
    if actions:
        table.commit(actions)
    return plan.bytes_in


def simulated(seal_bytes: int, days: int, gib: float) -> tuple[list[float], list[float]]:
    """By day: the bytes rewritten so far for each byte that came, and the percentage of files that a query skips."""
    table = _Table()
    table.commit(_header())
    came = rewritten = 0
    amplification, skipped = [], []
    for day in range(1, days + 1):
        adds = [table.add(rows) for rows in _day(day, gib)]
        table.commit(adds)
        came += sum(add["add"]["size"] for add in adds)
        rewritten += _night(table, seal_bytes)
        amplification.append(rewritten / came)
        skipped.append(table.skipped())
    return amplification, skipped


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--days", type=int, default=30)
    parser.add_argument("--gib", type=float, default=4.0, help="that come each day")
    parser.add_argument("--chart", type=Path, help="write a chart to this SVG file")
    asked = parser.parse_args()
    found = {}
    print(f"{asked.gib:g} GiB a day in {_FILES_OF_A_DAY} files, {asked.days} days, a run each night")
    for name, seal_bytes in _CONTENDERS.items():
        amplification, skipped = simulated(seal_bytes, asked.days, asked.gib)
        found[name] = amplification
        print(
            f"{name:<40} {amplification[-1]:5.1f} bytes rewritten for each that came; a query for one value skips "
            f"{skipped[-1]:.1f} % of the files"
        )
    if asked.chart is not None:
        title = f"Bytes rewritten for each byte that came: {asked.gib:g} GiB a day, a run each night"
        most = 5 * np.ceil(max(map(max, found.values())) / 5)
        svg_chart.lines(asked.chart, title, "", most, found, "day")


if __name__ == "__main__":
    main()
