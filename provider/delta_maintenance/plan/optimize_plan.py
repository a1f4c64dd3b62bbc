"""The plan of an OPTIMIZE: what would be rewritten, why, and what is to be expected of it. A value,
printable.

A plan may cover a million files, so these stay rows of an Arrow table; its summary stays small all the same.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from delta_maintenance.plan.bin_packing import Int64s
from delta_maintenance.plan.options import OptimizeOptions
from delta_maintenance.progress import format_bytes
from delta_maintenance.rewrite.task import SourceFile

#: Why a file was chosen; a file may have several reasons.
SMALL, DELETED_ROWS, UNKNOWN_ROWS, FULL = 1, 2, 4, 8
REASONS = {SMALL: "small", DELETED_ROWS: "deleted_rows", UNKNOWN_ROWS: "deleted_rows_unknown", FULL: "full"}
_SHOWN_PARTITIONS = 20


@dataclass(frozen=True, slots=True)
class PlannedBin:
    """Files to be rewritten together: rows ``start`` to ``end`` of the plan's ``files``.

    :param partition_values: the raw map to copy to the outputs.
    :param bytes_in: what has to be read; ``live_bytes``: the estimate of what is not deleted.
    :param reasons: union of its files' reasons.
    """

    bin_id: str
    partition_values: Mapping[str, str | None]
    start: int
    end: int
    bytes_in: int
    live_bytes: int
    reasons: int

    @property
    def num_files(self) -> int:
        return self.end - self.start


@dataclass(frozen=True, slots=True, eq=False)
class OptimizePlan:
    """What is to be done to one version of a table.

    1. ``files`` holds the sources in the order of the bins; no file is in two bins.
    2. ``digest`` names sources and settings: two plans of one digest do the same.

    :param considered_files: files that the predicate let through; ``considered_bytes`` theirs.
    :param chosen_files: by reason, before packing; files that found no company are among them.
    :param left_bins: bins that the budget left for the next run; ``left_bytes`` theirs.
    """

    read_version: int
    planned_ms: int
    options: OptimizeOptions
    target_size_bytes: int
    min_file_size_bytes: int
    rewrite_tag: str
    files: pa.Table = field(repr=False)
    num_records: Int64s = field(repr=False)
    bins: tuple[PlannedBin, ...] = field(repr=False)
    considered_files: int
    considered_bytes: int
    chosen_files: Mapping[str, int]
    left_bins: int
    left_bytes: int
    digest: str

    @property
    def num_files(self) -> int:
        return int(self.files.num_rows)

    @property
    def bytes_in(self) -> int:
        return sum(planned.bytes_in for planned in self.bins)

    @property
    def live_bytes(self) -> int:
        return sum(planned.live_bytes for planned in self.bins)

    @property
    def num_outputs(self) -> int:
        """How many files are to be expected: one a bin, and none where everything is deleted."""
        return sum(planned.live_bytes > 0 for planned in self.bins)

    def sources(self, planned: PlannedBin) -> tuple[SourceFile, ...]:
        """The files of a bin, in the order in which they are to be read."""
        rows = self.files.slice(planned.start, planned.num_files).to_pylist()
        return tuple(
            _source(row, int(count))
            for row, count in zip(rows, self.num_records[planned.start : planned.end], strict=True)
        )

    def to_dict(self) -> dict[str, Any]:
        """A summary as JSON values, small however large the plan is."""
        return {
            "digest": self.digest,
            "readVersion": self.read_version,
            "targetSizeBytes": self.target_size_bytes,
            "minFileSizeBytes": self.min_file_size_bytes,
            "numBins": len(self.bins),
            "numConsideredFiles": self.considered_files,
            "numConsideredBytes": self.considered_bytes,
            "numChosenFiles": dict(self.chosen_files),
            "numFilesToRemove": self.num_files,
            "numBytesToRemove": self.bytes_in,
            "numFilesToAddEstimate": self.num_outputs,
            "numBytesToAddEstimate": self.live_bytes,
            "numBinsLeftByBudget": self.left_bins,
            "numBytesLeftByBudget": self.left_bytes,
            "partitions": [
                {
                    "partitionValues": dict(partition),
                    "numBins": bins,
                    "numFiles": files,
                    "numBytes": size,
                }
                for partition, bins, files, size in self._partitions()[:_SHOWN_PARTITIONS]
            ],
            "numPartitions": len(self._partitions()),
        }

    def _partitions(self) -> list[tuple[Mapping[str, str | None], int, int, int]]:
        """Partition, bins, files and bytes; the partition with most bytes first."""
        totals: dict[str, tuple[Mapping[str, str | None], int, int, int]] = {}
        for planned in self.bins:
            name = json.dumps(planned.partition_values, sort_keys=True)
            values, bins, files, size = totals.get(name, (planned.partition_values, 0, 0, 0))
            totals[name] = (values, bins + 1, files + planned.num_files, size + planned.bytes_in)
        return [totals[name] for name in sorted(totals, key=lambda name: (-totals[name][3], name))]

    def render(self) -> str:
        """For people."""
        return render_plan(self.to_dict())


def _source(row: Mapping[str, Any], num_records: int) -> SourceFile:
    vector = row["deletion_vector"]
    return SourceFile(
        path=row["path"],
        key=row["key"],
        size_bytes=row["size"],
        partition_values=dict(row["partition_values"] or ()),
        deletion_vector=vector and {name: value for name, value in vector.items() if value is not None},
        num_records=num_records if num_records >= 0 else None,
        base_row_id=row["base_row_id"],
        default_row_commit_version=row["default_row_commit_version"],
        tags=None if row["tags"] is None else dict(row["tags"]),
    )


def render_plan(summary: Mapping[str, Any]) -> str:
    """What :meth:`OptimizePlan.to_dict` gave, for people."""
    left = summary["numBinsLeftByBudget"]
    considered = f"{summary['numConsideredFiles']:,} files, {format_bytes(summary['numConsideredBytes'])}"
    if not summary["numBins"]:
        undone = f"; the budget left {_bins(left)} undone" if left else ""
        return (
            f"Nothing to do at version {summary['readVersion']}: {considered}, none worth rewriting{undone}."
        )
    target = format_bytes(summary["targetSizeBytes"])
    rows = [
        ("considered", summary["numConsideredFiles"], summary["numConsideredBytes"], ""),
        (
            "rewrite",
            summary["numFilesToRemove"],
            summary["numBytesToRemove"],
            f"in {_bins(summary['numBins'])}",
        ),
        (
            "into about",
            summary["numFilesToAddEstimate"],
            summary["numBytesToAddEstimate"],
            f"of up to {target}",
        ),
    ]
    lines = [f"Plan {summary['digest'][:12]} on version {summary['readVersion']}"]
    lines += [
        f"  {name:<11}{files:>9,} files  {format_bytes(size):>10}  {note}".rstrip()
        for name, files, size, note in rows
    ]
    if left:
        size = format_bytes(summary["numBytesLeftByBudget"])
        lines.append(f"  {'left':<11}{left:>9,} bins   {size:>10}  to the next run")
    reasons = (f"{name.replace('_', ' ')} {count:,}" for name, count in summary["numChosenFiles"].items())
    lines.append(f"  {'chosen for':<11}  {', '.join(reasons)}")
    partitions = summary["partitions"]
    if any(partition["partitionValues"] for partition in partitions):
        lines.append("  partitions   most bytes first")
        lines += [
            f"  {'':<11}{partition['numFiles']:>9,} files  {format_bytes(partition['numBytes']):>10}  "
            f"in {_bins(partition['numBins']):<9} {_partition_name(partition['partitionValues'])}"
            for partition in partitions
        ]
        if summary["numPartitions"] > len(partitions):
            lines.append(f"  {'':<11}  … and {summary['numPartitions'] - len(partitions):,} partitions more")
    return "\n".join(lines)


def _partition_name(values: Mapping[str, str | None]) -> str:
    return "/".join(f"{name}={'null' if value in (None, '') else value}" for name, value in values.items())


def _bins(count: int) -> str:
    return f"{count:,} {'bin' if count == 1 else 'bins'}"
