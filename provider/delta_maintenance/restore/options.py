"""The options of RESTORE, checked before anything is read."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from delta_log.errors import InvalidRequest
from delta_maintenance.options import Kind, Operation, Options, Text, option, shown, table_of, whole_number


class VersionNumber(Kind):
    """A version of a table, from 0 on."""

    metavar = "N"

    def checked(self, name: str, value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or value < 0:
            raise InvalidRequest(f"{name} is {shown(value)}; it must be a version number from 0 on.")
        return value

    def read(self, value: Any) -> int:
        number = whole_number(value)
        if number is None:
            raise ValueError(f"{shown(value)} is not a version number.")
        return number


class Moment(Kind):
    """A time in ISO 8601. A time without a zone is UTC."""

    metavar = "T"

    def checked(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or _moment(value) is None:
            raise InvalidRequest(f"{name} is {shown(value)}; it must be a time such as 2026-01-31T12:00:00Z.")
        return value

    def read(self, value: Any) -> str:
        if not isinstance(value, str) or _moment(value) is None:
            raise ValueError(f"{shown(value)} is not a time such as 2026-01-31T12:00:00Z.")
        return value


def _moment(text: str) -> datetime | None:
    try:
        moment = datetime.fromisoformat(text.strip().upper().replace("Z", "+00:00"))
    except ValueError:
        return None
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=timezone.utc)


@dataclass(frozen=True, slots=True)
class RestoreTableOptions(Options):
    """Which version to restore. Exactly one option is given."""

    to_version: int | None = option(VersionNumber(), "the version to restore")
    to_timestamp: str | None = option(
        Moment(), "restore the newest version committed at or before this time, such as 2026-01-31T12:00:00Z"
    )
    undo_run: str | None = option(
        Text("RUN_ID"), "restore the version before the first commit of this run, as its report names it"
    )

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> RestoreTableOptions:
        """The options of a job spec.

        :raises InvalidRequest: an option is unknown or has a value of a wrong kind, or not exactly one is given.
        """
        options = cls.from_spec(RESTORE, raw)
        given = [row.name for row in RESTORE.options if getattr(options, row.name) is not None]
        if len(given) != 1:
            names = ", ".join(row.name for row in RESTORE.options)
            raise InvalidRequest(
                f"RESTORE needs exactly one of {names}; given: {', '.join(given) or 'none'}."
            )
        return options

    @property
    def moment(self) -> datetime | None:
        return None if self.to_timestamp is None else _moment(self.to_timestamp)


RESTORE = Operation(
    "restore",
    "make a table what it was at an earlier version, as a new version",
    table_of(RestoreTableOptions),
)
