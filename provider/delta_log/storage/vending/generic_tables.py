"""The generic tables of Apache Polaris and of Lakekeeper: tables of other formats than Iceberg, in namespaces of the Iceberg REST catalog.

Both have the same answers, at different addresses. Namespaces may lie in others: ``polaris://lake.sales.eu.events``.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping

from msgspec import Struct, field

from delta_log.storage.schemes import AZURE, GCS, S3
from delta_log.storage.vending.rest_catalog import Grant, RestCatalog, RestTable, no_grant
from delta_log.storage.vending.rest_client import path_of

#: Stands between the parts of a namespace in an address.
_SEPARATOR = "\x1f"
_VENDED = {"X-Iceberg-Access-Delegation": "vended-credentials"}
_S3 = {
    "access_key_id": "s3.access-key-id",
    "secret_access_key": "s3.secret-access-key",
    "token": "s3.session-token",
}
_GCS = {"token": "gcs.oauth2.token"}
_SAS = "adls.sas-token."


class _Table(Struct, rename="kebab"):
    format: str | None = None
    base_location: str | None = None


class _Credential(Struct):
    prefix: str = ""
    config: dict[str, str] = field(default_factory=dict)


class _Loaded(Struct, rename="kebab"):
    table: _Table
    storage_credentials: list[_Credential] | None = None

    def entry(self) -> RestTable:
        return RestTable(self.table.format, self.table.base_location)


class _Identifier(Struct):
    name: str


class _Tables(Struct, rename="kebab"):
    identifiers: list[_Identifier] = []
    next_page_token: str | None = None


class _Namespaces(Struct, rename="kebab"):
    namespaces: list[list[str]] = []
    next_page_token: str | None = None


class _Config(Struct):
    overrides: dict[str, str] = field(default_factory=dict)
    defaults: dict[str, str] = field(default_factory=dict)


class GenericTables(RestCatalog):
    """The part that both catalogs share."""

    @abstractmethod
    def _of_tables(self, catalog: str) -> str:
        """Return the base of the addresses of generic tables."""

    @abstractmethod
    def _of_namespaces(self, catalog: str) -> str:
        """Return the base of the addresses of the Iceberg REST catalog."""

    def _loaded(self, name: tuple[str, ...], headers: Mapping[str, str] | None = None) -> _Loaded:
        return self.client.get(_Loaded, f"{self._path(name[:-1])}{path_of(name[-1])}", headers=headers)

    def _path(self, database: tuple[str, ...]) -> str:
        catalog, *namespace = database
        return (
            f"{self._of_tables(catalog)}{path_of('namespaces', _SEPARATOR.join(namespace), 'generic-tables')}"
        )

    def table(self, name: tuple[str, ...]) -> RestTable:
        return self._loaded(name).entry()

    def tables(self, database: tuple[str, ...]) -> Iterator[tuple[str, RestTable | None]]:
        path, token = self._path(database), None
        while True:
            page: _Tables = self.client.get(_Tables, path, {"pageToken": token})
            for one in page.identifiers:
                yield one.name, None
            token = page.next_page_token
            if not token:
                return

    def databases(self, catalog: str) -> Iterator[tuple[str, ...]]:
        return self._namespaces(f"{self._of_namespaces(catalog)}/namespaces", catalog, ())

    def _namespaces(self, path: str, catalog: str, parent: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        token = None
        while True:
            page: _Namespaces = self.client.get(
                _Namespaces, path, {"parent": _SEPARATOR.join(parent), "pageToken": token}
            )
            for namespace in page.namespaces:
                yield catalog, *namespace
                yield from self._namespaces(path, catalog, tuple(namespace))
            token = page.next_page_token
            if not token:
                return


class Polaris(GenericTables):
    """Apache Polaris. The address is the one of its Iceberg REST catalog, such as ``https://polaris.example.org/api/catalog``."""

    scheme, words = "polaris", "Polaris"

    def _of_tables(self, catalog: str) -> str:
        return f"/polaris/v1{path_of(catalog)}"

    def _of_namespaces(self, catalog: str) -> str:
        return f"/v1{path_of(catalog)}"


class Lakekeeper(GenericTables):
    """Lakekeeper. The first part of a name is the warehouse, which addresses know by its id."""

    scheme, words = "lakekeeper", "Lakekeeper"

    def _of_tables(self, catalog: str) -> str:
        return f"/lakekeeper/v1{path_of(self._prefix(catalog))}"

    def _of_namespaces(self, catalog: str) -> str:
        return f"/catalog/v1{path_of(self._prefix(catalog))}"

    def _prefix(self, warehouse: str) -> str:
        found = self.client.get(_Config, "/catalog/v1/config", {"warehouse": warehouse})
        return found.overrides.get("prefix") or found.defaults.get("prefix") or warehouse

    def grant(self, name: tuple[str, ...]) -> tuple[RestTable, Grant]:
        loaded = self._loaded(name, _VENDED)
        # Of several credentials the one with the longest prefix counts.
        for credential in sorted(loaded.storage_credentials or (), key=lambda one: -len(one.prefix)):
            if (loaded.table.base_location or "").startswith(credential.prefix):
                grant = _grant(credential.config)
                if grant is not None:
                    return loaded.entry(), grant
        raise no_grant(self, name)


def _grant(config: Mapping[str, str]) -> Grant | None:
    """Return credentials that are given by the names of the Iceberg libraries."""
    if all(theirs in config for theirs in _S3.values()):
        given = {ours: config[theirs] for ours, theirs in _S3.items()}
        return Grant(S3.family, given, _ms(config.get("s3.session-token-expires-at-ms")))
    if all(theirs in config for theirs in _GCS.values()):
        given = {ours: config[theirs] for ours, theirs in _GCS.items()}
        return Grant(GCS.family, given, _ms(config.get("gcs.oauth2.token-expires-at")))
    for key, value in config.items():
        if key.startswith(_SAS):
            end = config.get(f"adls.sas-token-expires-at-ms.{key.removeprefix(_SAS)}")
            return Grant(AZURE.family, {"sas_token": value}, _ms(end))
    return None


def _ms(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
