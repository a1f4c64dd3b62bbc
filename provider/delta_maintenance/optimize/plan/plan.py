"""The plan of an OPTIMIZE: what would be rewritten, why, and what is to be expected of it. A value,
printable.

A plan may cover a million files, so these stay rows of an Arrow table; its summary stays small all the same.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.bin_packing import Int64s
from delta_maintenance.rewrite.task import SourceFile

#: Why a file was chosen; a file may have several reasons.
SMALL, DELETED_ROWS, UNKNOWN_ROWS, FULL, DROPPED_COLUMNS, LARGE = 1, 2, 4, 8, 16, 32
REASONS = {
    SMALL: "small",
    DELETED_ROWS: "deleted_rows",
    UNKNOWN_ROWS: "deleted_rows_unknown",
    FULL: "full",
    DROPPED_COLUMNS: "dropped_columns",
    LARGE: "large",
}
_SHOWN_PARTITIONS = 20
#: A summary has to fit into an XCom, however long partition values are.
_SHOWN_PARTITIONS_BYTES = 16 << 10
_LINES_OF_A_PIECE = 100


@dataclass(frozen=True, slots=True)
class LeftWork:
    """Bins that another run has to do, in numbers."""

    bins: int = 0
    files: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, bins: Sequence[PlannedBin]) -> LeftWork:
        return cls(len(bins), sum(b.num_files for b in bins), sum(b.bytes_in for b in bins))

    def plus(self, other: LeftWork) -> LeftWork:
        return LeftWork(self.bins + other.bins, self.files + other.files, self.bytes + other.bytes)


@dataclass(frozen=True, slots=True)
class ForeignFiles:
    """Files that the table names and that lie outside of its directory, as those of a shallow clone's source do. They are
    another table's, and stay as they are.

    :param examples: addresses of the first few.
    """

    files: int = 0
    bytes: int = 0
    examples: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {"files": self.files, "bytes": self.bytes, "examples": list(self.examples)}


@dataclass(frozen=True, slots=True)
class PlannedBin:
    """Files to be rewritten together: rows ``start`` to ``end`` of the plan's ``files``.

    :param partition_values: the raw map to copy to the outputs.
    :param bytes_in: what has to be read; ``live_bytes``: the estimate of what is not deleted.
    :param reasons: union of its files' reasons.
    :param hot: somebody has written to its partition lately.
    :param num_outputs: a large file is split into so many.
    """

    bin_id: str
    partition_values: Mapping[str, str | None]
    start: int
    end: int
    bytes_in: int
    live_bytes: int
    reasons: int
    hot: bool = False
    num_outputs: int = 1

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
    :param foreign: files that the predicate let through, and that are no others' to rewrite; not considered.
    :param left_by_budget: what the budget left for the next run, and ``left_as_hot`` what waits for quiet partitions.
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
    left_by_budget: LeftWork
    left_as_hot: LeftWork
    digest: str
    foreign: ForeignFiles = field(default_factory=ForeignFiles)

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
        """How many files are to be expected: one a bin, more of a large file, none where everything is deleted."""
        return sum(planned.num_outputs for planned in self.bins if planned.live_bytes > 0)

    def sources(self, planned: PlannedBin) -> tuple[SourceFile, ...]:
        """The files of a bin, in the order in which they are to be read."""
        rows = self.files.slice(planned.start, planned.num_files).to_pylist()
        return tuple(
            source_of(row, int(count))
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
            "numBinsLeftByBudget": self.left_by_budget.bins,
            "numFilesLeftByBudget": self.left_by_budget.files,
            "numBytesLeftByBudget": self.left_by_budget.bytes,
            "numBinsLeftAsHot": self.left_as_hot.bins,
            "numBytesLeftAsHot": self.left_as_hot.bytes,
            **({"foreign": self.foreign.to_dict()} if self.foreign.files else {}),
            "partitions": self._shown_partitions(),
            "numPartitions": len(self._partitions()),
        }

    def _shown_partitions(self) -> list[dict[str, Any]]:
        shown: list[dict[str, Any]] = []
        room = _SHOWN_PARTITIONS_BYTES
        for partition, bins, files, size in self._partitions()[:_SHOWN_PARTITIONS]:
            entry = {
                "partitionValues": dict(partition),
                "numBins": bins,
                "numFiles": files,
                "numBytes": size,
            }
            room -= len(json.dumps(entry))
            if room < 0:
                break
            shown.append(entry)
        return shown

    def lines(self) -> Iterator[bytes]:
        """The whole plan: its summary, then a line for each bin with its files; JSON objects, some lines at a time."""
        yield json.dumps(self.to_dict()).encode() + b"\n"
        for start in range(0, len(self.bins), _LINES_OF_A_PIECE):
            some = self.bins[start : start + _LINES_OF_A_PIECE]
            yield b"".join(json.dumps(self._line(planned)).encode() + b"\n" for planned in some)

    def _line(self, planned: PlannedBin) -> dict[str, Any]:
        return {
            "bin": planned.bin_id,
            "partitionValues": dict(planned.partition_values),
            "reasons": [name for bit, name in REASONS.items() if planned.reasons & bit],
            "numBytes": planned.bytes_in,
            "numLiveBytes": planned.live_bytes,
            "files": [
                {"path": source.path, "size": source.size_bytes, "deletionVector": source.deletion_vector_id}
                for source in self.sources(planned)
            ],
        }

    def _partitions(self) -> list[tuple[Mapping[str, str | None], int, int, int]]:
        """Partition, bins, files and bytes; the partition with most bytes first."""
        totals: dict[str, tuple[Mapping[str, str | None], int, int, int]] = {}
        for planned in self.bins:
            name = json.dumps(planned.partition_values, sort_keys=True)
            values, bins, files, size = totals.get(name, (planned.partition_values, 0, 0, 0))
            totals[name] = (values, bins + 1, files + planned.num_files, size + planned.bytes_in)
        return [totals[name] for name in sorted(totals, key=lambda name: (-totals[name][3], name))]


def source_of(row: Mapping[str, Any], num_records: int) -> SourceFile:
    """A row of the snapshot's files as a source.

    :param num_records: its physical rows; negative: not known.
    """
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
