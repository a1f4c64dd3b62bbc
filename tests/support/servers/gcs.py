"""Google Cloud Storage: fake-gcs-server, which judges a precondition and creates the object under one lock."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.support.servers.process import running
from tests.support.servers.program import GoProgram

FAKE_GCS = GoProgram("fake-gcs-server", "github.com/fsouza/fake-gcs-server", "v1.56.1")


@dataclass(frozen=True)
class GcsServer:
    endpoint: str

    @property
    def storage_options(self) -> dict[str, Any]:
        """Options for `open_storage`, `Table` and the command line."""
        return {"token": "anon", "endpoint_url": self.endpoint, "project": "tests"}

    def file_system(self) -> Any:
        """Opens a `gcsfs.GCSFileSystem`, which reaches the objects without the storage under test."""
        import gcsfs

        return gcsfs.GCSFileSystem(**self.storage_options, skip_instance_cache=True, use_listings_cache=False)

    def keys(self, bucket: str) -> list[str]:
        """Lists a bucket over HTTP: gcsfs would first ask a service that the emulator does not have."""
        found = self.file_system().call("GET", "b/{}/o", bucket, json_out=True)
        return [item["name"] for item in found.get("items", ())]

    def make_bucket(self) -> str:
        """Creates a bucket and returns its name."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.file_system().call("POST", "b/", json={"name": name}, project="tests")
        return name


@contextmanager
def running_fake_gcs(program: list[str], directory: Path) -> Iterator[GcsServer]:
    command = [*program, "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-log-level", "warn"]
    with running(lambda port: [*command, "-port", str(port)], directory) as port:
        yield GcsServer(f"http://127.0.0.1:{port}")
