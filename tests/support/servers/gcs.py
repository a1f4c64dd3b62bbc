"""Google Cloud Storage: fake-gcs-server, which judges a precondition and creates the object under one lock.

It serves the JSON API; :mod:`~tests.support.servers.gcs_xml_api` in front of it serves the XML API as well.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote
from urllib.request import Request, urlopen

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

    @property
    def delta_rs_options(self) -> dict[str, str]:
        """Options for `deltalake`."""
        key = {
            "gcs_base_url": self.endpoint,
            "disable_oauth": True,
            "client_email": "",
            "private_key": "",
            "private_key_id": "",
        }
        return {"google_service_account_key": json.dumps(key)}

    def keys(self, bucket: str) -> list[str]:
        found = self._call("GET", f"storage/v1/b/{bucket}/o")
        return [item["name"] for item in found.get("items") or ()]

    def make_bucket(self) -> str:
        """Creates a bucket and returns its name."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self._call("POST", "storage/v1/b?project=tests", json.dumps({"name": name}).encode())
        return name

    def put(self, bucket: str, key: str, content: bytes) -> None:
        """Puts an object whose key a client may be unable to express."""
        self._call("POST", f"upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(key)}", content)

    def _call(self, method: str, path: str, body: bytes | None = None) -> Any:
        """Sends a request of the JSON API."""
        with urlopen(Request(f"{self.endpoint}/{path}", body, method=method)) as response:
            return json.load(response)


@contextmanager
def running_fake_gcs(program: list[str], directory: Path) -> Iterator[GcsServer]:
    command = [*program, "-backend", "memory", "-scheme", "http", "-host", "127.0.0.1", "-log-level", "warn"]
    with running(lambda port: [*command, "-port", str(port)], directory) as port:
        front = [sys.executable, str(Path(__file__).with_name("gcs_xml_api.py"))]
        xml_api = directory / "xml-api"
        xml_api.mkdir()
        with running(lambda own: [*front, str(own), f"127.0.0.1:{port}"], xml_api) as own:
            yield GcsServer(f"http://127.0.0.1:{own}")
