"""The options of EXPIRE, checked before anything is read."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Any

from delta_log.errors import InvalidRequest
from delta_maintenance.options import (
    NO_APPROVAL,
    Count,
    Kind,
    Operation,
    Options,
    Switch,
    Text,
    option,
    shown,
    table_of,
)
from delta_maintenance.restore.options import Moment

_AGE = re.compile(r"([1-9][0-9]{0,5})\s*([hdw])")
_UNIT_MS = {"h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}


class Age(Kind):
    """A whole number of hours, days or weeks, such as ``400d``; in a job spec, the same text."""

    metavar = "AGE"

    def checked(self, name: str, value: Any) -> str:
        if not isinstance(value, str) or _AGE.fullmatch(value) is None:
            raise InvalidRequest(f"{name} is {shown(value)}; it must be an age such as 36h, 400d or 52w.")
        return value

    def read(self, value: Any) -> str:
        text = value.strip().lower() if isinstance(value, str) else ""
        if _AGE.fullmatch(text) is None:
            raise ValueError(f"{shown(value)} is not an age such as 36h, 400d or 52w.")
        return text


@dataclass(frozen=True, slots=True)
class ExpireOptions(Options):
    """Which rows leave the table. A column is given, and exactly one of an age and a time."""

    column: str | None = option(
        Text("COLUMN"),
        "the date or timestamp column that says how old a row is; rows with a null stay",
        required=True,
    )
    older_than: str | None = option(
        Age(), "rows expire at this age, a number of hours, days or weeks, such as 36h, 400d or 52w"
    )
    before: str | None = option(
        Moment(), "instead of an age: rows from before this time expire, such as 2026-01-31T00:00:00Z"
    )
    whole_files: bool = option(
        Switch(),
        "remove only files all of whose rows have expired, which their statistics or partition tell; no file is read",
        default=False,
    )
    max_rows: int | None = option(
        Count("rows"),
        "remove nothing if more rows than this have expired, as when a plan was approved",
        otherwise="no limit",
        absence=NO_APPROVAL,
    )

    @classmethod
    def from_mapping(cls, raw: Mapping[str, Any]) -> ExpireOptions:
        """The options of a job spec.

        :raises InvalidRequest: an option is unknown or has a value of a wrong kind, the column is missing, or not exactly one of the age and
            the time is given.
        """
        options = cls.from_spec(EXPIRE, raw)
        if options.column is None:
            raise InvalidRequest(
                "EXPIRE needs column, the date or timestamp column that says how old a row is."
            )
        if (options.older_than is None) == (options.before is None):
            raise InvalidRequest("EXPIRE needs exactly one of older_than and before.")
        return options

    def cutoff_ms(self, now_ms: int) -> int:
        """Return the time before which rows have expired, in milliseconds since the epoch.

        :raises InvalidRequest: the time lies in the future.
        """
        if self.older_than is not None:
            found = _AGE.fullmatch(self.older_than)
            assert found is not None
            return now_ms - int(found[1]) * _UNIT_MS[found[2]]
        assert self.before is not None
        moment = datetime.fromisoformat(self.before.strip().upper().replace("Z", "+00:00"))
        cutoff_ms = int((moment if moment.tzinfo else moment.replace(tzinfo=timezone.utc)).timestamp() * 1000)
        if cutoff_ms > now_ms:
            raise InvalidRequest(
                f"before is {self.before}, which is in the future. Give a time that is over."
            )
        return cutoff_ms


EXPIRE = Operation(
    "expire",
    "remove rows that are older than an age",
    table_of(ExpireOptions),
)
