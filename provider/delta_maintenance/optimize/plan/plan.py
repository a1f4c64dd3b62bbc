"""The plan of an OPTIMIZE: which files to rewrite, why, and what to expect.

A plan may cover a million files, which stay rows of an Arrow table. Its summary stays small.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from msgspec import Struct, field

from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.bin_packing import Int64s
from delta_maintenance.optimize.plan.selection import Selection
from delta_maintenance.optimize.plan.table_layout import TableLayout
from delta_maintenance.rewrite.task import SourceFile

#: Why a file was chosen; a file may have several reasons.
SMALL, DELETED_ROWS, UNKNOWN_ROWS, FULL, DROPPED_COLUMNS, LARGE, LAYOUT = 1, 2, 4, 8, 16, 32, 64
REASONS = {
    SMALL: "small",
    DELETED_ROWS: "deleted_rows",
    UNKNOWN_ROWS: "deleted_rows_unknown",
    FULL: "full",
    DROPPED_COLUMNS: "dropped_columns",
    LARGE: "large",
    LAYOUT: "layout",
}
_SHOWN_PARTITIONS = 20
#: A summary has to fit into an XCom, however long partition values are.
_SHOWN_PARTITIONS_BYTES = 16 << 10
_LINES_OF_A_PIECE = 100


class LeftWork(Struct, frozen=True):
    """Counts the bins that are left for another run."""

    bins: int = 0
    files: int = 0
    bytes: int = 0

    @classmethod
    def of(cls, bins: Sequence[PlannedBin]) -> LeftWork:
        return cls(len(bins), sum(b.num_files for b in bins), sum(b.bytes_in for b in bins))

    def plus(self, other: LeftWork) -> LeftWork:
        return LeftWork(self.bins + other.bins, self.files + other.files, self.bytes + other.bytes)


class ForeignFiles(Struct, frozen=True):
    """Files of the table outside of its directory, such as the files of a shallow clone's source. No run changes them.

    :param examples: addresses of the first few.
    """

    files: int = 0
    bytes: int = 0
    examples: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return {"files": self.files, "bytes": self.bytes, "examples": list(self.examples)}


class PlannedBin(Struct, frozen=True):
    """Files to rewrite together: rows ``start`` to ``end`` of the plan's ``files``.

    :param partition_values: the raw map to copy to the outputs.
    :param bytes_in: bytes to read; ``live_bytes`` is the estimate without deleted rows.
    :param reasons: union of its files' reasons.
    :param hot: ``True``: another writer has written to its partition lately.
    :param num_outputs: number of files into which a large file is split, or a layout divides the rows.
    :param clustering: provider and tags of the cube that the new files belong to; ``None``: they are not clustered.
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
    clustering: tuple[str, Mapping[str, str]] | None = None

    @property
    def num_files(self) -> int:
        return self.end - self.start


class OptimizePlan(Struct, frozen=True, eq=False):
    """What a run will do to one version of a table.

    1. ``files`` holds the sources in the order of the bins; no file is in two bins.
    2. ``digest`` identifies sources and settings: plans with equal digests do the same.

    :param considered_files: files that the predicate selects, of ``considered_bytes``.
    :param chosen_files: number of chosen files by reason, before packing, so files that joined no bin are counted, too.
    :param foreign: files that the predicate selects but that lie outside of the table; they are not considered.
    :param selection: the files that the plan chose and left, by reason.
    :param layout: layout that the new files get; ``None``: rows keep their order.
    :param clustered_by: the columns by which the table is clustered.
    :param warnings: sentences for people.
    :param left_by_budget: bins that the budget leaves for the next run; ``left_as_hot`` waits for quiet partitions.
    """

    read_version: int
    planned_ms: int
    options: OptimizeOptions
    target_size_bytes: int
    min_file_size_bytes: int
    rewrite_tag: str
    files: pa.Table
    num_records: Int64s
    bins: tuple[PlannedBin, ...]
    considered_files: int
    considered_bytes: int
    chosen_files: Mapping[str, int]
    left_by_budget: LeftWork
    left_as_hot: LeftWork
    digest: str
    foreign: ForeignFiles = field(default_factory=ForeignFiles)
    selection: Selection = field(default_factory=Selection)
    layout: TableLayout | None = None
    clustered_by: tuple[tuple[str, ...], ...] = ()
    warnings: tuple[str, ...] = ()

    @property
    def num_files(self) -> int:
        return int(self.files.num_rows)

    @property
    def num_files_to_merge(self) -> int:
        """The files that share a bin with others. The remaining ones are rewritten for what is in them."""
        return sum(planned.num_files for planned in self.bins if planned.num_files > 1)

    @property
    def bytes_in(self) -> int:
        return sum(planned.bytes_in for planned in self.bins)

    @property
    def live_bytes(self) -> int:
        return sum(planned.live_bytes for planned in self.bins)

    @property
    def num_outputs(self) -> int:
        """The expected number of new files: one per bin, more if a file is split, none if all its rows are deleted."""
        return sum(planned.num_outputs for planned in self.bins if planned.live_bytes > 0)

    def sources(self, planned: PlannedBin) -> tuple[SourceFile, ...]:
        """The files of a bin, in reading order."""
        rows = self.files.slice(planned.start, planned.num_files).to_pylist()
        return tuple(
            source_of(row, int(count))
            for row, count in zip(rows, self.num_records[planned.start : planned.end], strict=True)
        )

    def to_dict(self) -> dict[str, Any]:
        """A summary as JSON values. Its size does not grow with the plan."""
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
            **({"layout": self.layout.to_dict()} if self.layout is not None else {}),
            **({"foreign": self.foreign.to_dict()} if self.foreign.files else {}),
            **({"warnings": list(self.warnings)} if self.warnings else {}),
            "selection": self.selection.to_dict(),
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
        """Yield the whole plan as JSON lines: its summary, then each bin with its files; several lines at a time."""
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
        """The partitions with their numbers of bins, files and bytes; most bytes first."""
        totals: dict[str, tuple[Mapping[str, str | None], int, int, int]] = {}
        for planned in self.bins:
            name = json.dumps(planned.partition_values, sort_keys=True)
            values, bins, files, size = totals.get(name, (planned.partition_values, 0, 0, 0))
            totals[name] = (values, bins + 1, files + planned.num_files, size + planned.bytes_in)
        return [totals[name] for name in sorted(totals, key=lambda name: (-totals[name][3], name))]


def source_of(row: Mapping[str, Any], num_records: int) -> SourceFile:
    """Make a source of a row of the snapshot's files.

    :param num_records: its physical rows; negative: unknown.
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
