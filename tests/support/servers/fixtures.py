"""Fixtures: one server of each kind for a test session; with pytest-xdist, for each of its workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator

import pytest

from tests.support.environment.prerequisites import require
from tests.support.servers.azure import AZURITE, AzureServer, running_azurite
from tests.support.servers.gcs import FAKE_GCS, GcsServer, running_fake_gcs
from tests.support.servers.glue import GlueServer, running_glue
from tests.support.servers.postgres import running_postgres
from tests.support.servers.program import teller
from tests.support.servers.s3 import MINIO, S3Server, running_minio
from tests.support.servers.spark_standalone import SparkCluster, running_spark_cluster


@pytest.fixture(scope="session")
def s3_server(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    program = MINIO.find(teller(request.config))
    with running_minio(program, tmp_path_factory.mktemp("minio")) as server:
        yield server


@pytest.fixture
def s3_bucket(s3_server: S3Server) -> str:
    """The name of a new, empty bucket."""
    return s3_server.make_bucket()


@pytest.fixture(scope="session")
def gcs_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[GcsServer]:
    program = FAKE_GCS.find(teller(request.config))
    with running_fake_gcs(program, tmp_path_factory.mktemp("gcs")) as server:
        yield server


@pytest.fixture
def gcs_bucket(gcs_server: GcsServer) -> str:
    return gcs_server.make_bucket()


@pytest.fixture(scope="session")
def azure_server(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[AzureServer]:
    program = AZURITE.find(teller(request.config))
    with running_azurite(program, tmp_path_factory.mktemp("azurite")) as server:
        yield server


@pytest.fixture
def azure_container(azure_server: AzureServer) -> str:
    return azure_server.make_container()


@pytest.fixture(scope="session")
def glue() -> Iterator[GlueServer]:
    with running_glue() as server:
        yield server


@pytest.fixture(scope="session")
def new_database(request: pytest.FixtureRequest) -> Iterator[Callable[[], str]]:
    """Makes an empty database on PostgreSQL, and returns its URL for SQLAlchemy."""
    with running_postgres(teller(request.config)) as make:
        yield make


@pytest.fixture(scope="session")
def spark_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkCluster]:
    if "JAVA_HOME" not in os.environ:
        require("java", "to run Spark")
    with running_spark_cluster(tmp_path_factory.mktemp("spark-cluster")) as cluster:
        yield cluster
