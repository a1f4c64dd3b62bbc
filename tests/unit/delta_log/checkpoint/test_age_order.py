"""Files by age, the newest first, whatever order they come in and however little memory there is."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples

from delta_log.checkpoint.age_order import by_age
from delta_log.errors import CommitFailed


class Files:
    def __init__(self, times: list[int]) -> None:
        self.table = pa.table({"path": [f"f{n}" for n in range(len(times))], "modification_time": times})
        self.reads: list[tuple[str, ...]] = []

    def read(self, columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        self.reads.append(tuple(columns))
        yield from self.table.select(list(columns)).to_batches(3)


COLUMNS = ("path", "modification_time")


@examples(60)
@given(
    st.lists(st.integers(0, 30), min_size=1, max_size=40), st.integers(1, 7), st.sampled_from([1, 500, 10**9])
)
def test_every_file_comes_once_in_the_group_of_its_age(
    times: list[int], group_rows: int, held_bytes: int
) -> None:
    files = Files(times)
    found = pa.Table.from_batches(by_age(files.read, COLUMNS, group_rows, held_bytes))
    assert sorted(found["path"].to_pylist()) == sorted(files.table["path"].to_pylist())
    if files.reads[1:] != [COLUMNS]:  # they were not in order
        groups = [
            found["modification_time"].slice(start, group_rows).to_pylist()
            for start in range(0, len(times), group_rows)
        ]
        assert all(min(newer) >= max(older) for newer, older in itertools.pairwise(groups))


def test_what_is_in_order_is_read_once() -> None:
    files = Files(list(range(1000, 0, -1)))
    assert sum(batch.num_rows for batch in by_age(files.read, COLUMNS, 10)) == 1000
    assert files.reads == [("modification_time",), COLUMNS]


def test_files_that_change_between_two_readings_are_an_error() -> None:
    files = Files(list(range(100)))

    def read(columns: Sequence[str]) -> Iterator[pa.RecordBatch]:
        yield from files.read(columns)
        if len(files.reads) == 3:
            files.table = files.table.slice(1)

    with pytest.raises(CommitFailed, match="100 live files, and 99"):
        list(by_age(read, COLUMNS, 10, 500))


def test_no_files_are_in_order() -> None:
    assert list(by_age(lambda columns: iter(()), COLUMNS, 10)) == []
