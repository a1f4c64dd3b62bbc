"""What a fleet keeps for the page, in the state store of its asset."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.fleet.nights import trusted
from tests.support.fleet.views import view_after

from airflow_delta.monitoring.fleets.record import HEAD, ForeignFleet, keep, read_head, read_view
from delta_maintenance.fleet.account.view import TableNight

VIEW = view_after(1, trusted(), 60)


class Entries(dict[str, Any]):
    """A state store as Airflow gives it to a task."""

    def set(self, key: str, value: Any) -> None:
        self[key] = value

    def delete(self, key: str) -> None:
        self.pop(key, None)


def test_a_night_is_read_as_it_was_kept_and_takes_the_place_of_the_one_before() -> None:
    entries = Entries(delta_fleet_holds={"holds": []})
    keep(entries, replace(VIEW, run_id="before"))
    keep(entries, VIEW)
    head = read_head(entries[HEAD])
    assert read_view(head, entries) == VIEW
    assert set(entries) == {HEAD, "delta_fleet_holds", *head.part_keys()}


def test_a_large_night_has_parts_and_a_lost_one_is_told() -> None:
    entries = Entries()
    owners = (sha256(str(number).encode()).hexdigest() for number in range(3_000))
    keep(entries, replace(VIEW, tables=tuple(TableNight("t", "healthy", owner) for owner in owners)))
    head = read_head(entries[HEAD])
    assert head.parts > 1
    assert max(len(entries[key]) for key in head.part_keys()) <= 60_000
    del entries[head.part_keys()[1]]
    with pytest.raises(ForeignFleet, match="a part of it is not there"):
        read_view(head, entries)


@pytest.mark.parametrize("value", [None, 7, {"run_id": "x"}, {"run_id": 1, "parts": 1, "view_version": 1}])
def test_a_foreign_head_is_none(value: Any) -> None:
    with pytest.raises(ForeignFleet):
        read_head(value)


def test_foreign_parts_and_versions_are_told() -> None:
    entries = Entries()
    keep(entries, VIEW)
    head = read_head(entries[HEAD])
    for part in ("not base64!", "AAAA"):
        with pytest.raises(ForeignFleet):
            read_view(head, {key: part for key in head.part_keys()})
    with pytest.raises(ForeignFleet, match="this release reads 1"):
        read_view(replace(head, view_version=2), entries)
