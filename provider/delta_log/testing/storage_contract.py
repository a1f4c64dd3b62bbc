"""The tests that every storage has to pass."""

from __future__ import annotations

import io
import random
import threading
from collections.abc import Callable, Container, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path

from delta_log.errors import InvalidRequest, StorageError, SymbolicLinkRefused
from delta_log.storage.storage import FileInfo, KeySpan, Storage
from delta_log.testing.faulty_storage import Fault


class StorageContract:
    """Tests the promises of :mod:`delta_log.storage.storage`.

    A subclass gives a ``storage`` fixture, which returns an empty store.

    :cvar race_rounds: how many keys the racing writers race for.
    :cvar large_bytes: of a content that is put in parts, where the store has them.
    """

    race_rounds = 20
    large_bytes = 12 << 20

    def reopened(self, storage: Storage) -> Storage:
        """Return the same store as another process would open it."""
        return storage

    def in_small_parts(self, storage: Storage) -> Storage:
        """Make a large content consist of several parts; no store takes parts below 5 MiB."""
        storage.require_writable()
        if hasattr(storage, "part_bytes"):
            storage.part_bytes = 5 << 20
        return storage

    def large(self, seed: int) -> bytes:
        return random.Random(seed).randbytes(self.large_bytes)  # noqa: S311

    # -- reading and overwriting -------------------------------------------------------------------------

    def test_what_is_put_is_read_back_whole_and_in_ranges(self, storage: Storage) -> None:
        storage.put("dir/a", b"0123456789")
        assert storage.read("dir/a") == b"0123456789"
        assert storage.read("dir/a", 3) == b"3456789"
        assert storage.read("dir/a", 3, 4) == b"3456"
        assert storage.read("dir/a", 8, 100) == b"89"

    def test_nothing_is_read_beyond_the_end(self, storage: Storage) -> None:
        storage.put("a", b"0123456789")
        assert storage.read("a", 10) == b""
        assert storage.read("a", 11, 5) == b""
        assert storage.read("a", 4, 0) == b""

    def test_an_empty_file_is_a_file(self, storage: Storage) -> None:
        storage.put("dir/empty", b"")
        assert storage.put_if_absent("dir/empty2", b"") is True
        with storage.open_write("dir/empty3"):
            pass
        assert [(info.name, info.size) for info in storage.list_from("dir")] == [
            ("empty", 0),
            ("empty2", 0),
            ("empty3", 0),
        ]
        assert storage.read("dir/empty") == storage.read("dir/empty", 0, 5) == b""
        with storage.open_read("dir/empty") as file:
            assert file.read() == b""

    def test_a_file_is_read_by_seeking(self, storage: Storage) -> None:
        storage.put("dir/a", bytes(range(256)) * 1000)
        with storage.open_read("dir/a") as file:
            file.seek(0, io.SEEK_END)
            assert file.tell() == 256_000
            file.seek(255_999)
            assert file.read() == b"\xff"
            file.seek(256)
            assert file.read(3) == b"\x00\x01\x02"
            assert file.tell() == 259

    def test_an_open_file_never_mixes_two_contents(self, storage: Storage) -> None:
        storage.put("a", b"1" * self.large_bytes)
        with storage.open_read("a") as file:
            assert file.read(10) == b"1" * 10
            storage.put("a", b"2" * self.large_bytes)
            with suppress(StorageError):
                file.seek(0)
                assert file.read() == b"1" * self.large_bytes

    def test_several_keys_are_read_in_their_order(self, storage: Storage) -> None:
        keys = [f"many/{number}" for number in range(20)]
        for key in keys:
            storage.put(key, key.encode())
        assert list(storage.read_many(keys)) == [key.encode() for key in keys]
        assert list(storage.read_many([])) == []

    def test_a_missing_key_is_file_not_found(self, storage: Storage) -> None:
        assert storage.head("no/such") is None
        for read in (
            storage.read,
            partial(storage.read, start=3),
            partial(storage.read, length=0),
            storage.open_read,
            partial(storage.read_whole, target=memoryview(bytearray(1))),
        ):
            try:
                read("no/such")
            except FileNotFoundError:
                continue
            raise AssertionError(f"{read} did not raise FileNotFoundError")

    def test_put_overwrites_and_every_reader_sees_it_at_once(self, storage: Storage) -> None:
        other = self.reopened(storage)
        storage.put("dir/a", b"old and longer")
        assert other.read("dir/a") == b"old and longer"
        assert [info.size for info in other.list_from("dir")] == [14]
        storage.put("dir/a", b"new")
        assert other.read("dir/a") == b"new"
        assert [info.size for info in other.list_from("dir")] == [3]
        found = other.head("dir/a")
        assert found is not None
        assert found.size == 3
        storage.put("dir/b", b"")
        storage.delete(["dir/a"])
        assert [info.name for info in other.list_from("dir")] == ["b"]
        assert other.head("dir/a") is None

    def test_a_listing_and_a_single_look_tell_of_the_same_object(self, storage: Storage) -> None:
        storage.put("dir/a", b"first")
        (listed,) = storage.list_from("dir")
        looked = storage.head("dir/a")
        assert looked is not None
        assert listed.is_same_content(looked)
        storage.put("dir/a", b"other")
        looked = storage.head("dir/a")
        assert looked is not None
        # A disk's clock may tick too slowly to tell the two apart.
        assert (listed.tag is None) == (looked.tag is None)
        assert listed.tag is None or not listed.is_same_content(looked)

    def test_what_was_created_is_taken_back_unless_something_else_is_there(self, storage: Storage) -> None:
        for name, there in (("a", b"mine"), ("b", b"yours")):
            storage.put(f"dir/{name}", there)
            storage.take_back(f"dir/{name}", b"mine")
        storage.take_back("dir/absent", b"mine")
        assert [info.name for info in storage.list_from("dir")] == ["b"]

    def test_a_large_content_is_put_whole(self, storage: Storage) -> None:
        self.in_small_parts(storage)
        storage.put("large", b"small before")
        storage.put("large", self.large(1))
        assert storage.read("large") == self.large(1)

    # -- creating ----------------------------------------------------------------------------------------

    def test_put_if_absent_creates_once_and_leaves_the_first_content(self, storage: Storage) -> None:
        storage.require_writable()
        assert storage.put_if_absent("log/1", b"mine") is True
        assert storage.put_if_absent("log/1", b"yours") is False
        assert self.reopened(storage).put_if_absent("log/1", b"mine") is False
        assert storage.read("log/1") == b"mine"

    def test_of_many_racing_writers_exactly_one_wins_and_its_content_is_whole(self, storage: Storage) -> None:
        bodies = [bytes([65 + n]) * 50_000 for n in range(32)]
        # A client may keep fewer connections than there are writers.
        doors = [storage, *(self.reopened(storage) for _ in range(3))]
        with ThreadPoolExecutor(32) as pool:
            for round_ in range(self.race_rounds):
                key = f"log/{round_}"
                starting = threading.Barrier(32)

                def create(number: int, key: str = key, starting: threading.Barrier = starting) -> bool:
                    starting.wait()
                    return doors[number % 4].put_if_absent(key, bodies[number])

                outcomes = list(pool.map(create, range(32)))
                assert sum(outcomes) == 1
                assert storage.read(key) == bodies[outcomes.index(True)]

    def test_no_reader_sees_a_part_of_what_is_being_created(self, storage: Storage) -> None:
        body = self.large(2)
        self.in_small_parts(storage)
        done = threading.Event()
        seen: set[bytes] = set()

        def watch() -> None:
            while not done.is_set():
                with suppress(FileNotFoundError):
                    seen.add(storage.read("log/1"))

        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            assert storage.put_if_absent("log/1", body) is True
        finally:
            done.set()
            watcher.join()
        assert seen <= {body}

    def test_large_contents_race_like_small_ones(self, storage: Storage) -> None:
        self.in_small_parts(storage)
        bodies = [self.large(number) for number in range(4)]
        with ThreadPoolExecutor(4) as pool:
            outcomes = list(pool.map(partial(storage.put_if_absent, "log/1"), bodies))
        assert sum(outcomes) == 1
        assert storage.read("log/1") == bodies[outcomes.index(True)]
        assert storage.put_if_absent("log/1", bodies[0]) is False

    # -- listing -----------------------------------------------------------------------------------------

    def test_listing_is_sorted_starts_where_asked_and_shows_files_of_one_directory(
        self, storage: Storage
    ) -> None:
        for name in ("b", "a", "c.json", "_x", "sub/deep"):
            storage.put(f"log/{name}", name.encode())
        assert [info.name for info in storage.list_from("log")] == ["_x", "a", "b", "c.json"]
        assert [info.name for info in storage.list_from("log", "b")] == ["b", "c.json"]
        assert [(info.key, info.size) for info in storage.list_from("log/sub")] == [("log/sub/deep", 8)]
        assert list(storage.list_from("nowhere")) == []

    def test_a_listing_starts_at_a_name_whether_it_is_there_or_not(self, storage: Storage) -> None:
        names = ["0009.json", "0010.crc", "0010.json", "0010.json2", "0011.json"]
        for name in names:
            storage.put(f"log/{name}", b"")
        for start in [*names, "0", "0010", "0010.d", "0010.jso", "0011.jsoo", "z"]:
            found = [info.name for info in storage.list_from("log", start)]
            assert found == [name for name in names if name >= start]

    def test_a_listing_goes_on_over_the_end_of_a_page(self, storage: Storage) -> None:
        names = [f"{number:04}" for number in range(25)]
        for name in names:
            storage.put(f"log/{name}", b"")
            storage.put(f"log/sub{name}/deep", b"")
        assert [info.name for info in storage.list_from("log")] == names
        assert [info.name for info in storage.list_from("log", "0013")] == names[13:]
        assert [info.name for info in storage.list_from("log", "0025")] == []

    def test_the_root_is_a_directory_like_any_other(self, storage: Storage) -> None:
        storage.put("top", b"1")
        storage.put("dir/deep", b"2")
        assert [info.key for info in storage.list_from("")] == ["top"]

    def test_a_listing_says_what_head_says(self, storage: Storage) -> None:
        storage.put("log/1", b"12345")
        (listed,) = storage.list_from("log")
        assert storage.head("log/1") is not None
        assert (listed.key, listed.name, listed.size) == ("log/1", "1", 5)
        # HTTP headers leave out the milliseconds.
        assert abs(storage.head("log/1").modification_time_ms - listed.modification_time_ms) < 1000  # type: ignore[union-attr]

    def test_a_copy_is_a_file_of_its_own(self, storage: Storage) -> None:
        key = "dir/ü é+p=a%3Ab"
        storage.put(key, b"12345")
        storage.put("gone", b"")
        assert storage.copy(key, "new/er/copy") is True
        assert storage.copy(key, "new/er/copy") is True
        storage.delete([key, "gone"])
        assert storage.copy("gone", "new/copy") is False
        assert storage.head("new/copy") is None
        assert storage.read("new/er/copy") == b"12345"

    def test_no_temporary_file_is_left_and_none_is_listed(self, storage: Storage) -> None:
        storage.put_if_absent("log/1", b"x")
        storage.put_if_absent("log/1", b"y")
        storage.put("log/2", b"z")
        assert [info.name for info in storage.list_from("log")] == ["1", "2"]

    # -- listing a tree ----------------------------------------------------------------------------------

    def tree(self, storage: Storage, refused: Container[str] = ()) -> dict[str, FileInfo]:
        """Return every file below the root, checked against :meth:`Storage.head_many`."""
        found: dict[str, FileInfo] = {}
        for page in storage.list_tree(lambda keys: [key for key in keys if key not in refused]):
            told = [None] * len(page.keys) if page.sizes is None else list(page.sizes)
            for info, size in zip(storage.head_many(page.names()), told, strict=True):
                assert info is not None
                assert size in (None, info.size)
                assert info.key not in found, f"{info.key} was listed twice"
                found[info.key] = info
        return found

    def test_a_tree_is_listed_whole_and_each_file_once(self, storage: Storage) -> None:
        assert self.tree(storage) == {}
        keys = ["top", "a/b/c/d/e", "a/b.c", "a/b0", "a-b/x", "a0", "\u65e5=1/b", "p=a%3Ab/ü é"]
        keys += [f"p={number:02}/q={number % 3}/{name}" for number in range(40) for name in ("x", "y", "z")]
        keys += [f"p={number:02}-beside" for number in range(40)] + [f"deep/{number}" for number in range(20)]
        for key in keys:
            storage.put(key, key.encode())
        found = self.tree(storage)
        assert sorted(found) == sorted(keys)
        assert all(info.size == len(key.encode()) for key, info in found.items())

    def part(self, storage: Storage, span: KeySpan, met: list[str] | None = None) -> list[str]:
        """Return the keys of a part; the directories of a shallow part go to ``met``."""

        def enter(directories: Sequence[str]) -> Sequence[str]:
            (met if met is not None else []).extend(directories)
            return directories

        return sorted(key for page in storage.list_part(span, enter) for key in page.names())

    def test_parts_of_a_tree_make_up_the_tree(self, storage: Storage) -> None:
        keys = ["top", "p", "a/b/c/d", "a/b.c", "a-b/x", "p=a%3Ab/\u00fc \u00e9"]
        keys += [f"p={number:02}/q={number % 3}/{name}" for number in range(20) for name in ("x", "y")]
        keys += [f"flat/{number:02}" for number in range(30)] + ["flat/10a/x", "flat/99/x"]
        for key in keys:
            storage.put(key, b"")
        directories: list[str] = []
        found = self.part(storage, KeySpan(""), directories)
        assert found == ["p", "top"]
        assert sorted(directories) == sorted({key.partition("/")[0] for key in keys if "/" in key})
        for directory in directories:
            found += self.part(storage, KeySpan(f"{directory}/", deep=True))
        assert sorted(found) == sorted(keys)
        assert (
            self.part(storage, KeySpan("absent/")) == self.part(storage, KeySpan("absent/", deep=True)) == []
        )
        if not storage.has_key_ranges:
            return
        shallow: list[str] = []
        below: list[str] = []
        deep: list[str] = []
        for start, end in (("", "flat/0z"), ("flat/0z", "flat/200"), ("flat/200", None)):
            shallow += self.part(storage, KeySpan("flat/", False, start, end), below)
        assert shallow == [f"flat/{number:02}" for number in range(30)]
        assert below == ["flat/10a", "flat/99"]
        for start, end in (("p=00/", "p=07/q=1/w"), ("p=07/q=1/w", "p=07/q=1/xx"), ("p=07/q=1/xx", "p=190")):
            deep += self.part(storage, KeySpan("", True, start, end))
        assert deep == sorted(key for key in keys if key.startswith(("p=0", "p=1")))

    def test_the_directories_of_one_level_are_listed_without_what_is_below(self, storage: Storage) -> None:
        for key in ("top", "a/b/c/d", "a/x", "a-b/x", "_hidden/x", "p=a%3Ab/\u00fc/\u00e9"):
            storage.put(key, b"")
        assert storage.list_directories("") == ["_hidden", "a", "a-b", "p=a%3Ab"]
        assert storage.list_directories("a") == ["a/b"]
        assert storage.list_directories("p=a%3Ab") == ["p=a%3Ab/\u00fc"]
        assert storage.list_directories("a/b/c") == storage.list_directories("absent") == []

    def test_a_directory_that_is_not_entered_is_not_listed(self, storage: Storage) -> None:
        for number in range(60):
            storage.put(f"p={number:02}/x", b"")
            storage.put(f"p={number:02}0/x", b"")
        refused = {f"p={number:02}" for number in range(0, 60, 3)}
        expected = {f"p={number:02}/x" for number in range(60) if number % 3} | {
            f"p={number:02}0/x" for number in range(60)
        }
        assert set(self.tree(storage, refused)) == expected

    def test_several_files_are_looked_at_in_their_order(self, storage: Storage) -> None:
        for number in range(20):
            storage.put(f"many/{number}", b"x" * number)
        keys = [f"many/{number}" for number in (3, 19, 7)]
        found = list(storage.head_many([*keys, "many/none"]))
        assert [info and (info.key, info.size) for info in found] == [
            ("many/3", 3), ("many/19", 19), ("many/7", 7), None,
        ]  # fmt: skip
        assert list(storage.head_many([])) == []
        sizes, times = storage.sizes_and_times([*keys, "many/none"])
        assert sizes == [3, 19, 7, None]
        assert times == [info and info.modification_time_ms for info in found]

    # -- new files ---------------------------------------------------------------------------------------

    def test_a_new_file_is_written_in_pieces(self, storage: Storage) -> None:
        with storage.open_write("part/data") as file:
            file.write(b"one")
            file.write(b"two")
            assert file.tell() == 6
        assert storage.read("part/data") == b"onetwo"
        info = storage.head("part/data")
        assert info is not None
        assert (info.key, info.name, info.size) == ("part/data", "data", 6)

    def test_a_large_new_file_is_whole_however_it_is_cut(self, storage: Storage) -> None:
        self.in_small_parts(storage)
        body = self.large(3)
        for cut in (len(body), 5 << 20, 1_000_003):
            with storage.open_write(f"part/{cut}") as file:
                for start in range(0, len(body), cut):
                    file.write(body[start : start + cut])
            assert storage.read(f"part/{cut}") == body

    def test_a_file_is_read_into_memory_of_its_length(self, storage: Storage) -> None:
        content = self.large(1)
        storage.put("dir/file", content)
        target = bytearray(len(content))
        assert storage.read_whole("dir/file", memoryview(target))
        assert target == content
        for length in (0, len(content) - 1, len(content) + 1):
            assert not storage.read_whole("dir/file", memoryview(bytearray(length)))

    def test_bytes_of_other_files_are_appended(self, storage: Storage) -> None:
        storage = self.in_small_parts(storage)
        large = self.large(1)
        storage.put("large", large)
        storage.put("small", b"0123456789")
        with storage.open_write("new") as file:
            file.write(b"head")
            assert storage.read_into(file, "small", 3, 4) == 4
            file.write(b"|")
            assert storage.read_into(file, "large", 100, len(large) - 300) == len(large) - 300
            assert storage.read_into(file, "small", 8, 100) == 2
            assert storage.read_into(file, "small", 10, 5) == 0
            assert storage.read_into(file, "small", 0, 0) == 0
            file.write(b"tail")
        assert storage.read("new") == b"head3456|" + large[100:-200] + b"89tail"

    def test_bytes_of_a_missing_file_are_not_found(self, storage: Storage) -> None:
        with suppress(FileNotFoundError), storage.open_write("new") as file:
            storage.read_into(file, "absent", 0, 5)
            raise AssertionError("a missing file was read")
        assert storage.head("new") is None

    def test_a_failed_write_leaves_nothing(self, storage: Storage) -> None:
        self.in_small_parts(storage)
        for size in (4, self.large_bytes):
            try:
                with storage.open_write("part/data") as file:
                    file.write(b"x" * size)
                    raise Fault
            except Fault:
                pass
            assert storage.head("part/data") is None
            assert list(storage.list_from("part")) == []

    # -- deleting ----------------------------------------------------------------------------------------

    def test_delete_tolerates_absent_keys(self, storage: Storage) -> None:
        storage.put("a", b"1")
        storage.put("b", b"2")
        storage.delete(["a", "never", "no/such/dir", "b"])
        storage.delete([])
        assert storage.head("a") is None
        assert storage.head("b") is None

    def test_many_keys_are_deleted_and_no_others(self, storage: Storage) -> None:
        keys = [f"data/{number}" for number in range(50)]
        for key in keys:
            storage.put(key, b"")
        storage.delete(key for key in keys if not key.endswith("7"))
        assert [info.name for info in storage.list_from("data")] == ["17", "27", "37", "47", "7"]

    def test_a_removed_directory_is_there_again_when_it_is_written_to(self, storage: Storage) -> None:
        storage.put("dir/sub/a", b"1")
        storage.remove_dir("dir/sub")
        assert storage.read("dir/sub/a") == b"1"
        storage.delete(["dir/sub/a"])
        storage.remove_dir("dir/sub")
        storage.remove_dir("never")
        assert storage.put_if_absent("dir/sub/a", b"2") is True
        assert storage.read("dir/sub/a") == b"2"

    # -- keys --------------------------------------------------------------------------------------------

    def test_keys_with_odd_characters_are_taken_literally(self, storage: Storage) -> None:
        names = (
            "a b%20d",
            "p=a%3Ab",
            "ü é.parquet",
            "\u65e5\u672c\U0001f600",
            "a#b?c=1&d",
            "a+b",
            "x[0-9]*{y}",
            "quote'\"",
            "c:d;e,f",
        )
        for name in names:
            storage.put(f"odd dir=%25#?/{name}", name.encode())
        for name in names:
            key = f"odd dir=%25#?/{name}"
            assert storage.read(key) == storage.read(key, 0, 100) == name.encode()
            assert storage.head(key) is not None
            assert storage.put_if_absent(key, b"other") is False
        assert [info.name for info in storage.list_from("odd dir=%25#?")] == sorted(names, key=str.encode)
        storage.delete(f"odd dir=%25#?/{name}" for name in names[1:])
        assert [info.name for info in storage.list_from("odd dir=%25#?")] == [names[0]]

    def test_a_key_that_is_not_normalised_is_never_written_or_deleted(self, storage: Storage) -> None:
        storage.put("dir/file", b"content")
        for key in (
            "",
            "/dir/file",
            "dir//file",
            "dir/file/",
            "./dir/file",
            "dir/./file",
            "dir/../dir/file",
            "..",
            "../file",
            "dir/\0",
        ):
            writes: tuple[Callable[[], object], ...] = (
                partial(storage.put, key, b"other"),
                partial(storage.put_if_absent, key, b"other"),
                partial(self._write, storage, key),
                partial(storage.delete, [key]),
                partial(storage.copy, "dir/file", key),
                partial(storage.remove_dir, key),
            )
            for write in writes:
                try:
                    write()
                except InvalidRequest:
                    continue
                raise AssertionError(f"{write} did not refuse {key!r}")
        assert storage.read("dir/file") == b"content"
        assert [info.key for info in storage.list_from("dir")] == ["dir/file"]
        assert list(storage.list_from("")) == []

    @staticmethod
    def _write(storage: Storage, key: str) -> None:
        with storage.open_write(key) as file:
            file.write(b"other")

    # -- symbolic links ----------------------------------------------------------------------------------

    def test_no_symbolic_link_below_the_root_is_followed(self, storage: Storage, tmp_path: Path) -> None:
        if not storage.has_directories:
            return
        outside = tmp_path / "outside of the root"
        outside.mkdir()
        (outside / "file").write_bytes(b"theirs")
        storage.put("dir/file", b"ours")
        root = Path(storage.uri)
        (root / "link").symlink_to(outside)
        (root / "dir" / "link").symlink_to(outside / "file")
        for key in ("link/file", "link/new", "dir/link"):
            calls: tuple[Callable[[], object], ...] = (
                partial(storage.read, key),
                partial(storage.open_read, key),
                partial(storage.head, key),
                lambda key=key: list(storage.head_many(["dir/file", key])),  # type: ignore[misc]
                partial(storage.put, key, b"other"),
                partial(storage.put_if_absent, key, b"other"),
                partial(storage.delete, [key]),
                partial(storage.copy, key, "dir/copy"),
                partial(storage.copy, "dir/file", key),
            )
            for call in calls:
                try:
                    call()
                except SymbolicLinkRefused:
                    continue
                raise AssertionError(f"{call} did not refuse {key}")
            assert storage.sizes_and_times([key]) == ([None], [None])
        assert list(storage.symbolic_links(["dir/file", "dir/link", "link/x", "no"])) == [
            None,
            "dir/link",
            "link",
            None,
        ]
        assert storage.remove_dir("link") is False
        others = {name for page in storage.list_tree(lambda names: names) for name in page.others}
        assert others == {"link", "dir/link"}
        assert [path.name for path in outside.iterdir()] == ["file"]
        assert (outside / "file").read_bytes() == b"theirs"
        assert storage.head("dir/copy") is None
