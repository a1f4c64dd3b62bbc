"""What a fleet keeps for the page, in the state store of its asset."""

from __future__ import annotations

from hashlib import sha256
from typing import Any

import pytest
from msgspec.structs import replace
from tests.support.fleet.nights import trusted
from tests.support.fleet.views import view_after

from airflow_delta.monitoring.fleets.record import HEAD, HOLDS, ForeignFleet, keep, read_head, read_view
from airflow_delta.testing import FakeStateStore
from delta_maintenance.fleet.account.view import TableNight

VIEW = view_after(1, trusted(), 60)


def values_of(store: FakeStateStore) -> dict[str, Any]:
    return {key: store.get(key) for key in store.values}


def test_a_night_is_read_as_it_was_kept_and_takes_the_place_of_the_one_before() -> None:
    entries = FakeStateStore()
    entries.set(HOLDS, {"holds": []})
    keep(entries, replace(VIEW, run_id="before"))
    keep(entries, VIEW)
    head = read_head(entries.get(HEAD))
    assert read_view(head, values_of(entries)) == VIEW
    assert set(entries.values) == {HEAD, HOLDS, *head.part_keys()}


def test_a_large_night_has_parts_and_a_lost_one_is_told() -> None:
    entries = FakeStateStore()
    owners = (sha256(str(number).encode()).hexdigest() for number in range(3_000))
    keep(entries, replace(VIEW, tables=tuple(TableNight("t", "healthy", owner) for owner in owners)))
    head = read_head(entries.get(HEAD))
    assert head.parts > 1
    assert max(len(entries.get(key)) for key in head.part_keys()) <= 60_000
    entries.delete(head.part_keys()[1])
    with pytest.raises(ForeignFleet, match="a part of it is not there"):
        read_view(head, values_of(entries))


@pytest.mark.parametrize("value", [None, 7, {"run_id": "x"}, {"run_id": 1, "parts": 1, "view_version": 1}])
def test_a_foreign_head_is_none(value: Any) -> None:
    with pytest.raises(ForeignFleet):
        read_head(value)


def test_foreign_parts_and_versions_are_told() -> None:
    entries = FakeStateStore()
    keep(entries, VIEW)
    head = read_head(entries.get(HEAD))
    for part in ("not base64!", "AAAA"):
        with pytest.raises(ForeignFleet):
            read_view(head, dict.fromkeys(head.part_keys(), part))
    with pytest.raises(ForeignFleet, match="this release reads 1"):
        read_view(replace(head, view_version=2), values_of(entries))
