"""Apache Gravitino: tables of a metalake, with a location among their properties. It gives out no credentials for tables."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from delta_log.errors import InvalidRequest
from delta_log.storage.vending.rest_catalog import RestCatalog, RestTable
from delta_log.storage.vending.rest_client import path_of


class _Table(Struct):
    properties: dict[str, str] | None = None


class _Loaded(Struct):
    table: _Table


class _Identifier(Struct):
    name: str


class _Identifiers(Struct):
    identifiers: list[_Identifier] = []


class Gravitino(RestCatalog):
    """Names have three parts: catalog, schema, table. The metalake stands in the option."""

    scheme, words = "gravitino", "Gravitino"

    def table(self, name: tuple[str, ...]) -> RestTable:
        catalog, schema, table = name
        path = self._path(catalog, "schemas", schema, "tables", table)
        found = self.client.get(_Loaded, path).table.properties or {}
        return RestTable(found.get("format"), found.get("location"))

    def tables(self, database: tuple[str, ...]) -> Iterator[tuple[str, None]]:
        catalog, schema = database
        found = self.client.get(_Identifiers, self._path(catalog, "schemas", schema, "tables"))
        for one in found.identifiers:
            yield one.name, None

    def databases(self, catalog: str) -> Iterator[tuple[str, ...]]:
        for one in self.client.get(_Identifiers, self._path(catalog, "schemas")).identifiers:
            yield catalog, one.name

    def _path(self, *segments: str) -> str:
        metalake = self.client.settings.metalake
        if metalake is None:
            raise InvalidRequest(
                'The storage option "gravitino" names no metalake, in which catalogs are looked up. Give its name as metalake.'
            )
        return path_of("api", "metalakes", metalake, "catalogs", *segments)
