"""Every store keeps the promises of the seam, on a real server of its kind."""

from __future__ import annotations

import json
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from tests.support.servers.azure import AzureServer
from tests.support.servers.gcs import GcsServer
from tests.support.servers.s3 import S3Server

from delta_log.errors import InvalidRequest, StorageError
from delta_log.storage.opening import open_storage
from delta_log.storage.storage import KeySpan, Storage
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

    def test_the_files_of_a_directory_are_listed_without_those_below_it(self, storage: Storage) -> None:
        names = ["a-", "a/1", "a/2", "a/zé", "a0", "b", "c.", "c/d/e", "c0", "z/1", "é", "é/1"]
        for name in names:
            storage.put(f"log/{name}", b"1")
        files = sorted(name for name in names if "/" not in name)
        for start in ("", "a", "a-", "a/", "a0", "a00", "b", "c", "d", "z", "{", "é", "éé"):
            listed = [info.name for info in storage.list_from("log", start)]
            assert listed == [name for name in files if name >= start]

    def test_a_marker_of_a_directory_is_no_file(self, storage: Any, s3_server: S3Server) -> None:
        for name in ("a", "z"):
            storage.put(f"log/{name}", b"1")
        for key in ("log/", "log/m/"):
            s3_server.put(f"{storage.bucket}/{storage.object_key(key)}", b"")
        assert [info.name for info in storage.list_from("log")] == ["a", "z"]
        pages = list(storage.list_part(KeySpan("log/", deep=True), lambda below: below))
        assert [key for page in pages for key in page.names() if not key.endswith("/")] == ["log/a", "log/z"]

    def test_an_object_whose_key_the_client_cannot_express_is_named(
        self, storage: Any, s3_server: S3Server
    ) -> None:
        key = "a\tb"
        s3_server.put(f"{storage.bucket}/{storage.object_key(key)}", b"1")
        with pytest.raises(StorageError, match="key that the client cannot express.*Rename or delete"):
            list(storage.list_tree(lambda below: below))
        assert storage.head("a\tb") is None
        with pytest.raises(InvalidRequest, match="control character"):
            storage.delete(["a\tb"])

    def test_several_large_objects_are_written_at_once_while_others_are_read(self, storage: Any) -> None:
        storage.part_bytes = 5 << 20
        storage.put("other", b"1")

        def write(number: int) -> None:
            with storage.open_write(f"new/{number}") as file:
                for _ in range(4):
                    file.write(bytes([number]) * (3 << 20))
                    assert storage.read("other") == b"1"

        with ThreadPoolExecutor(6) as pool:
            list(pool.map(write, range(6)))
        for number in range(6):
            assert storage.read(f"new/{number}") == bytes([number]) * (12 << 20)


_OPTIMIZES = """
import json, sys
from delta_maintenance.contract import JobSpec
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import SilentProgress
spec = JobSpec("optimize", sys.argv[1], "run", engine="local")
report = run_job(spec, JobSite(storage_options=json.loads(sys.argv[2])), SilentProgress())
clients = {"aiohttp", "asyncio", "boto3", "botocore", "fsspec"}
print(report.status, *sorted(clients.intersection(sys.modules)))
"""


def test_where_the_options_say_all_no_client_is_loaded_but_obstore(
    s3_server: S3Server, s3_bucket: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_CONFIG_FILE", "/no/such/file")
    table = f"s3://{s3_bucket}/t"
    for number in range(3):
        rows = pa.table({"n": range(10 * number, 10 * number + 10)})
        deltalake.write_deltalake(table, rows, mode="append", storage_options=s3_server.delta_rs_options)
    program = [sys.executable, "-c", _OPTIMIZES, table]
    done = subprocess.run(
        [*program, json.dumps(s3_server.storage_options)], capture_output=True, text=True, check=True
    )
    assert done.stdout.split() == ["committed"]
    found = deltalake.DeltaTable(table, storage_options=s3_server.delta_rs_options).to_pyarrow_table()
    assert sorted(found.column("n").to_pylist()) == list(range(30))


class TestGcsStorage(ServerContract):
    @pytest.fixture
    def storage(self, gcs_server: GcsServer, gcs_bucket: str) -> Storage:
        return self.opened(f"gs://{gcs_bucket}/table with space", gcs_server.storage_options)


class TestAzureStorage(ServerContract):
    @pytest.fixture
    def storage(self, azure_server: AzureServer, azure_container: str) -> Storage:
        return self.opened(f"abfss://{azure_container}/table with space", azure_server.storage_options)

    def test_variables_that_the_client_reads_by_itself_do_not_count(
        self, azure_server: AzureServer, azure_container: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        for name in (
            "TOKEN",
            "SAS_KEY",
            "ACCESS_KEY",
            "ENDPOINT",
            "USE_EMULATOR",
            "CLIENT_ID",
            "ACCOUNT_NAME",
        ):
            monkeypatch.setenv(f"AZURE_STORAGE_{name}", "true")
        for name in ("SKIP_SIGNATURE", "USE_AZURE_CLI", "USE_FABRIC_ENDPOINT", "CONTAINER_NAME", "PROXY_URL"):
            monkeypatch.setenv(f"AZURE_{name}", "true")
        storage = open_storage(f"abfss://{azure_container}/t", azure_server.storage_options)
        storage.put("a", b"1")
        assert storage.read("a") == b"1"

    def test_a_mark_of_a_directory_is_no_file(
        self, storage: Any, azure_server: AzureServer, azure_container: str
    ) -> None:
        """Hadoop's client leaves such marks, and so does a hierarchical namespace."""
        storage.put("log/a", b"1")
        for key in ("log", "log/m"):
            azure_server.put(azure_container, storage.object_key(key), b"", {"hdi_isfolder": "true"})
        assert storage.head("log") is None
        assert [info.name for info in storage.list_from("log")] == ["a"]
        assert list(storage.list_from("")) == []
        pages = list(storage.list_part(KeySpan("", deep=True), lambda below: below))
        assert [key for page in pages for key in page.names()] == ["log/a"]
