"""The options of a repair, checked before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from delta_maintenance.options import (
    NO_APPROVAL,
    Choice,
    NewFile,
    Operation,
    Options,
    PlanDigest,
    Switch,
    option,
    table_of,
)

#: What happens to a data file whose deletion vector is missing.
KEEP, REMOVE_FILE, RESTORE_ROWS = LOST_VECTORS = ("keep", "remove-file", "restore-rows")


@dataclass(frozen=True, slots=True)
class RepairOptions(Options):
    """What to do about missing files."""

    remove_missing: bool = option(
        Switch(),
        "take missing files out of the log, so that the other rows can be read; their rows are lost",
        default=False,
    )
    lost_vectors: str = option(
        Choice(LOST_VECTORS),
        "with remove_missing, where only the deletion vector of a file is missing: keep: leave it; remove-file: take the file out of the "
        "log, too; restore-rows: take the vector out, so that its deleted rows come back",
        default=KEEP,
    )
    approved_digest: str | None = option(
        PlanDigest(),
        "the plan of a dry run that was approved; refuse where the plan is another one by now",
        flag="--approved",
        argument="approved_plan",
        absence=NO_APPROVAL,
    )
    output: str | None = option(
        NewFile(),
        "write every missing file to this new file, one JSON object a line",
        # An operator's `output` is the reference to its XCom.
        attribute="output_uri",
    )

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> RepairOptions:
        """The options of a job spec.

        :raises InvalidRequest: an option is unknown or has a value of a wrong kind.
        """
        return cls.from_spec(REPAIR, raw)


REPAIR = Operation(
    "repair",
    "find files that the log names and the store lacks, and take them out of the log on request",
    table_of(RepairOptions),
)
