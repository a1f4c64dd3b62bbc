"""The plan of a VACUUM: the files and directories to delete, and why each may be deleted.

A plan may name millions of files, so they stay rows of an Arrow table. Its summary for people and reports is small.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.table_config.kept_versions import KeptVersions
from delta_maintenance.vacuum.plan.cutoff import Retention

#: Why a file may be deleted, in the order of reports; :data:`delta_maintenance.text.plan.VACUUM_REASONS` has the words.
ORPHAN, EXPIRED, DEAD_VECTOR, OLD_CHANGE_DATA = (
    "orphan", "expired_tombstone", "dead_deletion_vector", "old_change_data",
)  # fmt: skip
REASONS = (ORPHAN, EXPIRED, DEAD_VECTOR, OLD_CHANGE_DATA)
#: ``since_ms``: the last time at which, by the log, the file was needed; null if the log does not say.
CANDIDATE_SCHEMA = pa.schema(
    [
        ("key", pa.string()),
        ("size", pa.int64()),
        ("modification_time_ms", pa.int64()),
        ("reason", pa.dictionary(pa.int8(), pa.string())),
        ("since_ms", pa.int64()),
    ]
)
_SHOWN_FILES = 10
_ROWS_AT_ONCE = 1 << 13


@dataclass(frozen=True, slots=True, eq=False)
class VacuumPlan:
    """What to delete from one table.

    1. ``candidates`` (:data:`CANDIDATE_SCHEMA`) are sorted by key. No key comes twice, and none is protected.
    2. ``directories`` are empty once the candidates are gone. Each comes before the directory that contains it.
    3. ``digest`` identifies the candidates: two plans with one digest delete the same files.

    :param mode: ``full``, ``lite`` or ``inventory``.
    :param settled_version: the newest version that was committed before the cutoff; the next lite vacuum starts after it.
        ``None`` if there is no such version, or if this plan does not delete everything that was removed up to it.
    :param num_young: files that are not protected, but younger than the cutoff.
    :param is_unseen: the candidates come from the log, and whether they are there, and how old, is not known yet.
    :param kept: versions that stay readable, and ``num_kept`` the number of files that nothing else protects.
    :param warnings: sentences for people.
    """

    read_version: int
    table_id: str
    mode: str
    where: str | None
    retention: Retention
    candidates: pa.Table = field(repr=False)
    directories: tuple[str, ...] = field(repr=False)
    num_directories: int
    num_files: int
    num_protected: int
    settled_version: int | None
    warnings: tuple[str, ...]
    digest: str
    is_unseen: bool = False
    num_young: int = 0
    kept: KeptVersions = field(default_factory=KeptVersions)
    num_kept: int = 0

    @property
    def size_bytes(self) -> int:
        return pc.sum(self.candidates.column("size")).as_py() or 0

    @property
    def is_empty(self) -> bool:
        return not self.candidates.num_rows and not self.directories

    def by_reason(self) -> dict[str, tuple[int, int]]:
        """Count files and bytes by reason."""
        counted = (
            pa.table(
                {
                    "reason": self.candidates.column("reason").cast(pa.string()),
                    "size": self.candidates.column("size"),
                }
            )
            .group_by("reason")
            .aggregate([("size", "count"), ("size", "sum")])
        )
        found = {row["reason"]: (row["size_count"], row["size_sum"] or 0) for row in counted.to_pylist()}
        return {reason: found[reason] for reason in REASONS if reason in found}

    def to_dict(self) -> dict[str, Any]:
        """Summarise the plan as JSON values. The summary is small, however large the plan is."""
        return {
            "digest": self.digest,
            "readVersion": self.read_version,
            "mode": self.mode,
            "where": self.where,
            "retentionMs": self.retention.retention_ms,
            "configuredRetentionMs": self.retention.configured_ms,
            "cutoffMs": self.retention.cutoff_ms,
            "numFilesToDelete": self.candidates.num_rows,
            "sizeOfDataToDelete": self.size_bytes,
            "reasons": {
                reason: {"numFiles": files, "numBytes": size}
                for reason, (files, size) in self.by_reason().items()
            },
            "numDirectoriesToDelete": len(self.directories),
            "numVacuumedDirectories": self.num_directories,
            "numListedFiles": self.num_files,
            "numProtectedFiles": self.num_protected,
            "numYoungFiles": self.num_young,
            "keptVersions": sorted(self.kept.named),
            "numKeptLastVersions": self.kept.num_last,
            "numFilesOfKeptVersions": self.num_kept,
            "warnings": list(self.warnings),
            "files": list(rows_of(self.candidates.slice(0, _SHOWN_FILES))),
        }

    def lines(self) -> Iterator[bytes]:
        """Write every candidate, then every directory, as a line of JSON. Each yield holds some thousand lines."""
        for start in range(0, self.candidates.num_rows, _ROWS_AT_ONCE):
            rows = rows_of(self.candidates.slice(start, _ROWS_AT_ONCE))
            yield "".join(json.dumps(row) + "\n" for row in rows).encode()
        for start in range(0, len(self.directories), _ROWS_AT_ONCE):
            part = self.directories[start : start + _ROWS_AT_ONCE]
            rows_of_directories = ({"path": path, "reason": "empty_directory"} for path in part)
            yield "".join(json.dumps(row) + "\n" for row in rows_of_directories).encode()


def rows_of(candidates: pa.Table) -> Iterator[dict[str, Any]]:
    """Convert candidates to JSON values; nulls are left out."""
    for row in candidates.to_pylist():
        members = {
            "path": row["key"],
            "size": row["size"],
            "modificationTime": row["modification_time_ms"],
            "reason": row["reason"],
            "since": row["since_ms"],
        }
        yield {name: value for name, value in members.items() if value is not None}
