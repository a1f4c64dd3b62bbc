"""The options of VACUUM and of restoring from quarantine, checked before anything is listed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import Struct

from delta_log.errors import InvalidRequest
from delta_log.table_config.kept_versions import KeptVersions
from delta_maintenance.options import (
    DRY_RUN,
    ENGINE,
    EXECUTOR_CREDENTIALS,
    HOW_TO_RUN,
    NO_APPROVAL,
    PARALLELISM,
    WHERE_ABSENCE,
    Address,
    Choice,
    Count,
    Hours,
    Kind,
    NewFile,
    Operation,
    Options,
    Predicate,
    SafetySwitch,
    Switch,
    Text,
    Versions,
    option,
    plan_within,
    table_of,
)

_WHAT = "what to delete"
REFUSE, KEEP = NEIGHBOURS = ("refuse", "keep")


class ApprovedPlan(Struct, frozen=True):
    """A plan that was approved: a run deletes no more than it says.

    :param cutoff_ms: the cutoff of that plan; a later run goes no further, however much has expired since.
    """

    cutoff_ms: int
    num_files: int
    size_bytes: int


class PrintedPlan(Kind):
    """A plan of VACUUM as a dry run prints it; in a job spec, the three numbers that count."""

    _members = ("cutoffMs", "numFilesToDelete", "sizeOfDataToDelete")

    def checked(self, name: str, value: Any) -> ApprovedPlan:
        if isinstance(value, ApprovedPlan):
            return value
        found = [value.get(member) if isinstance(value, Mapping) else None for member in self._members]
        if any(isinstance(number, bool) or not isinstance(number, int) or number < 0 for number in found):
            raise InvalidRequest(
                f"{name} is not a plan of VACUUM: it must hold the numbers {', '.join(self._members)}, as a dry run "
                "prints them."
            )
        cutoff_ms, num_files, size_bytes = (int(value[member]) for member in self._members)
        return ApprovedPlan(cutoff_ms, num_files, size_bytes)

    def read(self, value: Any) -> dict[str, int]:
        found = plan_within(value)
        if not isinstance(found, Mapping) or not all(
            isinstance(found.get(member), int) for member in self._members
        ):
            raise ValueError(
                "it is not the plan of a vacuum. Give the output of a DeltaVacuumOperator with dry_run=True."
            )
        return {member: found[member] for member in self._members}


class Inventory(Address):
    """The address of a listing. The files that an S3 Inventory's manifest names lie beside the manifest's own directory."""

    def places(self, value: str) -> tuple[str, ...]:
        return (value.rsplit("/", 2)[0] if value.endswith("/manifest.json") else value,)


@dataclass(frozen=True, slots=True)
class VacuumOptions(Options):
    """What to delete, and how far to go."""

    retain_hours: float | None = option(
        Hours(),
        "keep files that were needed within this time",
        otherwise="the table's delta.deletedFileRetentionDuration, else 168",
        group=_WHAT,
        absence="the retention of the table's own properties counts, which may be shorter",
    )
    retention_check: bool = option(
        SafetySwitch(),
        "refuse a retention that is shorter than the table's",
        default=True,
        group=HOW_TO_RUN,
        flag="--no-retention-check",
        flag_help="allow a retention that is shorter than the table's; files may be deleted that others use",
    )
    where: str | None = option(
        Predicate(),
        "only partitions for which this SQL predicate on partition columns is true",
        otherwise="every partition",
        group=_WHAT,
        absence=WHERE_ABSENCE,
    )
    lite: bool = option(
        Switch(),
        "delete what the log has removed since the last vacuum; list nothing, find no orphans",
        default=False,
        group=_WHAT,
    )
    inventory: str | None = option(
        Inventory(),
        "take the files from this listing: Parquet, CSV, or the manifest.json of an S3 Inventory",
        otherwise="the table is listed",
        group=_WHAT,
    )
    require_proof: bool = option(
        SafetySwitch(),
        "refuse where the log cannot prove which files have to stay",
        default=False,
        group=HOW_TO_RUN,
    )
    neighbours: str = option(
        Choice(NEIGHBOURS),
        "where tables of other formats, other Delta tables or checkpoints of streams lie below the root, refuse, or keep "
        "them and go on",
        default=REFUSE,
        group=HOW_TO_RUN,
    )
    output: str | None = option(
        NewFile(),
        "write every path to this new file, one JSON object a line",
        group=HOW_TO_RUN,
        # An operator's `output` is the reference to its XCom.
        attribute="output_uri",
    )
    approved: ApprovedPlan | None = option(
        PrintedPlan(),
        "the plan of a dry run that was approved: delete nothing that expired later, and nothing if the plan has grown",
        group=HOW_TO_RUN,
        flag=None,
        argument="approved_plan",
        absence=NO_APPROVAL,
    )
    quarantine: bool = option(
        SafetySwitch(),
        "move files to a hidden directory instead of deleting them; on an object store every file is copied",
        default=False,
        group=HOW_TO_RUN,
    )
    purge_quarantine_hours: float | None = option(
        Hours(),
        "delete files that have been in quarantine for this time",
        otherwise="nothing of a quarantine is deleted",
        group=HOW_TO_RUN,
        flag="--purge-quarantine",
    )

    keep_versions: tuple[int, ...] | None = option(
        Versions(),
        "keep the files of these versions, too",
        otherwise="the versions that the table's delta-maintenance.keepVersions names",
        group=_WHAT,
        absence="versions are deleted that were to be kept",
    )
    keep_last: int | None = option(
        Count("versions"),
        "keep the files of so many of the newest versions",
        otherwise="the table's delta-maintenance.keepLast, else 1",
        group=_WHAT,
        absence="versions are deleted that were to be kept",
    )

    def __post_init__(self) -> None:
        Options.__post_init__(self)
        if self.lite and self.inventory is not None:
            raise InvalidRequest(
                "A lite vacuum takes no inventory: it finds its files in the log. Give one of the two."
            )

    @property
    def asked_versions(self) -> KeptVersions:
        """The versions that the request keeps."""
        return KeptVersions(frozenset(self.keep_versions or ()), self.keep_last or 1)

    def kept_versions(self, properties: Mapping[str, str]) -> KeptVersions:
        """Return the versions that the table and the request keep.

        :raises InvalidProperty: a property of the table names no versions.
        """
        return KeptVersions.of(properties) | self.asked_versions

    @property
    def mode(self) -> str:
        return "lite" if self.lite else "inventory" if self.inventory is not None else "full"

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> VacuumOptions:
        """The options of a job spec.

        :raises InvalidRequest: an option is unknown, or has a value of a wrong kind.
        """
        return cls.from_spec(VACUUM, raw)


@dataclass(frozen=True, slots=True)
class RestoreOptions(Options):
    """What to bring back."""

    name: str | None = option(Text("NAME"), "bring back this quarantine alone", otherwise="every quarantine")


VACUUM = Operation(
    "vacuum",
    "delete files that no version in retention needs",
    table_of(VacuumOptions),
    (DRY_RUN, ENGINE, PARALLELISM, EXECUTOR_CREDENTIALS),
)
RESTORE_QUARANTINE = Operation(
    "restore-quarantine", "bring back what a vacuum put into quarantine", table_of(RestoreOptions)
)
