"""The options of a health reading: what the rewrites would aim at, and the limits beyond which there is a finding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from delta_maintenance.optimize.options import OPTIMIZE, PURGE, OptimizeOptions
from delta_maintenance.options import (
    Count,
    Operation,
    Options,
    Queries,
    Ratio,
    Size,
    Switch,
    option,
    table_of,
)

_LIMITS = "limits; what exceeds one is a finding"


@dataclass(frozen=True, slots=True)
class HealthOptions(Options):
    """The limits of a reading, and what OPTIMIZE would be given."""

    small_files: int = option(
        Count("files"), "most files that OPTIMIZE may find to merge", default=10, group=_LIMITS
    )
    deleted_rows_ratio: float = option(
        Ratio(), "greatest part of deleted rows in any partition", default=0.1, group=_LIMITS
    )
    reclaimable_bytes: int = option(
        Size(lowest=0),
        "most bytes of removed files that VACUUM may find to delete",
        default=1 << 30,
        otherwise="1GiB",
        group=_LIMITS,
        flag="--reclaimable-size",
        argument="reclaimable_size",
    )
    expired_log_files: int = option(
        Count("files"),
        "most files of the log that may be older than its retention and not needed",
        default=100,
        group=_LIMITS,
    )
    layout_gain: float = option(
        Ratio(),
        "least part of the table that queries must skip in addition after a layout",
        default=0.2,
        group=_LIMITS,
    )
    target_size_bytes: int | None = option(
        Size(),
        "size of new files for which to plan an OPTIMIZE",
        otherwise="the table's delta.targetFileSize, else 1GiB",
        flag="--target-size",
        argument="target_size",
    )
    min_file_size_bytes: int | None = option(
        Size(lowest=0),
        "files that are smaller than this are small",
        otherwise="3/4 of the target size",
        flag="--min-file-size",
        argument="min_file_size",
    )
    queries: tuple[str, ...] | None = option(
        Queries(),
        "predicates of typical queries, with semicolons between them, for which to look for a layout",
        otherwise="a clustered table is judged by its own columns, others are not",
        absence="no layout would be looked for, for which to leave the argument out",
    )
    compact_log: bool = option(
        Switch(), "if no checkpoint is due, look whether a log compaction would help readers", default=False
    )

    @property
    def optimize_request(self) -> dict[str, Any]:
        """The options of the OPTIMIZE that a reading plans and recommends. It also does what the purge below would do."""
        ratio = self.deleted_rows_ratio
        return OPTIMIZE.spec_options(
            {
                "target_size_bytes": self.target_size_bytes,
                "min_file_size_bytes": self.min_file_size_bytes,
                "max_deleted_rows_ratio": ratio if ratio < OptimizeOptions().deleted_rows_ratio else None,
            }
        )

    @property
    def purge_request(self) -> dict[str, Any]:
        """The options of the purge that a reading plans and recommends: of the files above the limit."""
        ratio = self.deleted_rows_ratio
        return PURGE.spec_options(
            {"target_size_bytes": self.target_size_bytes, "max_deleted_rows_ratio": ratio}
        )

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> HealthOptions:
        """
        :raises InvalidRequest: an option is unknown, or has a value of a wrong kind.
        """
        return cls.from_spec(HEALTH, raw)


#: Not an operation of a job: it only reads, and its result is not a report.
HEALTH = Operation(
    "health",
    "what a table needs: facts, findings, and the operations that would help",
    table_of(HealthOptions),
    settings=(),
)
