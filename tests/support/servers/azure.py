"""Azure Blob Storage: Azurite, with its data in memory."""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.support.servers.process import running
from tests.support.servers.program import NodeProgram

#: The first that can start a listing within a directory, as delta-rs has it do.
AZURITE = NodeProgram("azurite", "3.37.0", "dist/src/azurite.js", as_of="2026-09-15")
#: Well known: every emulator has them.
_ACCOUNT = "devstoreaccount1"
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="


@dataclass(frozen=True)
class AzureServer:
    endpoint: str
    account: str = _ACCOUNT
    key: str = _KEY

    @property
    def connection_string(self) -> str:
        return (
            f"DefaultEndpointsProtocol={urlsplit(self.endpoint).scheme};"
            f"AccountName={self.account};AccountKey={self.key};"
            f"BlobEndpoint={self.endpoint}/{self.account};"
        )

    @property
    def storage_options(self) -> dict[str, Any]:
        """Options for `open_storage`, `Table` and the command line."""
        return {"account_name": self.account, "connection_string": self.connection_string}

    @property
    def delta_rs_options(self) -> dict[str, str]:
        """Options for `deltalake`."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": self.account,
            "AZURE_STORAGE_ACCOUNT_KEY": self.key,
            "AZURE_STORAGE_ENDPOINT": f"{self.endpoint}/{self.account}",
            "ALLOW_HTTP": "true",
        }

    def sas_token(self, container: str, letters: str = "rwdl", minutes: int = 60) -> str:
        """Returns a token that may do what its letters say in a container, for some minutes from now."""
        from azure.storage.blob import ContainerSasPermissions, generate_container_sas

        return generate_container_sas(
            self.account,
            container,
            account_key=self.key,
            permission=ContainerSasPermissions.from_string(letters),
            expiry=datetime.now(timezone.utc) + timedelta(minutes=minutes),
        )

    def make_container(self) -> str:
        """Creates a container and returns its name."""
        from azure.storage.blob import BlobServiceClient

        name = f"container-{uuid.uuid4().hex[:12]}"
        with BlobServiceClient.from_connection_string(self.connection_string) as client:
            client.create_container(name)
        return name

    def put(self, container: str, key: str, data: bytes, metadata: Mapping[str, str] | None = None) -> None:
        """Writes a blob, with any key."""
        from azure.storage.blob import BlobServiceClient

        with BlobServiceClient.from_connection_string(self.connection_string) as client:
            client.get_blob_client(container, key).upload_blob(data, metadata=dict(metadata or {}))


@contextmanager
def running_azurite(program: list[str], directory: Path, scheme: str = "http") -> Iterator[AzureServer]:
    command = [*program, "--silent", "--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck"]
    ports = ["--blobHost", "127.0.0.1", "--queuePort", "0", "--tablePort", "0", "--blobPort"]
    with running(lambda port: [*command, *ports, str(port)], directory) as port:
        yield AzureServer(f"{scheme}://127.0.0.1:{port}")
