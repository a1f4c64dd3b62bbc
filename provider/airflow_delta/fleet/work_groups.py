"""Groups the units of a night into mapped tasks. Pure.

A task costs Airflow seconds, whatever it does. So units that take a few seconds share a task, and larger ones are alone.
"""

from __future__ import annotations

from collections.abc import Sequence

#: A unit that takes longer has a task for itself.
SMALL_UNIT_SECONDS = 20.0
#: Small units are put together up to this time.
GROUP_SECONDS = 300.0
#: A night has at most as many tasks, since Airflow keeps a row and a log for each.
MAX_GROUPS = 300


def work_groups(seconds: Sequence[float], at_once: int) -> list[tuple[int, ...]]:
    """
    :param seconds: expected time of each unit, in the order in which the units are to be begun.
    :param at_once: most tables at the same time. A group works on one table at a time, so there are at most as many groups.
    :return: numbers of the units of each group, in their order; groups in the order of their first units.
    """
    small, whole = SMALL_UNIT_SECONDS, GROUP_SECONDS
    while True:
        groups = _first_fit_decreasing(seconds, small, whole)
        if len(groups) <= max(1, min(at_once, MAX_GROUPS)):
            return sorted(tuple(sorted(group)) for group in groups)
        small, whole = small * 2, whole * 2


def _first_fit_decreasing(seconds: Sequence[float], small: float, whole: float) -> list[list[int]]:
    """
    :param small: longest time of a unit that may share a group, and ``whole`` the longest time of such a group.
    """
    groups: list[list[int]] = []
    room: list[float] = []
    for number in sorted(range(len(seconds)), key=lambda one: (-seconds[one], one)):
        needed = seconds[number] if seconds[number] <= small else whole
        place = next((place for place, left in enumerate(room) if left >= needed), None)
        if place is None:
            groups.append([])
            room.append(whole)
            place = len(groups) - 1
        groups[place].append(number)
        room[place] -= needed
    return groups
