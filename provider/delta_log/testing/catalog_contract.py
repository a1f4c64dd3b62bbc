"""The tests that every catalog with a REST interface has to pass, a fake one and a real one alike."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from delta_log.catalog.lookup import databases_of, locate, locate_all, opening_options
from delta_log.catalog.table_name import TableName
from delta_log.errors import AccessDenied, NotDelta, NotInCatalog
from delta_log.storage.schemes import CATALOGS


class CatalogUnderTest(ABC):
    """A catalog with a database in which the tests may make tables.

    :ivar database: database, with its catalog before it and dots between the parts.
    :ivar storage_options: options with which it is asked; a token or an OAuth client in them is accepted.
    """

    scheme: str
    database: str
    storage_options: dict[str, Any]

    @abstractmethod
    def make(self, table: str, location: str, format_: str) -> None:
        """Make an external table.

        :param format_: ``DELTA`` or ``PARQUET``.
        """

    def name(self, table: str) -> str:
        return f"{self.scheme}://{self.database}.{table}"


class CatalogContract:
    """Tests what :mod:`delta_log.catalog.lookup` says of names.

    A subclass gives a ``catalog`` fixture, which returns a :class:`CatalogUnderTest` without tables.
    """

    def test_a_name_leads_to_its_location(self, catalog: CatalogUnderTest) -> None:
        catalog.make("events", "s3://lake/events", "DELTA")
        catalog.make("with-hyphen_1", "s3://lake/other/", "DELTA")
        assert locate(catalog.name("events"), catalog.storage_options) == "s3://lake/events"
        assert locate(catalog.name("with-hyphen_1"), catalog.storage_options) == "s3://lake/other"

    def test_an_absent_table_and_an_absent_database_are_told(self, catalog: CatalogUnderTest) -> None:
        for name in (catalog.name("absent"), f"{catalog.scheme}://{catalog.database}_absent.t"):
            error = _raised(NotInCatalog, name, catalog.storage_options)
            assert name in str(error)
            assert not error.retryable

    def test_a_table_of_another_format_is_refused(self, catalog: CatalogUnderTest) -> None:
        catalog.make("files", "s3://lake/files", "PARQUET")
        error = _raised(NotDelta, catalog.name("files"), catalog.storage_options)
        assert "parquet" in str(error).lower()

    def test_the_tables_of_a_database_are_listed(self, catalog: CatalogUnderTest) -> None:
        for number in range(3):
            catalog.make(f"t{number}", f"s3://lake/{number}", "DELTA")
        found = dict(locate_all(TableName(catalog.scheme, catalog.database, "*"), catalog.storage_options))
        assert {str(name) for name in found} == {catalog.name(f"t{number}") for number in range(3)}
        for name, location in found.items():
            assert location in (None, locate(str(name), catalog.storage_options))

    def test_the_databases_of_a_catalog_are_listed(self, catalog: CatalogUnderTest) -> None:
        parent = catalog.database.partition(".")[0]
        assert catalog.database in databases_of(catalog.scheme, parent, catalog.storage_options)

    def test_a_wrong_token_is_refused_and_not_shown(self, catalog: CatalogUnderTest) -> None:
        catalog.make("events", "s3://lake/events", "DELTA")
        option = CATALOGS[catalog.scheme].option
        given = {
            key: catalog.storage_options[option][key]
            for key in ("uri", "metalake")
            if key in catalog.storage_options[option]
        }
        options = {option: {**given, "token": "a-wrong-token"}}
        error = _raised(AccessDenied, catalog.name("events"), options)
        assert not error.retryable
        assert "a-wrong-token" not in str(error)

    def test_the_options_of_the_catalog_reach_no_store(self, catalog: CatalogUnderTest) -> None:
        options = opening_options(
            catalog.name("events"), {**catalog.storage_options, "endpoint_url": "http://s3"}
        )
        vended, managed_by = options.pop("vended", None), options.pop("managed_by", None)
        assert options == {"endpoint_url": "http://s3"}
        assert (vended is not None) == CATALOGS[catalog.scheme].vends
        assert (managed_by is not None) == CATALOGS[catalog.scheme].manages


def _raised(kind: type[Any], name: str, storage_options: dict[str, Any]) -> Any:
    try:
        locate(name, storage_options)
    except kind as error:
        return error
    raise AssertionError(f"{name} was located")
