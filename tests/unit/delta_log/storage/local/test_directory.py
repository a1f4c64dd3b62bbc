"""The way to a directory below a root: links are refused wherever they stand, and whenever they come."""

from __future__ import annotations

import os
import shutil
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from delta_log.errors import InvalidRequest, NotAFile, StorageError, SymbolicLinkRefused
from delta_log.storage.local.directory import DirectoryWalk
from delta_log.storage.local.local_storage import LocalStorage
from delta_log.storage.storage import KeySpan

SWAPS = 1_000
#: Kinds of calls that the test of swapped directories makes.
KINDS = 10


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A table's root; no call may touch ``outside`` beside it."""
    (tmp_path / "outside" / "below").mkdir(parents=True)
    for name in ("file", "other", "below/file", ".file.crc"):
        (tmp_path / "outside" / name).write_bytes(b"secret")
    (tmp_path / "table" / "real").mkdir(parents=True)
    (tmp_path / "table" / "real" / "file").write_bytes(b"ours")
    return tmp_path / "table"


def content_of(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in directory.rglob("*") if path.is_file()}


def open_descriptors() -> int:
    return len(os.listdir("/dev/fd"))


class TestWalk:
    def test_neighbours_share_the_way(self, root: Path) -> None:
        for key in ("a/b/c/x", "a/b/d/x", "e/x"):
            (root / key).parent.mkdir(parents=True)
            (root / key).touch()
        before = open_descriptors()
        with DirectoryWalk(str(root)) as walk:
            deep = walk.open("a/b/c")
            assert walk.open("a/b/c") == deep
            assert open_descriptors() == before + 4
            assert os.listdir(f"/dev/fd/{walk.open('a/b/d')}") == ["x"]
            assert open_descriptors() == before + 4
            assert os.listdir(f"/dev/fd/{walk.open('e')}") == ["x"]
            assert open_descriptors() == before + 2
            assert sorted(os.listdir(f"/dev/fd/{walk.open('')}")) == ["a", "e", "real"]
        assert open_descriptors() == before

    def test_it_goes_on_where_a_directory_is_missing(self, root: Path) -> None:
        with DirectoryWalk(str(root)) as walk:
            for absent in ("real/none/deeper", "none", "real/file", "real/file/deeper"):
                with pytest.raises((FileNotFoundError, NotADirectoryError)):
                    walk.open(absent)
                assert walk.status("real/file") is not None

    @pytest.mark.parametrize(
        "directory", ["..", "real/..", "real/../..", ".", "/real", "real/", "a//b", "/", "a\0b"]
    )
    def test_a_directory_that_is_not_normalised_is_not_there(self, root: Path, directory: str) -> None:
        with DirectoryWalk(str(root)) as walk:
            with pytest.raises(FileNotFoundError):
                walk.open(directory)
            for key in (f"{directory}/file", directory):
                assert walk.status(key) is None

    def test_a_link_is_refused_wherever_it_stands(self, root: Path) -> None:
        (root / "link").symlink_to(root.parent / "outside")
        (root / "real" / "inner").symlink_to("../real")
        with DirectoryWalk(str(root)) as walk:
            for directory, link in (("link", "link"), ("link/below", "link"), ("real/inner", "real/inner")):
                with pytest.raises(
                    SymbolicLinkRefused, match="Put the files in the place of the link"
                ) as caught:
                    walk.open(directory)
                assert caught.value.link == link
                assert caught.value.path == str(root / link)
                assert not caught.value.retryable

    def test_the_root_itself_may_be_reached_by_links(self, root: Path) -> None:
        (root.parent / "address").symlink_to("table")
        with DirectoryWalk(str(root.parent / "address")) as walk:
            assert os.listdir(f"/dev/fd/{walk.open('real')}") == ["file"]

    def test_the_right_to_list_is_not_needed_to_pass_through(self, root: Path) -> None:
        if not hasattr(os, "O_PATH"):
            pytest.skip("this system cannot tell the two rights apart")
        (root / "real").chmod(0o300)
        assert LocalStorage(str(root)).read("real/file") == b"ours"

    def test_a_pipe_is_no_file_and_blocks_no_reader(self, root: Path) -> None:
        os.mkfifo(root / "pipe")
        with DirectoryWalk(str(root)) as walk, pytest.raises(NotAFile, match="pipe is not a file"):
            walk.open_file("pipe")


LINKED: dict[str, Callable[[LocalStorage], Any]] = {
    "read": lambda s: s.read("link/file"),
    "read a part": lambda s: s.read("link/file", 1, 2),
    "read_many": lambda s: list(s.read_many(["real/file", "link/file"])),
    "open_read": lambda s: s.open_read("link/file"),
    "head": lambda s: s.head("link/file"),
    "head of an absent file": lambda s: s.head("link/none"),
    "head_many": lambda s: list(s.head_many(["real/file", "link/file"])),
    "list_from": lambda s: list(s.list_from("link")),
    "list_part": lambda s: list(s.list_part(KeySpan("link/", deep=True), lambda names: names)),
    "put": lambda s: s.put("link/file", b"new"),
    "put_if_absent": lambda s: s.put_if_absent("link/new", b"new"),
    "put_if_absent of what is there": lambda s: s.put_if_absent("link/file", b"new"),
    "put into a new directory": lambda s: s.put("link/new/file", b"new"),
    "open_write": lambda s: s.open_write("link/new").__enter__(),
    "delete": lambda s: s.delete(["link/file"]),
    "delete of an absent file": lambda s: s.delete(["link/none"]),
    "copy from": lambda s: s.copy("link/file", "real/copy"),
    "copy to": lambda s: s.copy("real/file", "link/copy"),
    "read a file that is a link": lambda s: s.read("real/link"),
    "open_read a file that is a link": lambda s: s.open_read("real/link"),
    "read a link in the root": lambda s: s.read("link"),
    "read a link in the root whole": lambda s: s.read_whole("link", memoryview(bytearray(4))),
    "head of a file that is a link": lambda s: s.head("real/link"),
    "put over a link": lambda s: s.put("real/link", b"new"),
    "put_if_absent over a link": lambda s: s.put_if_absent("real/link", b"new"),
    "delete a link": lambda s: s.delete(["real/link"]),
    "copy a link": lambda s: s.copy("real/link", "real/copy"),
    "copy over a link": lambda s: s.copy("real/file", "real/link"),
}


@pytest.mark.parametrize("call", LINKED.values(), ids=LINKED)
def test_no_call_follows_a_link(root: Path, call: Callable[[LocalStorage], Any]) -> None:
    outside = root.parent / "outside"
    (root / "link").symlink_to(outside)
    (root / "real" / "link").symlink_to(outside / "file")
    before, descriptors = content_of(root.parent), open_descriptors()
    with pytest.raises(SymbolicLinkRefused):
        call(LocalStorage(str(root)))
    assert content_of(root.parent) == before
    assert (root / "real" / "link").is_symlink()
    assert open_descriptors() == descriptors


def test_what_may_not_be_touched_is_told_by_no_size(root: Path) -> None:
    (root / "link").symlink_to(root.parent / "outside")
    (root / "real" / "link").symlink_to(root.parent / "outside" / "file")
    storage = LocalStorage(str(root))
    keys = ["link", "link/file", "link/below/file", "real/link", "real/file", "none/file", "real/link/x"]
    assert storage.sizes_and_times(keys)[0] == [None, None, None, None, 4, None, None]
    assert list(storage.symbolic_links(keys)) == [
        "link",
        "link",
        "link",
        "real/link",
        None,
        None,
        "real/link",
    ]
    assert storage.remove_dir("link") is storage.remove_dir("link/below") is False


def test_a_link_in_a_listing_is_refused_where_it_is_used(root: Path) -> None:
    """Passed over, a commit that other readers follow would look absent."""
    (root / "real" / "link").symlink_to(root.parent / "outside" / "file")
    storage = LocalStorage(str(root))
    assert [info.name for info in storage.list_from("real")] == ["file", "link"]
    with pytest.raises(SymbolicLinkRefused):
        storage.read("real/link")


@pytest.mark.parametrize(
    "key",
    ["..", "../outside/file", "real/../../outside/file", "/etc/passwd", "real//file", "real/", "", "a\0"],
)
def test_no_key_leads_out_of_the_root(root: Path, key: str) -> None:
    storage, before = LocalStorage(str(root)), content_of(root.parent)
    for write in (
        lambda: storage.put(key, b"new"),
        lambda: storage.put_if_absent(key, b"new"),
        lambda: storage.open_write(key).__enter__(),
        lambda: storage.delete([key]),
        lambda: storage.copy("real/file", key),
        lambda: storage.remove_dir(key),
    ):
        with pytest.raises(InvalidRequest, match="is not a key"):
            write()
    for read in (storage.read, storage.open_read):
        with pytest.raises(FileNotFoundError):
            read(key)
    assert storage.head(key) is None
    assert storage.copy(key, "real/copy") is False
    assert not key or list(storage.list_from(key)) == []
    assert content_of(root.parent) == before


@contextmanager
def swapping(directory: Path, outside: Path, calls: list[int]) -> Iterator[None]:
    """A directory is renamed and a link put into its place, and back, all the time.

    :param calls: the numbers of the calls that the test has made. Every hundredth link, and the first one, stays until so many
        more have been made that one of each kind has met it, however the machine lets the threads take turns.
    """
    done, hidden = threading.Event(), directory.with_name("hidden")

    def swap() -> None:
        links = 0
        while not done.is_set():
            directory.rename(hidden)
            with suppress(FileExistsError):  # a writer was faster and made it anew
                directory.symlink_to(outside)
                enough = len(calls) + KINDS + 1
                while links % 100 == 0 and len(calls) < enough and not done.wait(0.001):
                    pass
                links += 1
                directory.unlink()
            while hidden.exists():
                with suppress(OSError):
                    hidden.rename(directory)
                    break
                shutil.rmtree(directory, ignore_errors=True)

    swapper = threading.Thread(target=swap)
    swapper.start()
    try:
        yield
    finally:
        done.set()
        swapper.join()


def test_a_directory_that_is_swapped_for_a_link_leads_nowhere(root: Path) -> None:
    storage, outside = LocalStorage(str(root)), root.parent / "outside"
    before = content_of(outside)
    work: list[Callable[[int], Any]] = [
        lambda _: storage.delete(["real/file", "real/other", "real/below/file"]),
        lambda _: storage.put("real/other", b"ours"),
        lambda n: storage.put_if_absent(f"real/{n}", b"ours"),
        lambda _: storage.read("real/file"),
        lambda _: storage.open_read("real/file").read(),
        lambda _: b"".join(storage.read_many(["real/file", "real/other"])),
        lambda _: storage.copy("real/other", "real/below/copy"),
        lambda _: storage.remove_dir("real/below"),
        lambda _: [info.key for info in storage.list_from("real/below")],
        lambda _: [key for page in storage.list_tree(lambda names: names) for key in page.names()],
    ]
    assert len(work) == KINDS
    refused, calls = 0, list[int]()
    with swapping(root / "real", outside, calls):
        for number in range(SWAPS):
            calls.append(number)
            try:
                found = work[number % len(work)](number)
            except FileNotFoundError:
                continue
            except StorageError as error:
                # Others are of copies that were there, and of directories that were renamed at the wrong moment.
                refused += isinstance(error, SymbolicLinkRefused)
                continue
            assert found != b"secret"
            assert not isinstance(found, list) or not [key for key in found if key.startswith("outside")]
    assert content_of(outside) == before
    assert {path.name for path in outside.iterdir()} == {"file", "other", "below", ".file.crc"}
    assert refused >= KINDS // 2, "calls of several kinds meet a link that stays"
