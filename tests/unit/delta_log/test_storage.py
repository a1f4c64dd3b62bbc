"""Every storage keeps the promises of the seam."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from delta_log.errors import InvalidRequest, StorageError
from delta_log.storage import LocalStorage, open_storage
from delta_log.testing import MemoryStorage, StorageContract


class TestMemoryStorage(StorageContract):
    @pytest.fixture
    def storage(self) -> MemoryStorage:
        return MemoryStorage()


class TestLocalStorage(StorageContract):
    @pytest.fixture
    def storage(self, tmp_path: Path) -> LocalStorage:
        return LocalStorage(str(tmp_path / "table with space"))

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
        with pytest.raises(StorageError, match="file/below") as caught:
            storage.put("file/below", b"")
        assert caught.value.path.endswith("file/below")


def test_file_uris_are_decoded(tmp_path: Path) -> None:
    storage = open_storage((tmp_path / "a b").as_uri())
    assert storage.uri == str(tmp_path / "a b")


def test_a_remote_store_reads_and_refuses_to_write() -> None:
    import fsspec

    fsspec.filesystem("memory").pipe_file("/remote/table/_delta_log/x", b"content")
    storage = open_storage("memory://remote/table")
    assert storage.read("_delta_log/x") == b"content"
    assert [info.name for info in storage.list_from("_delta_log")] == ["x"]
    for refuse in (storage.require_writable, lambda: storage.put_if_absent("y", b"")):
        with pytest.raises(InvalidRequest, match="can only be read"):
            refuse()


def test_an_unknown_scheme_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="nosuch://"):
        open_storage("nosuch://bucket/table")
