"""Finds the version nearest to one that cannot be restored whose files are all there, commit by commit."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable

from msgspec import Struct


class Step(Struct, frozen=True):
    """A step from one version to a neighbouring version.

    :param version: the version that the step leads to.
    :param leaving: keys of files that the version before the step has and this one has not; ``entering`` the reverse.
    """

    version: int
    leaving: frozenset[str]
    entering: frozenset[str]


def nearest_whole_version(
    missing: Collection[str], steps: Iterable[Step], find_missing: Callable[[Collection[str]], set[str]]
) -> int | None:
    """Return the first version on the way whose files are all there; ``None``: there is none.

    :param missing: keys that are missing of the version at which the steps begin.
    :param find_missing: function that tells which of some keys the store lacks.
    """
    lacking = set(missing)
    for step in steps:
        lacking -= step.leaving
        if step.entering:
            lacking |= find_missing(step.entering)
        if not lacking:
            return step.version
    return None
