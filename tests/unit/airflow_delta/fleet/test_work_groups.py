"""Which units share a task."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from airflow_delta.fleet.work_groups import GROUP_SECONDS, MAX_GROUPS, SMALL_UNIT_SECONDS, work_groups

SECONDS = st.lists(st.floats(0, 100_000), max_size=60)


def test_small_units_share_a_task_and_a_large_one_is_alone() -> None:
    assert work_groups([5, 900, 5, 21], at_once=10) == [(0, 2), (1,), (3,)]


def test_a_group_takes_no_longer_than_its_time() -> None:
    groups = work_groups([SMALL_UNIT_SECONDS] * 40, at_once=100)
    per_group = int(GROUP_SECONDS // SMALL_UNIT_SECONDS)
    assert [len(group) for group in groups] == [per_group, per_group, 40 - 2 * per_group]


def test_nothing_to_do_is_no_task() -> None:
    assert work_groups([], at_once=1) == []


@given(SECONDS, st.integers(1, 20))
def test_every_unit_is_in_one_group_and_there_are_no_more_groups_than_tables_at_once(
    seconds: list[float], at_once: int
) -> None:
    groups = work_groups(seconds, at_once)
    assert sorted(number for group in groups for number in group) == list(range(len(seconds)))
    assert len(groups) <= at_once
    assert groups == sorted(tuple(sorted(group)) for group in groups)


def test_a_large_fleet_has_a_bounded_number_of_tasks() -> None:
    assert len(work_groups([1000.0] * 5000, at_once=5000)) <= MAX_GROUPS
