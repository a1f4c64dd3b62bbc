"""The options of VACUUM: what a caller may ask for, checked before anything is listed.

Options travel in a :class:`~delta_maintenance.contract.JobSpec` under the names of these fields, which are those of the
command line with underscores.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any

from delta_log.errors import InvalidRequest

#: A hundred years; whoever means "never" does not vacuum.
_MAX_HOURS = 876_600.0


@dataclass(frozen=True, slots=True)
class ApprovedPlan:
    """The plan that somebody agreed to: what is deleted must be no more.

    :param cutoff_ms: of that plan; a later run goes no further, however much has expired since.
    """

    cutoff_ms: int
    num_files: int
    size_bytes: int


@dataclass(frozen=True, slots=True)
class VacuumOptions:
    """What to delete, and how far to go.

    :param retain_hours: files that were needed so recently stay; else the table's ``delta.deletedFileRetentionDuration``.
    :param retention_check: refuse a retention shorter than the table's.
    :param lite: find candidates in the log alone; finds no orphans and no directories.
    :param inventory: URI of a listing that somebody made, in the place of one of our own.
    :param where: a predicate on partition columns, see :mod:`delta_maintenance.partitions.predicate`.
    :param require_proof: refuse where the protected files cannot be proved by the log's raw files.
    :param output: URI of a new file for every path, one JSON object a line.
    :param approved: see :class:`ApprovedPlan`; in a spec, the members of a plan that was printed.
    :param quarantine: keep what goes in a hidden directory of the table, from where it can be brought back.
    :param purge_quarantine_hours: delete what has been in quarantine for so long; ``None``: nothing of it.
    """

    retain_hours: float | None = None
    retention_check: bool = True
    lite: bool = False
    inventory: str | None = None
    where: str | None = None
    require_proof: bool = False
    output: str | None = None
    approved: ApprovedPlan | None = None
    quarantine: bool = False
    purge_quarantine_hours: float | None = None

    def __post_init__(self) -> None:
        for name in ("retain_hours", "purge_quarantine_hours"):
            hours = getattr(self, name)
            if hours is not None and not (math.isfinite(hours) and 0 <= hours <= _MAX_HOURS):
                raise InvalidRequest(
                    f"{name} is {hours:g}; it must be a number of hours from 0 to {_MAX_HOURS:,.0f}."
                )
        if self.lite and self.inventory is not None:
            raise InvalidRequest(
                "A lite vacuum takes no inventory: it finds its files in the log. Give one of the two."
            )

    @property
    def mode(self) -> str:
        return "lite" if self.lite else "inventory" if self.inventory is not None else "full"

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> VacuumOptions:
        """From the options of a job spec; ``None`` means not given.

        :raises InvalidRequest: an option that there is not, or of a wrong kind.
        """
        known = tuple(f.name for f in fields(cls))
        unknown = sorted(set(raw) - set(known))
        if unknown:
            raise InvalidRequest(
                f"VACUUM has no option {', '.join(unknown)}. Its options are {', '.join(known)}; "
                "is the job's release older than the one that asks?"
            )
        return cls(**{name: _READERS[name](name, value) for name, value in raw.items() if value is not None})


def _text(name: str, value: Any) -> str:
    if not isinstance(value, str) or not value.strip():
        raise InvalidRequest(f"{name} is {value!r}; it must be a text. Give one, or leave the option out.")
    return value


def _hours(name: str, value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        raise InvalidRequest(f"{name} is {value!r}; it must be a number of hours.")
    # An integer may be larger than any float.
    return float(value) if abs(value) <= _MAX_HOURS else math.inf


def _flag(name: str, value: Any) -> bool:
    if not isinstance(value, bool):
        raise InvalidRequest(f"{name} is {value!r}; it must be true or false.")
    return value


def _approved(name: str, value: Any) -> ApprovedPlan:
    members = ("cutoffMs", "numFilesToDelete", "sizeOfDataToDelete")
    found = [value.get(member) if isinstance(value, Mapping) else None for member in members]
    if any(isinstance(number, bool) or not isinstance(number, int) or number < 0 for number in found):
        raise InvalidRequest(
            f"{name} is not a plan of VACUUM: it must hold the numbers {', '.join(members)}, as a dry run prints them."
        )
    cutoff_ms, num_files, size_bytes = (int(value[member]) for member in members)
    return ApprovedPlan(cutoff_ms, num_files, size_bytes)


_READERS: dict[str, Callable[[str, Any], Any]] = {
    "retain_hours": _hours,
    "retention_check": _flag,
    "lite": _flag,
    "inventory": _text,
    "where": _text,
    "require_proof": _flag,
    "output": _text,
    "approved": _approved,
    "quarantine": _flag,
    "purge_quarantine_hours": _hours,
}
