"""Names in catalogs with a REST interface: the contract, held by each fake, and what only some catalogs have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from delta_log.catalog.lookup import databases_of, locate, locate_all
from delta_log.catalog.table_name import TableName
from delta_log.errors import InvalidRequest, NotDelta
from delta_log.storage.schemes import CATALOGS
from delta_log.testing.catalog_contract import CatalogContract, CatalogUnderTest
from delta_log.testing.fake_catalogs import FAKE_CATALOGS, FakeCatalog, FakePolaris, FakeUnityCatalog


class Served(CatalogUnderTest):
    """A fake, asked with its token or as an OAuth client."""

    database = "prod.sales"

    def __init__(self, fake: FakeCatalog, given: dict[str, Any]) -> None:
        self.fake, self.scheme = fake, fake.scheme
        self.storage_options = {CATALOGS[fake.scheme].option: given}
        fake.databases["prod", "sales"] = None

    def make(self, table: str, location: str, format_: str) -> None:
        self.fake.register(f"{self.database}.{table}", location, format_)


class TestFakeCatalogs(CatalogContract):
    @pytest.fixture(
        params=[(kind, by) for kind in FAKE_CATALOGS for by in ("option", "oauth_option")], ids=str
    )
    def catalog(self, request: pytest.FixtureRequest) -> Iterator[CatalogUnderTest]:
        kind, by = request.param
        with kind.running() as fake:
            yield Served(fake, getattr(fake, by))


@pytest.fixture
def unity() -> Iterator[FakeCatalog]:
    with FakeUnityCatalog.running() as fake:
        yield fake


def test_views_and_tables_without_a_location_are_refused(unity: FakeCatalog) -> None:
    options = {"unity": unity.option}
    managed = unity.register("prod.sales.managed", "s3://lake/m", kind="MANAGED")
    assert locate(managed, options) == "s3://lake/m"
    with pytest.raises(NotDelta, match="no format"):
        locate(unity.register("prod.sales.view", None, "", "VIEW"), options)
    with pytest.raises(NotDelta, match="no location"):
        locate(unity.register("prod.sales.nowhere", None), options)
    with pytest.raises(NotDelta, match="another name as its location"):
        locate(unity.register("prod.sales.link", "uc://prod.sales.view"), options)
    found = dict(locate_all(TableName("uc", "prod.sales", "*"), options))
    # What is no Delta table is left out; a lookup says what is the matter with the others.
    assert found == {TableName("uc", "prod.sales", "managed"): "s3://lake/m"}


@pytest.mark.parametrize("kind", FAKE_CATALOGS, ids=lambda kind: kind.scheme)
def test_listings_go_over_several_pages(kind: type[FakeCatalog]) -> None:
    with kind.running() as fake:
        fake.page_size = 2
        for number in range(5):
            fake.register(f"prod.s{number}.t", f"s3://lake/{number}")
            fake.register(f"prod.s0.t{number}", f"s3://lake/{number}")
        options = {CATALOGS[kind.scheme].option: fake.option}
        assert len(list(databases_of(kind.scheme, "prod", options))) == 5
        assert len(list(locate_all(TableName(kind.scheme, "prod.s0", "*"), options))) == 6


def test_namespaces_lie_in_others() -> None:
    with FakePolaris.running() as fake:
        name = fake.register("lake.sales.eu.events", "s3://lake/events")
        options = {"polaris": fake.option}
        assert locate(name, options) == "s3://lake/events"
        assert list(databases_of("polaris", "lake", options)) == ["lake.sales", "lake.sales.eu"]


def test_names_differ_in_case(unity: FakeCatalog) -> None:
    unity.register("prod.sales.Events", "s3://lake/upper")
    unity.register("prod.sales.events", "s3://lake/lower")
    assert locate("UC://prod.sales.Events", {"unity": unity.option}) == "s3://lake/upper"
    assert str(TableName.parse("uc://Prod.sales.Events/")) == "uc://Prod.sales.Events"


@pytest.mark.parametrize(
    "address", ["uc://sales.events", "uc://a.b.c.d", "uc://a..c", "polaris://a.b", "uc://h:1/a.b.c"]
)
def test_a_name_has_the_parts_that_its_catalog_has(address: str) -> None:
    with pytest.raises(InvalidRequest, match="is not a name in a catalog"):
        TableName.parse(address)


def test_a_metalake_is_needed_for_gravitino_alone() -> None:
    with pytest.raises(InvalidRequest, match="names no metalake"):
        locate("gravitino://a.b.c", {"gravitino": {"uri": "http://127.0.0.1:9"}})
