from __future__ import annotations

import io
from pathlib import Path

import pytest

from delta_log.errors import CorruptLog
from delta_log.storage.opening import open_storage
from delta_maintenance.rewrite.copied_files import StoredFile

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
