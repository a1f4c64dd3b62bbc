from __future__ import annotations

from collections.abc import Collection

import pytest

from delta_maintenance.restore.plan.nearest_version import Step, nearest_whole_version

_GONE = {"x", "y"}


def _find_missing(keys: Collection[str]) -> set[str]:
    return _GONE.intersection(keys)


def _steps(*steps: tuple[str, str]) -> list[Step]:
    return [
        Step(version, frozenset(leaving), frozenset(entering))
        for version, (leaving, entering) in enumerate(steps, 1)
    ]


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([], None),
        ([("a", "b")], None),
        ([("x", "")], 1),
        ([("x", "y"), ("", ""), ("y", "a")], 3),
        # A file that comes back is missing again.
        ([("a", "x"), ("x", "")], 2),
    ],
)
def test_the_first_version_without_a_missing_file_is_found(
    steps: list[tuple[str, str]], found: int | None
) -> None:
    assert nearest_whole_version({"x"}, _steps(*steps), _find_missing) == found
