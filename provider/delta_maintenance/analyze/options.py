"""The options of ANALYZE, checked before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from delta_maintenance.options import (
    WHERE_ABSENCE,
    Count,
    Operation,
    Options,
    Predicate,
    Switch,
    option,
    table_of,
)


@dataclass(frozen=True, slots=True)
class AnalyzeOptions(Options):
    """Which files to look at."""

    where: str | None = option(
        Predicate(),
        "only partitions for which this SQL predicate on partition columns is true",
        otherwise="every partition",
        absence=WHERE_ABSENCE,
    )
    every_file: bool = option(
        Switch(),
        "look at files that have statistics, too, and correct statistics that are untrue",
        default=False,
    )
    max_files: int | None = option(
        Count("files"),
        "look at no more files in one run",
        otherwise="no limit",
        absence="there is no limit",
    )

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> AnalyzeOptions:
        """The options of a job spec.

        :raises InvalidRequest: an option is unknown or has a value of a wrong kind.
        """
        return cls.from_spec(ANALYZE, raw)


ANALYZE = Operation(
    "analyze",
    "compute the statistics of files anew where the log lacks them",
    table_of(AnalyzeOptions),
)
