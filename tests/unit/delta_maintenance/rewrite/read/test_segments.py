"""How a bin's sources are divided: in order, without a gap, evenly between the threads, and never above a row group."""

from __future__ import annotations

from random import Random
from types import SimpleNamespace
from typing import Any, cast

from hypothesis import given
from hypothesis import strategies as st

from delta_maintenance.rewrite.read.segments import segment_bytes, segments
from delta_maintenance.rewrite.read.sources import OpenedSource
from delta_maintenance.rewrite.task import SourceFile

_MIB = 1 << 20
_ROW_GROUP_BYTES = 128 * _MIB


def opened(name: str, row_groups: list[int], copied: list[bool] | None = None) -> OpenedSource:
    """A source with row groups of these decoded bytes, a third of that in storage.

    :param copied: for each row group, whether it is copied.
    """
    data_file: Any = SimpleNamespace(row_group_bytes=row_groups, num_row_groups=len(row_groups))
    source = SourceFile(name, name, max(1, sum(row_groups) // 3))
    reasons = [None if is_copied else "why" for is_copied in copied or ()]
    copies: Any = SimpleNamespace(copies=SimpleNamespace(reasons=reasons)) if any(copied or ()) else None
    return OpenedSource(source, 0, data_file, copied=copies)


def divided(sources: list[OpenedSource], threads: int) -> list[list[tuple[str, int]]]:
    """The row groups of each segment."""
    bytes_in = sum(source.source.size_bytes for source in sources)
    found = segments(sources, bytes_in, _ROW_GROUP_BYTES, threads)
    return [
        [
            (part.opened.source.key, number)
            for part in segment
            for number in part.row_groups or range(part.opened.data_file.num_row_groups)
        ]
        for segment in found
    ]


SOURCES = st.lists(st.lists(st.integers(0, 200 * _MIB), max_size=4), max_size=12)


@given(SOURCES, st.integers(1, 8))
def test_every_row_group_is_in_one_segment_in_order(groups: list[list[int]], threads: int) -> None:
    sources = [opened(str(number), sizes) for number, sizes in enumerate(groups)]
    expected = [(str(number), group) for number, sizes in enumerate(groups) for group in range(len(sizes))]
    assert [place for segment in divided(sources, threads) for place in segment] == expected


@given(SOURCES, st.integers(1, 8))
def test_the_last_slice_of_each_source_and_no_other_ends_it(groups: list[list[int]], threads: int) -> None:
    sources = [opened(str(number), sizes) for number, sizes in enumerate(groups)]
    bytes_in = sum(source.source.size_bytes for source in sources)
    found = segments(sources, bytes_in, _ROW_GROUP_BYTES, threads)
    ended = [part.opened.source.key for segment in found for part in segment if part.is_last]
    assert ended == [str(number) for number in range(len(groups))]


@given(SOURCES, st.integers(1, 8), st.randoms(use_true_random=False))
def test_copied_row_groups_stand_alone_and_in_their_order(
    groups: list[list[int]], threads: int, random: Random
) -> None:
    copied = [[random.random() < 0.5 for _ in sizes] for sizes in groups]
    sources = [
        opened(str(number), sizes, flags)
        for number, (sizes, flags) in enumerate(zip(groups, copied, strict=True))
    ]
    expected = [(str(number), group) for number, sizes in enumerate(groups) for group in range(len(sizes))]
    assert [place for segment in divided(sources, threads) for place in segment] == expected
    bytes_in = sum(source.source.size_bytes for source in sources)
    for segment in segments(sources, bytes_in, _ROW_GROUP_BYTES, threads):
        for part in segment:
            flags = copied[int(part.opened.source.key)]
            numbers = part.row_groups or range(len(flags))
            assert {flags[number] for number in numbers} <= {part.is_copied}
        assert len(segment) == 1 or not any(part.is_copied for part in segment)


@given(st.integers(0, 10**12), st.integers(1, 64))
def test_a_segment_is_no_larger_than_a_row_group_and_threads_get_as_many(size: int, threads: int) -> None:
    one = segment_bytes(size, _ROW_GROUP_BYTES, threads)
    assert 0 < one <= _ROW_GROUP_BYTES
    if size > threads * 32 * _MIB:
        assert -(-size // one) % threads == 0


def test_two_threads_share_a_bin_of_small_files() -> None:
    sources = [opened(str(number), [2 * _MIB]) for number in range(120)]
    assert [len(segment) for segment in divided(sources, 2)] == [60, 60]
    assert [len(segment) for segment in divided(sources, 1)] == [60, 60]
    assert [len(segment) for segment in divided(sources[:12], 2)] == [12]


def test_a_large_source_is_divided_between_its_row_groups() -> None:
    source = opened("large", [100 * _MIB] * 4)
    assert divided([source], 2) == [[("large", n)] for n in range(4)]
    whole = list(segments([opened("small", [_MIB])], 1, _ROW_GROUP_BYTES, 2))
    assert cast(Any, whole)[0][0].row_groups is None
