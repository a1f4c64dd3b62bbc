"""The options of DROP FEATURE, checked before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from delta_log.errors import InvalidRequest
from delta_maintenance.options import (
    DRY_RUN,
    ENGINE,
    EXECUTOR_CREDENTIALS,
    MEMORY_LIMIT,
    PARALLELISM,
    Operation,
    Options,
    Text,
    option,
    table_of,
)


@dataclass(frozen=True, slots=True)
class DropFeatureOptions(Options):
    """Which feature leaves the table's protocol."""

    feature: str | None = option(
        Text("FEATURE"),
        "the table feature to drop, as the protocol spells it, such as deletionVectors",
        required=True,
    )

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> DropFeatureOptions:
        """The options of a job spec.

        :raises InvalidRequest: an option is unknown or has a value of a wrong kind, or the feature is missing.
        """
        options = cls.from_spec(DROP_FEATURE, raw)
        if options.feature is None:
            raise InvalidRequest(
                "DROP FEATURE needs feature, the table feature to drop, such as deletionVectors."
            )
        return options


DROP_FEATURE = Operation(
    "drop-feature",
    "take a table feature out of the protocol, so that older readers can read the table",
    table_of(DropFeatureOptions),
    (DRY_RUN, ENGINE, PARALLELISM, EXECUTOR_CREDENTIALS, MEMORY_LIMIT),
)
