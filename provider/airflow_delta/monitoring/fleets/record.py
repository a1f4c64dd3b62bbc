"""What a fleet keeps for the page in the state store of its asset, and how it is read again.

The store of the asset ``delta-maintenance:<asset>`` has

* ``delta_fleet``: the :class:`Head`, which names the night;
* ``delta_fleet_part.<number>.<run id>``: the night's view as JSON, compressed by zlib, as base64 in parts of 60,000 characters. A fleet
  of 3,000 tables has some of them. The parts of an earlier night are deleted;
* ``delta_fleet_holds``: what persons have said, see :mod:`~delta_maintenance.fleet.decision.holds`. The page writes it by Airflow's REST
  API, and the task that decides reads it.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any, Protocol

import msgspec
from msgspec import Meta, Struct

if TYPE_CHECKING:
    from delta_maintenance.fleet.account.view import FleetView

HEAD, HOLDS, PART_PREFIX = "delta_fleet", "delta_fleet_holds", "delta_fleet_part."
#: Airflow warns of values of more than 64 KiB.
_PART_LENGTH = 60_000
#: A view of a hundred thousand tables has a fifth of it.
_MAX_BYTES = 1 << 28


class ForeignFleet(ValueError):
    """The entries are no fleet: another program made them, or another release."""


class Head(Struct, frozen=True, forbid_unknown_fields=True):
    """The newest night of a fleet.

    :param parts: number of its parts.
    :param view_version: version of its form.
    """

    run_id: str
    parts: Annotated[int, Meta(ge=0, le=10_000)]
    view_version: int

    def part_keys(self) -> list[str]:
        return [f"{PART_PREFIX}{number}.{self.run_id}" for number in range(self.parts)]


class StateStore(Protocol):
    """The state store of one asset, as Airflow gives it to a task."""

    def get(self, key: str, default: Any = None) -> Any: ...
    def set(self, key: str, value: Any) -> None: ...
    def delete(self, key: str) -> None: ...


def keep(store: StateStore, view: FleetView) -> None:
    """Keep a night in place of the one before. A reader sees one or the other."""
    before = store.get(HEAD)
    parts = packed(view)
    head = Head(view.run_id, len(parts), view.view_version)
    for key, part in zip(head.part_keys(), parts, strict=True):
        store.set(key, part)
    store.set(HEAD, msgspec.to_builtins(head))
    for key in _keys_of(before):
        if key not in head.part_keys():
            store.delete(key)


def _keys_of(head: Any) -> list[str]:
    try:
        return read_head(head).part_keys()
    except ForeignFleet:
        return []


def packed(view: FleetView) -> list[str]:
    text = base64.b64encode(zlib.compress(msgspec.json.encode(view))).decode()
    return [text[first : first + _PART_LENGTH] for first in range(0, len(text), _PART_LENGTH)]


def read_head(value: Any) -> Head:
    """
    :raises ForeignFleet: it is none.
    """
    try:
        return msgspec.convert(value, type=Head)
    except msgspec.ValidationError as error:
        raise ForeignFleet(str(error)) from None


def read_view(head: Head, parts: Mapping[str, Any]) -> FleetView:
    """
    :param parts: values by their keys.
    :raises ForeignFleet: a part is missing, or they are no view of this release.
    """
    from delta_maintenance.fleet.account.view import VIEW_VERSION, FleetView

    if head.view_version != VIEW_VERSION:
        raise ForeignFleet(f"it has version {head.view_version}, and this release reads {VIEW_VERSION}")
    try:
        text = _joined([parts.get(key) for key in head.part_keys()])
        content = zlib.decompressobj().decompress(base64.b64decode(text), _MAX_BYTES)
        return msgspec.json.decode(content, type=FleetView)
    except (ValueError, zlib.error, RecursionError) as error:
        raise ForeignFleet(str(error)) from None


def _joined(parts: Sequence[Any]) -> str:
    if not all(isinstance(part, str) for part in parts):
        raise ForeignFleet("a part of it is not there")
    return "".join(parts)
