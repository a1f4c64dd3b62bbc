"""Asks Unity Catalog, Polaris, Lakekeeper or Gravitino for a table, over HTTP, as :mod:`delta_log.storage.vending` speaks to them.

The storage option of the catalog says where it is and who asks: ``unity``, ``polaris``, ``lakekeeper`` or ``gravitino``, each an object
with the members of :class:`~delta_log.storage.vending.rest_client.RestSettings`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec import Struct

from delta_log.catalog.table_name import TableName
from delta_log.errors import NotDelta, NotInCatalog
from delta_log.storage.schemes import CATALOGS
from delta_log.storage.vending.catalogs import rest_catalog
from delta_log.storage.vending.rest_catalog import RestCatalog, RestTable
from delta_log.storage.vending.rest_client import NotFound


class RestEntry(Struct, frozen=True):
    """A table as one of these catalogs has it."""

    table: RestTable

    def location_as(self, name: TableName) -> str:
        """Return the address of the table.

        :raises NotDelta: it is no Delta table, or has no location.
        """
        table = self.table
        if (table.format or "").lower() != "delta":
            said = f"is of the format {table.format}" if table.format else "has no format"
            raise NotDelta(str(name), f"the catalog says that it {said}")
        if not table.location:
            raise NotDelta(str(name), "the catalog has no location for it")
        return table.location


def entry_of(name: TableName, storage_options: Mapping[str, Any]) -> RestEntry:
    """
    :raises InvalidRequest: the option of the catalog is missing or wrong.
    :raises NotInCatalog: there is no such table.
    :raises StorageError: the catalog refuses, or does not answer.
    """
    catalog = _catalog(name, storage_options)
    with _finding(name, catalog):
        return RestEntry(catalog.table(name.parts))


def entries_of(
    name: TableName, storage_options: Mapping[str, Any]
) -> Iterator[tuple[TableName, RestEntry | None]]:
    """Yield the tables of a database. Only Unity Catalog tells of all of them at once where they are; the others have no entries here.

    :param name: name whose database is listed; its table stands in messages.
    :raises InvalidRequest: the option of the catalog is missing or wrong.
    :raises NotInCatalog: there is no such database.
    :raises StorageError: the catalog refuses, or does not answer.
    """
    catalog = _catalog(name, storage_options)
    with _finding(name, catalog):
        for table, entry in catalog.tables(name.parts[:-1]):
            yield TableName(name.catalog, name.database, table), None if entry is None else RestEntry(entry)


def databases_of(scheme: str, catalog_name: str, storage_options: Mapping[str, Any]) -> Iterator[str]:
    """Yield the databases of a catalog, as :class:`~delta_log.catalog.table_name.TableName` spells them; errors are as above."""
    name = TableName(scheme, catalog_name, "*")
    catalog = _catalog(name, storage_options)
    with _finding(name, catalog):
        for database in catalog.databases(catalog_name):
            yield ".".join(database)


def _catalog(name: TableName, storage_options: Mapping[str, Any]) -> RestCatalog:
    return rest_catalog(name.catalog, storage_options.get(CATALOGS[name.catalog].option))


@contextmanager
def _finding(name: TableName, catalog: RestCatalog) -> Iterator[None]:
    try:
        yield
    except NotFound as error:
        raise NotInCatalog(str(name), f"{catalog.client.place}: {error}") from error
