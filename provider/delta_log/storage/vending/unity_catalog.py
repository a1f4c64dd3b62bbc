"""Unity Catalog, as its open-source server and Databricks have it (``/api/2.1/unity-catalog``)."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec import Struct

from delta_log.storage.schemes import AZURE, GCS, S3
from delta_log.storage.vending.rest_catalog import Grant, RestCatalog, RestTable, no_grant
from delta_log.storage.vending.rest_client import path_of

_BASE = "/api/2.1/unity-catalog"


class _Table(Struct):
    name: str
    table_type: str = ""
    data_source_format: str | None = None
    storage_location: str | None = None
    table_id: str = ""

    def entry(self) -> RestTable:
        return RestTable(self.data_source_format, self.storage_location, self.table_type, self.table_id)


class _Tables(Struct):
    tables: list[_Table] = []
    next_page_token: str | None = None


class _Schema(Struct):
    name: str


class _Schemas(Struct):
    schemas: list[_Schema] = []
    next_page_token: str | None = None


class _Aws(Struct):
    access_key_id: str
    secret_access_key: str
    session_token: str


class _Azure(Struct):
    sas_token: str


class _Gcp(Struct):
    oauth_token: str


class _Credentials(Struct):
    aws_temp_credentials: _Aws | None = None
    azure_user_delegation_sas: _Azure | None = None
    gcp_oauth_token: _Gcp | None = None
    expiration_time: int | None = None


class UnityCatalog(RestCatalog):
    """Names have three parts: catalog, schema, table. Credentials are asked for by the id of the table."""

    scheme, words = "uc", "Unity Catalog"

    def table(self, name: tuple[str, ...]) -> RestTable:
        return self.client.get(_Table, f"{_BASE}{path_of('tables', '.'.join(name))}").entry()

    def tables(self, database: tuple[str, ...]) -> Iterator[tuple[str, RestTable]]:
        catalog, schema = database
        token: str | None = None
        while True:
            query = {"catalog_name": catalog, "schema_name": schema, "page_token": token}
            page = self.client.get(_Tables, f"{_BASE}/tables", query)
            for table in page.tables:
                yield table.name, table.entry()
            token = page.next_page_token
            if not token:
                return

    def databases(self, catalog: str) -> Iterator[tuple[str, ...]]:
        token: str | None = None
        while True:
            page = self.client.get(
                _Schemas, f"{_BASE}/schemas", {"catalog_name": catalog, "page_token": token}
            )
            for schema in page.schemas:
                yield catalog, schema.name
            token = page.next_page_token
            if not token:
                return

    def grant(self, name: tuple[str, ...]) -> tuple[RestTable, Grant]:
        table = self.table(name)
        asked = {"table_id": table.key, "operation": "READ_WRITE"}
        found = self.client.post(_Credentials, f"{_BASE}/temporary-table-credentials", asked)
        if (aws := found.aws_temp_credentials) is not None:
            given = {
                "access_key_id": aws.access_key_id,
                "secret_access_key": aws.secret_access_key,
                "token": aws.session_token,
            }
            return table, Grant(S3.family, given, found.expiration_time)
        if found.gcp_oauth_token is not None:
            return table, Grant(
                GCS.family, {"token": found.gcp_oauth_token.oauth_token}, found.expiration_time
            )
        if found.azure_user_delegation_sas is not None:
            sas = {"sas_token": found.azure_user_delegation_sas.sas_token}
            return table, Grant(AZURE.family, sas, found.expiration_time)
        raise no_grant(self, name)
