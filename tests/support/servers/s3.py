"""S3: MinIO, whose conditional PUT is atomic (the storage contract's race shows it)."""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.environment.patience import PATIENCE_SECONDS
from tests.support.servers.process import running
from tests.support.servers.program import GoProgram

MINIO = GoProgram("minio", "github.com/minio/minio", "v0.0.0-20260212201848-7aac2a2c5b7c")
_REGION = "us-east-1"


@dataclass(frozen=True)
class S3Server:
    """``endpoint`` is its URL; ``key`` and ``secret`` may do everything."""

    endpoint: str
    key: str = "tests-access-key"
    secret: str = "tests-secret-key"

    @property
    def storage_options(self) -> dict[str, Any]:
        """Options for `open_storage`, `Table` and the command line."""
        return {
            "key": self.key,
            "secret": self.secret,
            "endpoint_url": self.endpoint,
            "client_kwargs": {"region_name": _REGION},
        }

    @property
    def delta_rs_options(self) -> dict[str, str]:
        """Options for `deltalake`."""
        return {
            "AWS_ACCESS_KEY_ID": self.key,
            "AWS_SECRET_ACCESS_KEY": self.secret,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_REGION": _REGION,
            "AWS_ALLOW_HTTP": "true",
        }

    @property
    def spark_conf(self) -> dict[str, str]:
        """Settings of a Spark session for Hadoop's S3A."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": _REGION,
            "spark.hadoop.fs.s3a.access.key": self.key,
            "spark.hadoop.fs.s3a.secret.key": self.secret,
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.connection.ssl.enabled": "false",
        }

    @cache  # noqa: B019 - a client takes long to make, and a server is there for a whole session of tests
    def client(self) -> Any:
        """Returns a client of botocore, which reaches the objects without the storage under test."""
        return self._client_of("s3")

    def put(self, place: str, data: bytes) -> None:
        """Writes an object; the place is its bucket and key with a slash between them, as below."""
        bucket, _, key = place.partition("/")
        self.client().put_object(Bucket=bucket, Key=key, Body=data)

    def read(self, place: str) -> bytes:
        """Reads an object."""
        bucket, _, key = place.partition("/")
        content: bytes = self.client().get_object(Bucket=bucket, Key=key)["Body"].read()
        return content

    def put_tree(self, directory: Path, place: str) -> None:
        """Writes the files of a directory."""
        for path in sorted(directory.rglob("*")):
            if path.is_file():
                self.put(f"{place}/{path.relative_to(directory).as_posix()}", path.read_bytes())

    def keys(self, place: str) -> list[str]:
        """Lists the keys below a place, each with its bucket."""
        bucket, _, prefix = place.partition("/")
        pages = self.client().get_paginator("list_objects_v2").paginate(Bucket=bucket, Prefix=prefix)
        return [f"{bucket}/{found['Key']}" for page in pages for found in page.get("Contents", ())]

    def remove_tree(self, place: str) -> None:
        for found in self.keys(place):
            bucket, _, key = found.partition("/")
            self.client().delete_object(Bucket=bucket, Key=key)

    def make_bucket(self) -> str:
        """Creates a bucket and returns its name."""
        name = f"bucket-{uuid.uuid4().hex[:12]}"
        self.client().create_bucket(Bucket=name)
        return name

    def allow_anonymous(self, bucket: str, *actions: str) -> None:
        """Allows these actions (`GetObject`, …) for requests without a signature."""
        resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
        statement = {
            "Effect": "Allow",
            "Principal": {"AWS": ["*"]},
            "Action": [f"s3:{action}" for action in actions],
            "Resource": resources,
        }
        policy = json.dumps({"Version": "2012-10-17", "Statement": [statement]})
        self.client().put_bucket_policy(Bucket=bucket, Policy=policy)

    @staticmethod
    def everything_in(bucket: str) -> list[dict[str, Any]]:
        """Statements of a policy that allow everything in a bucket."""
        resources = [f"arn:aws:s3:::{bucket}", f"arn:aws:s3:::{bucket}/*"]
        return [{"Effect": "Allow", "Action": ["s3:*"], "Resource": resources}]

    def session(self, *statements: Mapping[str, Any]) -> dict[str, str]:
        """Opens a session that may do exactly what the statements of a policy allow; returns its key, secret and token."""
        self.wait_for_roles()
        policy = json.dumps({"Version": "2012-10-17", "Statement": statements}, separators=(",", ":"))
        answer = self._token_service().assume_role(
            RoleArn="arn:aws:iam::123456789012:role/tests", RoleSessionName="tests", Policy=policy
        )["Credentials"]
        return {
            "key": answer["AccessKeyId"],
            "secret": answer["SecretAccessKey"],
            "token": answer["SessionToken"],
        }

    def options_of(self, session: Mapping[str, str]) -> dict[str, Any]:
        """Storage options with the credentials of a session."""
        return {**self.storage_options, **session}

    def wait_for_roles(self) -> None:
        """Waits until the token service answers, which it does some time after the store."""
        from botocore.exceptions import ClientError  # type: ignore[import-untyped]

        client = self._token_service()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while True:
            try:
                client.assume_role(RoleArn="arn:aws:iam::123456789012:role/ready", RoleSessionName="tests")
            except ClientError as error:
                if "not initialized" not in str(error) or time.monotonic() > deadline:
                    raise
                time.sleep(0.1)
            else:
                return

    @cache  # noqa: B019 - as above
    def _token_service(self) -> Any:
        return self._client_of("sts")

    def _client_of(self, service: str) -> Any:
        import botocore.session  # type: ignore[import-untyped]

        return botocore.session.Session().create_client(
            service,
            region_name=_REGION,
            endpoint_url=self.endpoint,
            aws_access_key_id=self.key,
            aws_secret_access_key=self.secret,
        )

    @property
    def anonymous_options(self) -> dict[str, Any]:
        """Storage options for requests without a signature."""
        return {"anon": True, "endpoint_url": self.endpoint, "client_kwargs": {"region_name": _REGION}}


@contextmanager
def running_minio(
    program: list[str], directory: Path, environment: Mapping[str, str] | None = None
) -> Iterator[S3Server]:
    data = directory / "data"
    data.mkdir(parents=True)
    server = S3Server("")
    environment = {
        **(environment or {}),
        "MINIO_ROOT_USER": server.key,
        "MINIO_ROOT_PASSWORD": server.secret,
        "MINIO_BROWSER": "off",
        "MINIO_UPDATE": "off",
        "HOME": str(directory),
    }
    command = [*program, "server", "--quiet", "--address"]
    with running(lambda port: [*command, f"127.0.0.1:{port}", str(data)], directory, environment) as port:
        yield S3Server(f"http://127.0.0.1:{port}")
