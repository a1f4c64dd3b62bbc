"""The options of GENERATE, checked before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from delta_maintenance.options import WHERE_ABSENCE, Operation, Options, Predicate, option, table_of


@dataclass(frozen=True, slots=True)
class GenerateOptions(Options):
    """Which manifests to write."""

    where: str | None = option(
        Predicate(),
        "only manifests of partitions for which this SQL predicate on partition columns is true",
        otherwise="every partition",
        absence=WHERE_ABSENCE,
    )

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> GenerateOptions:
        """The options of a job spec.

        :raises InvalidRequest: an option is unknown or has a value of a wrong kind.
        """
        return cls.from_spec(GENERATE, raw)


GENERATE = Operation(
    "generate",
    "write manifests of the table's files, for readers that do not know Delta tables",
    table_of(GenerateOptions),
)
