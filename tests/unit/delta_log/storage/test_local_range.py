"""Ranges of files on a disk: the same bytes, whoever copies them."""

from __future__ import annotations

import errno
import os
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_log.storage import local_range
from delta_log.storage.local_range import NewFile, append_range, fill, read_range

_CONTENT = bytes(range(251)) * 5


@pytest.fixture(autouse=True)
def small_pieces() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_range, "_PIECE_BYTES", 100)
        patch.setattr(local_range, "_LONG_BYTES", 300)
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


def on(mounts: str) -> Callable[..., None]:
    """Have the file system of a directory, or of a file, be another one, or none that is listed."""

    def change(patch: pytest.MonkeyPatch, directory: Path, file: Path | None = None) -> None:
        device = os.stat(file or directory).st_dev
        listed = directory / "mounts"
        listed.write_text(mounts.format(device=f"{os.major(device)}:{os.minor(device)}"))
        patch.setattr(local_range, "_MOUNTS", listed)
        local_range._is_plain.cache_clear()

    return change


_OTHER = "21 1 9999:1 / /other rw - ext4 /dev/vda rw\n"
_PLAIN = on(_OTHER + "22 1 {device} / /t rw,relatime shared:1 - tmpfs tmpfs rw\n")
_NETWORK = on("22 1 {device} / /t rw,relatime - nfs4 server:/x rw\n" + _OTHER)
_UNKNOWN = on(_OTHER)


@pytest.fixture(autouse=True)
def forget() -> Iterator[None]:
    yield
    local_range._is_plain.cache_clear()


@pytest.mark.parametrize("system", [_PLAIN, _NETWORK, _UNKNOWN])
def test_any_range_is_appended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, system: Callable[..., None]
) -> None:
    system(monkeypatch, tmp_path)

    @given(st.integers(0, len(_CONTENT) + 10), st.integers(0, len(_CONTENT) + 10))
    def check(start: int, length: int) -> None:
        expected = _CONTENT[start : start + length]
        assert appended(tmp_path, start, length) == (len(expected), b"<" + expected + b">")

    check()


@pytest.mark.parametrize(("system", "calls"), [(_PLAIN, 0), (_NETWORK, 1), (_UNKNOWN, 1)])
def test_a_plain_disk_reads_long_ranges_and_others_have_the_kernel_copy_them(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    system: Callable[..., None],
    calls: int,
) -> None:
    system(monkeypatch, tmp_path)
    made: list[int] = []
    copy = os.copy_file_range

    def record(*arguments: int) -> int:
        made.append(arguments[2])
        return copy(*arguments)

    monkeypatch.setattr(os, "copy_file_range", record)
    assert appended(tmp_path, 1, 800)[1][1:-1] == _CONTENT[1:801]
    assert made == [800] * calls
    made.clear()
    assert appended(tmp_path, 1, 299)[1][1:-1] == _CONTENT[1:300]
    assert made == [299]


@pytest.mark.parametrize("refusal", [errno.EXDEV, errno.ENOSYS, errno.EOPNOTSUPP])
def test_what_the_kernel_does_not_copy_is_read_and_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, refusal: int
) -> None:
    _UNKNOWN(monkeypatch, tmp_path)
    calls = iter([3])

    def refuse(source: int, target: int, count: int, offset: int) -> int:
        # The first call copies a part.
        for few in calls:
            return os.write(target, os.pread(source, few, offset))
        raise OSError(refusal, os.strerror(refusal))

    monkeypatch.setattr(os, "copy_file_range", refuse, raising=False)
    assert appended(tmp_path, 1, 700) == (700, b"<" + _CONTENT[1:701] + b">")


def test_a_system_without_a_list_of_file_systems(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_range, "_MOUNTS", tmp_path / "missing")
    local_range._is_plain.cache_clear()
    assert appended(tmp_path, 0, 400)[1][1:-1] == _CONTENT[:400]


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="no /dev/full here")
def test_a_full_disk_ends_the_copy_and_the_thread_that_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _PLAIN(monkeypatch, tmp_path, Path("/dev/full"))
    (tmp_path / "source").write_bytes(_CONTENT)
    before = threading.enumerate()
    with (tmp_path / "source").open("rb") as source, open("/dev/full", "wb", buffering=0) as full:
        assert local_range._is_plain(os.fstat(full.fileno()).st_dev)
        with pytest.raises(OSError, match="No space left"):
            append_range(full, source.fileno(), 0, 1_000)
    assert threading.enumerate() == before


def test_a_broken_disk_ends_the_copy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _PLAIN(monkeypatch, tmp_path)
    read = os.pread

    def fails(source: int, length: int, start: int) -> bytes:
        if start >= 500:
            raise OSError(errno.EIO, "the disk is broken")
        return read(source, length, start)

    monkeypatch.setattr(os, "pread", fails)
    with pytest.raises(OSError, match="the disk is broken"):
        appended(tmp_path, 0, 1_000)


def test_nothing_follows_the_place_where_a_file_was_cut(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _PLAIN(monkeypatch, tmp_path)
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
