"""Every store keeps the promises of the seam, on a real server of its kind."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

import pytest
from tests.support.servers.azure import AzureServer
from tests.support.servers.gcs import GcsServer
from tests.support.servers.s3 import S3Server

from delta_log.storage.opening import open_storage
from delta_log.storage.storage import Storage
from delta_log.testing import StorageContract


class ServerContract(StorageContract):
    options: dict[str, Any]

    def opened(self, uri: str, options: dict[str, Any]) -> Storage:
        self.options = options
        return open_storage(uri, options)

    def reopened(self, storage: Storage) -> Storage:
        return open_storage(storage.uri, self.options)

    def test_more_keys_than_one_request_takes_are_listed_and_deleted(self, storage: Storage) -> None:
        names = [f"{number:020d}.json" for number in range(1100)]
        with ThreadPoolExecutor(16) as pool:
            list(pool.map(lambda name: storage.put(f"log/{name}", b""), names))
        assert [info.name for info in storage.list_from("log")] == names
        assert [info.name for info in storage.list_from("log", names[1050])] == names[1050:]
        storage.delete(f"log/{name}" for name in names[:1090])
        assert [info.name for info in storage.list_from("log")] == names[1090:]


class TestS3Storage(ServerContract):
    @pytest.fixture
    def storage(self, s3_server: S3Server, s3_bucket: str) -> Storage:
        return self.opened(f"s3://{s3_bucket}/table with space", s3_server.storage_options)

    @pytest.mark.parametrize("seed", range(4))
    def test_bytes_of_other_objects_are_appended_whoever_copies_them(
        self, storage: Storage, seed: int
    ) -> None:
        random = Random(seed)
        sources = {f"day=ü 1%/{size}": random.randbytes(size) for size in (11 << 20, 5 << 20, (5 << 20) - 1)}
        for key, content in sources.items():
            storage.put(key, content)
        expected = bytearray()
        with storage.open_write("new") as file:
            for _ in range(5):
                if random.random() < 0.5:
                    data = random.randbytes(random.choice((1, 1 << 20, 9 << 20)))
                    file.write(data)
                    expected += data
                    continue
                key, start = random.choice(list(sources)), random.choice((0, 4, 1 << 20))
                length = len(sources[key]) - start - random.choice((0, 8))
                assert storage.read_into(file, key, start, length) == length
                expected += sources[key][start : start + length]
            assert file.tell() == len(expected)
        assert storage.read("new") == expected


class TestGcsStorage(ServerContract):
    @pytest.fixture
    def storage(self, gcs_server: GcsServer, gcs_bucket: str) -> Storage:
        return self.opened(f"gs://{gcs_bucket}/table with space", gcs_server.storage_options)


class TestAzureStorage(ServerContract):
    @pytest.fixture
    def storage(self, azure_server: AzureServer, azure_container: str) -> Storage:
        return self.opened(f"abfss://{azure_container}/table with space", azure_server.storage_options)
