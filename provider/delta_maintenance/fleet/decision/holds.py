"""What persons have said of tables since the policy was written: pauses, and failures that are known."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from delta_log.errors import InvalidRequest
from delta_maintenance.fleet.pattern import AddressPattern, matches
from delta_maintenance.units import format_time

#: Reports repeat the text of a hold, so it is short.
_Text = Annotated[str, Meta(min_length=1, max_length=1_000)]


class Hold(Struct, frozen=True, forbid_unknown_fields=True):
    """One such word.

    :param kind: ``pause``: the tables are surveyed and reported, and not changed. ``acknowledge``: the same, and their failures are known:
        they do not make a run red.
    :param match: pattern of the addresses of the tables; ``**`` is the whole fleet.
    :param why: reason, which reports repeat.
    :param until: last day on which it holds, in UTC; ``None``: until it is taken back.
    """

    kind: Literal["pause", "acknowledge"]
    match: _Text
    why: _Text
    until: date | None = None

    def holds_for(self, table: str, now_ms: int) -> bool:
        is_over = self.until is not None and format_time(now_ms, "%Y-%m-%d") > self.until.isoformat()
        return not is_over and matches(self.match, table)

    @property
    def told(self) -> str:
        """The reason, with the day on which it ends."""
        return f"{self.why}." if self.until is None else f"{self.why}, until {self.until}."


class Holds(Struct, frozen=True, forbid_unknown_fields=True):
    """All of them, as a document."""

    holds: tuple[Hold, ...] = ()


def read_holds(document: object, place: str) -> tuple[Hold, ...]:
    """
    :param document: JSON value; ``None``: nobody has said anything.
    :param place: place where it was found, for the message.
    :raises InvalidRequest: it is not a :class:`Holds`. A table that a person has paused is not to be changed because of that.
    """
    if document is None:
        return ()
    try:
        holds = msgspec.convert(document, type=Holds).holds
        for hold in holds:
            AddressPattern.parse(hold.match)
    except (msgspec.ValidationError, InvalidRequest) as error:
        raise InvalidRequest(
            f"The pauses and acknowledgements in {place} cannot be read: {error}. Correct the value, or delete it: then no table is "
            "paused."
        ) from None
    return holds


def hold_for(holds: Sequence[Hold], kind: str, table: str, now_ms: int) -> Hold | None:
    """The first hold of a kind that a table has at a moment."""
    return next((one for one in holds if one.kind == kind and one.holds_for(table, now_ms)), None)
