from __future__ import annotations

import io
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples

from delta_log.errors import CorruptLog
from delta_log.storage.local.local_storage import LocalStorage
from delta_log.storage.opening import open_storage
from delta_maintenance.rewrite.copy.source_footers import ReadAhead, StoredFile

CONTENT = bytes(range(100))


@pytest.fixture
def stored(tmp_path: Path) -> StoredFile:
    storage = open_storage(str(tmp_path))
    storage.put("source", CONTENT)
    return StoredFile(storage, "source", len(CONTENT), CONTENT[-10:])


def copied(stored: StoredFile, start: int, length: int) -> bytes:
    with stored.storage.open_write("new") as file:
        stored.copy_to(file, start, length)
    return stored.storage.read("new")


@pytest.mark.parametrize(("start", "length"), [(0, 90), (4, 50), (90, 10), (95, 5)])
def test_bytes_are_those_of_the_file(stored: StoredFile, start: int, length: int) -> None:
    expected = CONTENT[start : start + length]
    assert copied(stored, start, length) == stored.read(start, length) == expected


def test_the_end_is_not_read_again(stored: StoredFile) -> None:
    stored.storage.delete(["source"])
    assert copied(stored, 92, 8) == stored.read(92, 8) == CONTENT[92:]


def test_a_file_that_was_deleted_meanwhile_is_named(stored: StoredFile) -> None:
    stored.storage.delete(["source"])
    with pytest.raises(CorruptLog, match="source.*deleted meanwhile"):
        copied(stored, 0, 50)
    with pytest.raises(CorruptLog, match="source.*deleted meanwhile"):
        stored.read(0, 50)


def test_a_file_that_was_cut_meanwhile_is_named(stored: StoredFile) -> None:
    stored.storage.put("source", CONTENT[:20])
    with pytest.raises(CorruptLog, match="only 16 of 50 bytes from 4 on are there"):
        copied(stored, 4, 50)


def test_a_range_beyond_the_end_is_refused(stored: StoredFile) -> None:
    with pytest.raises(CorruptLog, match="only 5 of 6 bytes from 95 on"):
        stored.copy_to(io.BytesIO(), 95, 6)


class Counting(LocalStorage):
    """A directory that remembers what is read."""

    def __init__(self, path: Path, content: bytes) -> None:
        super().__init__(str(path))
        (path / "f").write_bytes(content)
        self.reads: list[tuple[int, int]] = []

    def read(self, key: str, start: int = 0, length: int | None = None) -> bytes:
        assert length is not None
        self.reads.append((start, length))
        return super().read(key, start, length)


def test_parts_with_little_between_them_are_read_together(tmp_path: Path) -> None:
    content = bytes(range(250)) * 20_000
    storage = Counting(tmp_path, content)
    parts = [(2_000_000, 500), (100, 50), (400, 50), (4_900_000, 100)]
    ahead = ReadAhead(StoredFile(storage, "f", len(content), b""), parts)
    for start, length in sorted(parts):
        assert ahead.read(start, length) == content[start : start + length]
    assert storage.reads == [(100, 350), (2_000_000, 500), (4_900_000, 100)]


@examples(100)
@given(
    parts=st.lists(st.tuples(st.integers(0, 30), st.integers(1, 60)), min_size=1, max_size=8),
    piece_bytes=st.integers(1, 40),
    gap_bytes=st.integers(0, 20),
)
def test_any_read_within_a_part_gives_its_bytes(
    parts: list[tuple[int, int]], piece_bytes: int, gap_bytes: int
) -> None:
    """:param parts: what lies between each and the part before, and its length."""
    places, end = [], 0
    for between, length in parts:
        places.append((end + between, length))
        end += between + length
    content = bytes(n % 251 for n in range(end + 5))
    with TemporaryDirectory() as directory:
        storage = Counting(Path(directory), content)
        ahead, calls = ReadAhead(StoredFile(storage, "f", len(content), b""), places, 50, gap_bytes), 0
        for start, length in places:
            for first in range(start, start + length, piece_bytes):
                wanted, calls = min(piece_bytes, start + length - first), calls + 1
                assert ahead.read(first, wanted) == content[first : first + wanted]
    assert len(storage.reads) <= calls
    assert max(start + length for start, length in storage.reads) == end
