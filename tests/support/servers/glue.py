"""The Glue catalog of moto, in a thread of the test process. It accepts any credentials, until it is told to look at them."""

from __future__ import annotations

import json
import urllib.request
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

REGION = "eu-central-1"
DELTA = {"table_type": "DELTA", "EXTERNAL": "TRUE"}


@dataclass(frozen=True, slots=True)
class GlueServer:
    """A running catalog, and a database in it."""

    endpoint_url: str
    database: str = "sales"

    @property
    def storage_options(self) -> dict[str, Any]:
        return {
            "key": "AKIATESTSTESTSTESTS",
            "secret": "tests-secret",
            "glue": {"region": REGION, "endpoint_url": self.endpoint_url},
        }

    @property
    def connection(self) -> str:
        """An ``aws`` connection, as Airflow's environment has it."""
        extra = {"region_name": REGION, "service_config": {"glue": {"endpoint_url": self.endpoint_url}}}
        return json.dumps(
            {"conn_type": "aws", "login": "AKIATESTSTESTSTESTS", "password": "tests-secret", "extra": extra}
        )

    @cache  # noqa: B019 - a client takes long to make, and a server is there for a whole session of tests
    def client(self, service: str = "glue") -> Any:
        import botocore.config  # type: ignore[import-untyped]
        import botocore.session  # type: ignore[import-untyped]

        return botocore.session.Session().create_client(
            service,
            region_name=REGION,
            endpoint_url=self.endpoint_url,
            aws_access_key_id="tests",
            aws_secret_access_key="tests",  # moto takes any
            # A request that is repeated on a busy machine would make a thing twice.
            config=botocore.config.Config(read_timeout=600, retries={"total_max_attempts": 1}),
        )

    def register(self, location: str | None, parameters: Mapping[str, str] = DELTA, **more: Any) -> str:
        """Puts a table into the catalog, and returns its name as an address."""
        name = f"t_{uuid.uuid4().hex[:12]}"
        storage = {} if location is None else {"StorageDescriptor": {"Location": location}}
        table = {
            "Name": name,
            "TableType": "EXTERNAL_TABLE",
            "Parameters": dict(parameters),
            **storage,
            **more,
        }
        self.client().create_table(DatabaseName=self.database, TableInput=table)
        return f"glue://{self.database}.{name}"

    def move(self, address: str, location: str) -> None:
        """Has a name lead elsewhere."""
        table = {"Name": address.rpartition(".")[2], "TableType": "EXTERNAL_TABLE", "Parameters": DELTA}
        self.client().update_table(
            DatabaseName=self.database, TableInput={**table, "StorageDescriptor": {"Location": location}}
        )

    def user_without_rights(self) -> dict[str, Any]:
        """Makes a user, and returns the storage options with its keys."""
        iam, user = self.client("iam"), f"u{uuid.uuid4().hex[:8]}"
        iam.create_user(UserName=user)
        key = iam.create_access_key(UserName=user)["AccessKey"]
        return {**self.storage_options, "key": key["AccessKeyId"], "secret": key["SecretAccessKey"]}

    @contextmanager
    def looking_at_rights(self) -> Iterator[None]:
        """Has the server check keys and policies for the length of a block."""
        self._look_at_rights_after("0")
        try:
            yield
        finally:
            self._look_at_rights_after("inf")

    def _look_at_rights_after(self, requests: str) -> None:
        url = f"{self.endpoint_url}/moto-api/reset-auth"
        header = {"Content-Type": "text/plain"}
        asked = urllib.request.Request(url, requests.encode(), header, method="POST")
        with urllib.request.urlopen(asked, timeout=60):
            pass

    def drop(self, address: str) -> None:
        self.client().delete_table(DatabaseName=self.database, Name=address.rpartition(".")[2])


@contextmanager
def running_glue() -> Iterator[GlueServer]:
    from moto.server import ThreadedMotoServer

    running = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    running.start()
    try:
        host, port = running.get_host_and_port()
        server = GlueServer(f"http://{host}:{port}")
        server.client().create_database(DatabaseInput={"Name": server.database})
        yield server
    finally:
        running.stop()
