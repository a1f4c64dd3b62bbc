from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from delta_maintenance.optimize.plan.bin_packing import MergeRule, pack
from delta_maintenance.optimize.plan.selection import ALONE, LEFT_OVER, TOO_LARGE_TOGETHER, UNMATCHED

FILES = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 12), st.booleans()), max_size=40)


def bins_of(
    files: list[tuple[int, int, bool]], max_bytes: int, names: list[str] | None = None
) -> list[list[str]]:
    """The bins as lists of paths; by default the paths are ``f0``, ``f1``, …"""
    paths = names or [f"f{number:03}" for number in range(len(files))]
    groups, sizes, alone = (np.array([file[at] for file in files]) for at in range(3))
    packed = pack(
        groups.astype(np.int64),
        sizes.astype(np.int64),
        pa.array(paths, pa.string()),
        max_bytes,
        alone.astype(np.bool_),
    )
    return [[paths[index] for index in members] for members in packed]


def naive(files: list[tuple[int, int, bool]], max_bytes: int) -> list[list[str]]:
    """Next-fit as the protocol digest words it, file by file."""
    found: list[list[int]] = []
    for group in sorted({file[0] for file in files}):
        members = sorted(
            (n for n, file in enumerate(files) if file[0] == group), key=lambda n: (files[n][1], n)
        )
        current: list[int] = []
        for number in members:
            if current and sum(files[n][1] for n in current) + files[number][1] > max_bytes:
                found.append(current)
                current = []
            current.append(number)
        found.append(current)
    return [
        [f"f{number:03}" for number in members]
        for members in found
        if len(members) > 1 or any(files[number][2] for number in members)
    ]


@given(FILES, st.integers(1, 30))
def test_bins_are_those_of_next_fit_file_by_file(files: list[tuple[int, int, bool]], max_bytes: int) -> None:
    assert bins_of(files, max_bytes) == naive(files, max_bytes)


@given(FILES, st.integers(1, 30), st.sampled_from([None, MergeRule(1.5, 1)]))
def test_what_is_said_of_files_without_a_bin_is_true(
    files: list[tuple[int, int, bool]], max_bytes: int, merge_rule: MergeRule | None
) -> None:
    groups, sizes, alone = (np.array([file[at] for file in files]) for at in range(3))
    paths = pa.array([f"f{number:03}" for number in range(len(files))], pa.string())
    packed = pack(
        groups.astype(np.int64), sizes.astype(np.int64), paths, max_bytes, alone.astype(np.bool_), merge_rule
    )
    said = {int(row): reason for reason, rows in packed.left.items() for row in rows}
    in_bins = [int(row) for members in packed for row in members]
    assert sorted([*said, *in_bins]) == list(range(len(files)))
    for row, reason in said.items():
        others = [other for other in range(len(files)) if other != row and groups[other] == groups[row]]
        fitting = [other for other in others if sizes[other] + sizes[row] <= max_bytes]
        if reason == ALONE:
            assert not others
        elif reason == TOO_LARGE_TOGETHER:
            assert others
            assert not fitting
        elif reason == UNMATCHED:
            assert merge_rule is not None
            assert fitting
        else:
            assert reason == LEFT_OVER
            assert set(fitting).intersection(in_bins)


@given(FILES, st.integers(1, 30), st.randoms(use_true_random=False))
def test_the_order_in_which_files_come_changes_nothing(
    files: list[tuple[int, int, bool]], max_bytes: int, random: Any
) -> None:
    named = [(file, f"f{number:03}") for number, file in enumerate(files)]
    expected = bins_of(files, max_bytes)
    random.shuffle(named)
    assert bins_of([file for file, _ in named], max_bytes, [name for _, name in named]) == expected


def test_a_file_without_company_stays_where_it_is() -> None:
    assert bins_of([(0, 5, False), (1, 5, False)], 10) == []


def test_a_file_chosen_for_itself_needs_no_company() -> None:
    assert bins_of([(0, 5, False), (1, 5, True), (2, 99, True)], 10) == [["f001"], ["f002"]]


def test_a_bin_may_be_filled_to_the_last_byte() -> None:
    assert bins_of([(0, 5, False), (0, 5, False), (0, 5, False), (0, 5, False)], 10) == [
        ["f000", "f001"],
        ["f002", "f003"],
    ]


def test_files_larger_than_a_bin_get_one_each() -> None:
    assert bins_of([(0, 11, True), (0, 11, True), (0, 1, False)], 10) == [["f000"], ["f001"]]


def test_no_files_give_no_bins() -> None:
    assert bins_of([], 10) == []


@given(FILES, st.integers(1, 30))
def test_two_bins_of_a_group_never_fit_into_one(files: list[tuple[int, int, bool]], max_bytes: int) -> None:
    every = [(group, size, True) for group, size, _ in files]
    sizes = {f"f{number:03}": file for number, file in enumerate(every)}
    totals: dict[int, list[int]] = {}
    for members in bins_of(every, max_bytes):
        totals.setdefault(sizes[members[0]][0], []).append(sum(sizes[name][1] for name in members))
    for sums in totals.values():
        assert all(a + b > max_bytes for at, a in enumerate(sums) for b in sums[at + 1 :])
