"""Every storage keeps the promises of the seam; those of object stores are tested on servers, in integration."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import Any

import pytest

from delta_log.errors import InvalidRequest, StorageError
from delta_log.storage.local import local_storage
from delta_log.storage.local.local_storage import LocalStorage, local_failure
from delta_log.storage.opening import open_storage
from delta_log.storage.storage import Storage
from delta_log.testing import MemoryStorage, StorageContract


class TestMemoryStorage(StorageContract):
    @pytest.fixture
    def storage(self) -> MemoryStorage:
        return MemoryStorage()


class TestLocalStorage(StorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> LocalStorage:
        return LocalStorage(str(tmp_path / "table with space"))

    def reopened(self, storage: Storage) -> Storage:
        return open_storage(storage.uri)

    def test_put_removes_the_checksum_that_hadoop_left_beside_the_file(self, storage: LocalStorage) -> None:
        storage.put("log/_last_checkpoint", b"old")
        storage.put("log/._last_checkpoint.crc", b"stale")
        storage.put("log/_last_checkpoint", b"new")
        assert storage.head("log/._last_checkpoint.crc") is None

    def test_a_directory_is_no_file(self, storage: LocalStorage) -> None:
        storage.put("dir/file", b"")
        assert storage.head("dir") is None

    def test_remove_dir_takes_empty_ones_only(self, storage: LocalStorage) -> None:
        storage.put("dir/file", b"")
        storage.remove_dir("dir")
        assert storage.head("dir/file") is not None
        storage.delete(["dir/file"])
        storage.remove_dir("dir")
        assert not os.path.exists(os.path.join(storage.root, "dir"))

    def test_an_error_of_the_file_system_names_the_file(self, storage: LocalStorage) -> None:
        storage.put("file", b"")
        for write in (storage.put, storage.put_if_absent, lambda key, _: storage.open_write(key).__enter__()):
            with pytest.raises(StorageError, match="file/below") as caught:
                write("file/below", b"")
            assert caught.value.path.endswith("file/below")

    def test_many_files_are_looked_at_as_one_by_one(self, storage: LocalStorage) -> None:
        storage.put("many/new", b"new")
        for name, time_ns in (("old", -1_500_000_001), ("odd", -1), ("late", 13 * 10**18)):
            storage.put(f"many/{name}", name.encode())
            os.utime(storage._path(f"many/{name}"), ns=(0, time_ns))
        os.mkdir(storage._path("many/directory"))
        keys = ["many/new", "many/old", "many/directory", "many/none", "many/old/below"]
        one_by_one = storage.sizes_and_times(keys)
        for key in ("many/new", "many/odd", "many/late"):
            info = storage.head(key)
            assert info is not None
            assert storage.sizes_and_times([key]) == ([info.size], [info.modification_time_ms])
        assert one_by_one[0] == [3, 3, None, None, None]
        assert one_by_one[1][1] == -1_501
        os.symlink("old", storage._path("many/link"))
        assert storage.sizes_and_times(["many/link"]) == ([None], [None])
        with pytest.raises(StorageError, match="n{300}"):
            storage.sizes_and_times([*keys, f"many/{'n' * 300}"])

    def test_what_lies_below_a_file_is_absent(self, storage: LocalStorage) -> None:
        storage.put("file", b"")
        storage.delete(["file/below"])
        assert storage.head("file/below") is None
        assert list(storage.list_from("file")) == []
        with pytest.raises(FileNotFoundError):
            storage.read("file/below")

    def test_a_new_file_takes_no_name_that_is_there(self, storage: LocalStorage) -> None:
        storage.put("data", b"theirs")
        with pytest.raises(StorageError, match="data: File exists"), storage.open_write("data"):
            pass
        assert storage.read("data") == b"theirs"

    def test_what_is_missing_in_the_block_of_a_new_file_keeps_its_name(self, storage: LocalStorage) -> None:
        with pytest.raises(FileNotFoundError, match="source"), storage.open_write("data") as file:
            file.write(storage.read("source"))
        assert storage.head("data") is None

    def test_a_full_disk_leaves_nothing_of_a_new_file(
        self, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(os, "fsync", failing(errno.ENOSPC))
        with pytest.raises(StorageError, match="No space left"), storage.open_write("dir/data") as file:
            file.write(b"content")
        for put in (storage.put, storage.put_if_absent):
            with pytest.raises(StorageError, match="No space left"):
                put("dir/data", b"content")
        assert os.listdir(os.path.join(storage.root, "dir")) == []

    def test_files_and_every_directory_on_the_way_to_them_are_made_durable(
        self, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        synced: list[str] = []
        fsync = os.fsync

        def record(descriptor: int) -> None:
            fsync(descriptor)
            synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))

        monkeypatch.setattr(os, "fsync", record)
        root = storage.root
        assert storage.put_if_absent("a/b/1", b"x")
        above = [os.path.dirname(root), root, f"{root}/a"]
        assert synced[:3] == above
        assert synced[3].startswith(f"{root}/a/b/.1.")
        assert synced[4:] == [f"{root}/a/b"]
        synced.clear()
        with storage.open_write("a/b/2") as file:
            file.write(b"x")
        assert synced == [f"{root}/a/b/2", f"{root}/a/b"]

    def test_a_repeated_link_that_was_refused_because_of_itself_is_ours(
        self, storage: LocalStorage, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        link = os.link

        def answer_lost(source: str, target: str, **where: Any) -> None:
            link(source, target, **where)
            raise FileExistsError(errno.EEXIST, "File exists", source, None, target)

        monkeypatch.setattr(os, "link", answer_lost)
        assert storage.put_if_absent("1", b"ours") is True
        monkeypatch.undo()
        assert storage.put_if_absent("1", b"theirs") is False


def failing(number: int) -> Any:
    def fail(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    return fail


@pytest.mark.parametrize("number", [errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS])
def test_a_file_system_without_hard_links_is_refused_and_nothing_is_left_there(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    monkeypatch.setattr(os, "link", failing(number))
    monkeypatch.setattr(local_storage, "_proved", set())
    storage = LocalStorage(str(tmp_path))
    for refuse in (storage.require_writable, lambda: storage.put_if_absent("log/1", b"x")):
        with pytest.raises(InvalidRequest, match="without hard links.*Nothing was written"):
            refuse()
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


def test_a_file_system_is_tried_out_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(local_storage, "_proved", set())
    LocalStorage(str(tmp_path / "not" / "made" / "yet")).require_writable()
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    LocalStorage(str(tmp_path / "other")).require_writable()
    assert list(tmp_path.iterdir()) == []


def test_file_uris_are_decoded(tmp_path: Path) -> None:
    storage = open_storage((tmp_path / "a b").as_uri())
    assert storage.uri == str(tmp_path / "a b")


def test_any_other_store_of_fsspec_can_be_read() -> None:
    import fsspec

    fsspec.filesystem("memory").pipe_file("/remote/table/_delta_log/x", b"content")
    storage = open_storage("memory://remote/table")
    assert storage.read("_delta_log/x") == b"content"
    assert storage.read("_delta_log/x", 3, 2) == b"te"
    assert storage.read("_delta_log/x", 3, 0) == b""
    assert [info.name for info in storage.list_from("_delta_log")] == ["x"]
    with storage.open_read("_delta_log/x") as file:
        assert file.seek(-4, os.SEEK_END) == 3
        assert file.read() == b"tent"
    for read in (storage.read, storage.open_read):
        with pytest.raises(FileNotFoundError, match="memory://remote/table/nothing"):
            read("nothing")


@pytest.mark.parametrize(
    ("uri", "why"),
    [
        ("memory://remote/table", "no operation that is known to create a file whole"),
        ("http://127.0.0.1:9/table", "HTTP servers have no writes"),
        ("webhdfs://127.0.0.1:9/table", "rename is not known to refuse"),
    ],
)
def test_a_store_without_put_if_absent_refuses_every_write_and_says_why(uri: str, why: str) -> None:
    storage = open_storage(uri)
    for refuse in (
        storage.require_writable,
        lambda: storage.put("y", b""),
        lambda: storage.put_if_absent("y", b""),
        lambda: storage.open_write("y"),
        lambda: storage.delete(["y"]),
    ):
        with pytest.raises(InvalidRequest, match=f"{why}.*Nothing was written.*Keep the table on S3"):
            refuse()


@pytest.mark.parametrize("uri", ["nosuch://bucket/table", "abfss://container/table"])
def test_an_address_that_cannot_be_opened_is_refused_by_name(
    uri: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AZURE_STORAGE_ACCOUNT_NAME", "AZURE_STORAGE_CONNECTION_STRING"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(InvalidRequest, match=uri):
        open_storage(uri)


def test_a_directory_bucket_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="general purpose bucket"):
        open_storage("s3://lake--use1-az4--x-s3/table", {"anon": True})


@pytest.mark.parametrize("token", ['{"private_key": "sesame"', "/no/such/key.json"])
def test_what_is_neither_a_key_of_google_nor_a_file_is_not_sent_to_be_checked(token: str) -> None:
    with pytest.raises(InvalidRequest, match="storage option 'token'") as caught:
        open_storage("gs://bucket/table", {"token": token})
    assert "sesame" not in str(caught.value)


def test_an_error_that_holds_an_option_is_not_shown() -> None:
    import fsspec

    class Careless(fsspec.AbstractFileSystem):  # type: ignore[misc]
        protocol = "careless"

        def __init__(self, **options: Any) -> None:
            raise ConnectionError(f"GET https://example.com/check?token={options['token'].replace(' ', '+')}")

    fsspec.register_implementation("careless", Careless, clobber=True)
    with pytest.raises(InvalidRequest, match=r"cannot be opened \(ConnectionError\)") as caught:
        open_storage("careless://host/table", {"token": "open sesame"})
    assert "sesame" not in "".join(map(str, (caught.value, caught.value.__cause__)))


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "what the run had finished stays below _maintenance"),
        (errno.EDQUOT, "Free some space"),
        (errno.EMLINK, "the disk is not full"),
        (errno.ENAMETOOLONG, "Another try fails likewise"),
        (errno.EMFILE, "ulimit -n"),
        (errno.EIO, "look at the path and the disk"),
    ],
)
def test_an_error_of_a_system_call_says_what_to_do(number: int, words: str) -> None:
    assert words in str(local_failure(OSError(number, os.strerror(number)), "/lake/t/a.parquet"))
