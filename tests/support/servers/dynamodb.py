"""Amazon's DynamoDB Local, which Maven fetches once per environment.

It keeps everything in memory and ends with the test. It accepts any credentials.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.support.environment.delta_spark import SHORT_LIVED_JVM
from tests.support.environment.prerequisites import absent, require
from tests.support.servers.process import running

VERSION = "2.6.1"
_POM = """<project>
  <modelVersion>4.0.0</modelVersion>
  <groupId>tests</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY = (
    "<dependency><groupId>{}</groupId><artifactId>{}</artifactId><version>{}</version>{}</dependency>"
)
_EXCLUSION = "<exclusion><groupId>{}</groupId><artifactId>{}</artifactId></exclusion>"


@dataclass(frozen=True, slots=True)
class DynamoDBServer:
    """A running DynamoDB Local."""

    endpoint_url: str
    region: str = "us-east-1"
    key: str = "tests"
    secret: str = "tests-secret"

    @cache  # noqa: B019 - a client takes long to make, and a server is there for a whole file of tests
    def client(self) -> Any:
        import botocore.session  # type: ignore[import-untyped]

        return botocore.session.Session().create_client(
            "dynamodb",
            region_name=self.region,
            endpoint_url=self.endpoint_url,
            aws_access_key_id=self.key,
            aws_secret_access_key=self.secret,
        )

    def create_lock_table(self, name: str | None = None) -> str:
        """Creates a table in the layout that the writers of Delta tables share, and returns its name."""
        name = name or f"delta_log_{uuid.uuid4().hex}"
        keys = (("tablePath", "HASH"), ("fileName", "RANGE"))
        self.client().create_table(
            TableName=name,
            KeySchema=[{"AttributeName": key, "KeyType": kind} for key, kind in keys],
            AttributeDefinitions=[{"AttributeName": key, "AttributeType": "S"} for key, _ in keys],
            BillingMode="PAY_PER_REQUEST",
        )
        return name

    def lock_options(self, table: str) -> dict[str, str]:
        """The value of the storage option ``lock``."""
        return {
            "provider": "dynamodb",
            "table": table,
            "region": self.region,
            "endpoint_url": self.endpoint_url,
            "key": self.key,
            "secret": self.secret,
        }

    def entries(self, table: str) -> list[dict[str, str]]:
        """Returns all items of a lock table as plain values, sorted by table path and file name."""
        pages = self.client().get_paginator("scan").paginate(TableName=table, ConsistentRead=True)
        items = [
            {k: next(iter(v.values())) for k, v in item.items()} for page in pages for item in page["Items"]
        ]
        return sorted(items, key=lambda item: (item["tablePath"], item["fileName"]))


@contextmanager
def running_dynamodb(directory: Path) -> Iterator[DynamoDBServer]:
    """Runs a server for the length of a block; ends the test if Java or a Maven repository is missing."""
    java = short_lived_java("to run DynamoDB Local")
    jars = maven_jars(f"dynamodb-local-{VERSION}", [("com.amazonaws", "DynamoDBLocal", VERSION)])
    command = [*java, "-Xmx256m", f"-Djava.library.path={jars}", "-cp", f"{jars}/*"]
    command += [
        "com.amazonaws.services.dynamodbv2.local.main.ServerRunner",
        "-inMemory",
        "-sharedDb",
        "-port",
    ]
    with running(lambda port: [*command, str(port)], directory) as port:
        yield DynamoDBServer(f"http://127.0.0.1:{port}")


def short_lived_java(why: str) -> list[str]:
    """Returns the beginning of a command line."""
    home = os.environ.get("JAVA_HOME")
    java = f"{home}/bin/java" if home and shutil.which(f"{home}/bin/java") else require("java", why)
    return [java, *SHORT_LIVED_JVM]


def _excluding(artifacts: tuple[str, ...]) -> str:
    members = "".join(_EXCLUSION.format(*artifact.split(":")) for artifact in artifacts)
    return f"<exclusions>{members}</exclusions>" if members else ""


def maven_jars(
    name: str,
    artifacts: list[tuple[str, str, str]],
    alone: tuple[str, ...] = (),
    without: tuple[str, ...] = (),
) -> Path:
    """Returns a directory with these artifacts and their dependencies, fetched once per environment.

    :param artifacts: group, artifact, version.
    :param alone: artifacts to fetch without their dependencies.
    :param without: dependencies that are not fetched, nor theirs: group:artifact.
    """
    home = Path(sys.prefix) / "share" / name
    if home.is_dir():
        return home
    maven = require("mvn", f"to fetch {name}")
    home.parent.mkdir(parents=True, exist_ok=True)
    # In a directory of its own, which appears whole or not at all.
    with tempfile.TemporaryDirectory(dir=home.parent) as scratch:
        dependencies = "".join(
            _DEPENDENCY.format(*artifact, _excluding(("*:*",) if artifact[1] in alone else without))
            for artifact in artifacts
        )
        (Path(scratch) / "pom.xml").write_text(_POM.format(dependencies=dependencies))
        command = [maven, "-B", "-q", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        done = subprocess.run(
            [*command, f"-DoutputDirectory={scratch}/jars"],
            cwd=scratch,
            capture_output=True,
            text=True,
            check=False,
            stdin=subprocess.DEVNULL,
        )
        if done.returncode:
            lines = [line for line in done.stdout.splitlines() if "ERROR" in line] or ["no output"]
            absent("a Maven repository", f"{name} could not be fetched: {lines[0][:300]}")
        try:
            (Path(scratch) / "jars").rename(home)
        except OSError:  # another process was faster
            if not home.is_dir():
                raise
    return home
