"""The contract of catalogs, held by a server of the catalog's own project: a Unity Catalog whose address is in UNITY_CATALOG_URI."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from delta_log.storage.vending.rest_client import RestClient, RestSettings
from delta_log.testing.catalog_contract import CatalogContract, CatalogUnderTest
from delta_log.testing.fake_catalogs import FakeUnityCatalog

_BASE = "/api/2.1/unity-catalog"


class UnityServer(CatalogUnderTest):
    """A server, in which each test has a catalog of its own."""

    scheme = "uc"

    def __init__(self, option: Mapping[str, Any]) -> None:
        self.storage_options = {"unity": dict(option)}
        self._client = RestClient("Unity Catalog", RestSettings.from_option("unity", option))
        catalog = f"tests_{uuid.uuid4().hex[:12]}"
        self.database = f"{catalog}.sales"
        self._post("catalogs", name=catalog)
        self._post("schemas", name="sales", catalog_name=catalog)

    def make(self, table: str, location: str, format_: str) -> None:
        catalog, schema = self.database.split(".")
        self._post(
            "tables",
            name=table,
            catalog_name=catalog,
            schema_name=schema,
            table_type="EXTERNAL",
            data_source_format=format_,
            storage_location=location,
            columns=[],
        )

    def _post(self, what: str, **body: Any) -> None:
        self._client.post(dict, f"{_BASE}/{what}", body)


class TestUnityCatalog(CatalogContract):
    """The fake one is here, too, so that what makes the tables is known to work."""

    @pytest.fixture(params=["fake", "server"])
    def catalog(self, request: pytest.FixtureRequest) -> Iterator[CatalogUnderTest]:
        if request.param == "fake":
            with FakeUnityCatalog.running() as fake:
                yield UnityServer(fake.option)
            return
        uri, token = os.environ.get("UNITY_CATALOG_URI"), os.environ.get("UNITY_CATALOG_TOKEN")
        if not uri:
            pytest.skip("UNITY_CATALOG_URI names no server")
        yield UnityServer({"uri": uri, **({"token": token} if token else {})})
