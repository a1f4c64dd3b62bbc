"""Ranges of files on a disk: the same bytes, whoever copies them."""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_log.storage.local import byte_range as local_range
from delta_log.storage.local.byte_range import NewFile, append_range, fill, read_range

_CONTENT = bytes(range(251)) * 5


@pytest.fixture(autouse=True)
def small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_range, "_PIECE_BYTES", 100)
        yield


def appended(directory: Path, start: int, length: int) -> tuple[int, bytes]:
    """Append a range of a file to one that has a byte, and then another byte."""
    source = directory / "source"
    source.write_bytes(_CONTENT)
    descriptor = os.open(source, os.O_RDONLY)
    try:
        with (directory / "target").open("wb") as target:
            target.write(b"<")
            count = append_range(target, descriptor, start, length)
            target.write(b">")
    finally:
        os.close(descriptor)
    return count, (directory / "target").read_bytes()


@given(st.integers(0, len(_CONTENT) + 10), st.integers(0, len(_CONTENT) + 10))
def test_any_range_is_appended(start: int, length: int) -> None:
    expected = _CONTENT[start : start + length]
    with tempfile.TemporaryDirectory() as directory:
        assert appended(Path(directory), start, length) == (len(expected), b"<" + expected + b">")


@pytest.mark.parametrize("refusal", [errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP])
def test_what_the_kernel_does_not_copy_is_read_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    calls = iter([3])

    def refuse(source: int, target: int, count: int, offset: int) -> int:
        # The first call copies a part.
        for few in calls:
            return os.write(target, os.pread(source, few, offset))
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    assert appended(tmp_path, 1, 700) == (700, b"<" + _CONTENT[1:701] + b">")


@pytest.fixture
def no_kernel_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: int) -> int:
        raise OSError(errno.EXDEV, os.strerror(errno.EXDEV))

    monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_ends_the_copy(tmp_path: Path) -> None:
    (tmp_path / "source").write_bytes(_CONTENT)
    with (
        (tmp_path / "source").open("rb") as source,
        open("/dev/full", "wb", buffering=0) as full,
        pytest.raises(OSError, match="No space left"),
    ):
        append_range(full, source.fileno(), 0, 1_000)


@pytest.mark.usefixtures("no_kernel_copies")
def test_a_broken_disk_ends_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = os.pread

    def fails(source: int, length: int, start: int) -> bytes:
        if start >= 500:
            raise OSError(errno.EIO, "the disk is broken")
        return read(source, length, start)

    monkeypatch.setattr(os, "pread", fails)
    with pytest.raises(OSError, match="the disk is broken"):
        appended(tmp_path, 0, 1_000)


@pytest.mark.usefixtures("no_kernel_copies")
def test_nothing_follows_the_place_where_a_file_was_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read = os.pread

    def cut(source: int, length: int, start: int) -> bytes:
        # It has grown again when the next piece is read.
        return read(source, max(0, min(length, 250 - start)) if 200 <= start < 300 else length, start)

    monkeypatch.setattr(os, "pread", cut)
    assert appended(tmp_path, 0, 1_000) == (250, b"<" + _CONTENT[:250] + b">")


def test_reading_goes_on_after_a_short_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = tmp_path / "source"
    source.write_bytes(_CONTENT)
    read = os.pread
    monkeypatch.setattr(
        os, "pread", lambda descriptor, length, start: read(descriptor, min(length, 7), start)
    )
    with source.open("rb") as file:
        assert read_range(file.fileno(), 3, 50) == _CONTENT[3:53]
        assert read_range(file.fileno(), len(_CONTENT) - 10, 50) == _CONTENT[-10:]
        assert read_range(file.fileno(), 3, 0) == b""


@given(st.lists(st.integers(0, 40), max_size=60), st.integers(1, 90), st.integers(1, 7), st.booleans())
def test_pieces_are_written_in_their_order(
    sizes: list[int], written_at_once: int, pieces_at_once: int, as_views: bool
) -> None:
    pieces = [bytes([number % 256]) * size for number, size in enumerate(sizes)]
    write = os.writev

    def writes_few(descriptor: int, given_pieces: list[memoryview]) -> int:
        assert len(given_pieces) <= pieces_at_once
        return write(descriptor, [b"".join(given_pieces)[:written_at_once]])

    with pytest.MonkeyPatch.context() as patch, tempfile.TemporaryDirectory() as directory:
        patch.setattr(os, "writev", writes_few)
        patch.setattr(local_range, "_PIECES_AT_ONCE", pieces_at_once)
        path = Path(directory) / "new"
        with NewFile(os.open(path, os.O_WRONLY | os.O_CREAT)) as file:
            file.write(b"<")
            file.writelines(map(memoryview, pieces) if as_views else pieces)
            assert file.tell() == 1 + sum(sizes)
            file.write(b">")
        assert path.read_bytes() == b"<" + b"".join(pieces) + b">"


def test_more_pieces_than_the_system_takes_at_once(tmp_path: Path) -> None:
    pieces = [b"%d," % number for number in range(5_000)]
    with NewFile(os.open(tmp_path / "new", os.O_WRONLY | os.O_CREAT)) as file:
        file.writelines(pieces)
    assert (tmp_path / "new").read_bytes() == b"".join(pieces)


def test_memory_is_filled_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "source").write_bytes(_CONTENT)
    read = os.preadv
    monkeypatch.setattr(os, "preadv", lambda file, buffers, start: read(file, [buffers[0][:100]], start))
    target = bytearray(len(_CONTENT))
    with (tmp_path / "source").open("rb") as file:
        assert fill(file.fileno(), memoryview(target))
        assert target == _CONTENT
        # It was cut since its length was asked for.
        assert not fill(file.fileno(), memoryview(bytearray(len(_CONTENT) + 1)))
