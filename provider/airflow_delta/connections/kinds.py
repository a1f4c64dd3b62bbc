"""The types of connection that tables can be opened with, each with its store and the function that reads it.

To add a type, write its function and add one entry to :data:`KINDS`; the hook, its messages and the refusal of other stores follow.
A function is loaded when the first connection of its type is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from airflow_delta.connections.fields import ConnectionFields, UnusableConnection
from delta_log.storage.schemes import AZURE, GCS, S3, StoreKind, family_of, scheme_of

_PACKAGE = "airflow_delta.connections"
#: The types of the catalogs that :mod:`airflow_delta.connections.rest_catalog` reads.
CATALOG_TYPES = ("unity_catalog", "polaris", "lakekeeper", "gravitino")


class ConnectionKind(Struct, frozen=True):
    """One type of connection.

    :param store: the only store whose tables it opens; ``None``: any store.
    :param reader: module of this package, and function in it, from the fields of a connection to storage options.
    """

    store: StoreKind | None
    reader: tuple[str, str] = ("delta", "storage_options")

    def storage_options(self, fields: ConnectionFields) -> dict[str, Any]:
        """
        :raises UnusableConnection: the connection is incomplete, or needs a package that is not installed.
        """
        module, name = self.reader
        options: dict[str, Any] = getattr(import_module(f"{_PACKAGE}.{module}"), name)(fields)
        return options


KINDS: Mapping[str, ConnectionKind] = {
    "delta": ConnectionKind(None),
    "aws": ConnectionKind(S3, ("aws", "storage_options")),
    "google_cloud_platform": ConnectionKind(GCS, ("google", "storage_options")),
    "wasb": ConnectionKind(AZURE, ("azure", "wasb")),
    "adls": ConnectionKind(AZURE, ("azure", "adls")),
    "azure_data_lake": ConnectionKind(AZURE, ("azure", "azure_data_lake")),
    "azure": ConnectionKind(AZURE, ("azure", "azure")),
    **{kind: ConnectionKind(None, ("rest_catalog", "storage_options")) for kind in CATALOG_TYPES},
}


def kind_of(fields: ConnectionFields) -> ConnectionKind:
    """
    :raises UnusableConnection: no table can be opened with this type of connection.
    """
    kind = KINDS.get(fields.conn_type)
    if kind is None:
        raise UnusableConnection(
            f"Connection {fields.conn_id!r} has type {fields.conn_type!r}, but storage credentials of Delta tables are read "
            f"from connections of type {', '.join(KINDS)}. Nothing was started. Name one of these types, or leave "
            "delta_conn_id out to use the identity of the machine."
        )
    return kind


def require_store(fields: ConnectionFields, options: Mapping[str, Any], address: str) -> None:
    """Refuse an address in a store, or in an account, that is not the connection's. A path on a disk needs no credentials.

    :raises UnusableConnection: it is another one, or neither the address nor the connection names an account.
    """
    store, scheme = kind_of(fields).store, scheme_of(address)
    if store is None or scheme in ("", "file"):
        return
    if family_of(scheme) != store.family:
        raise UnusableConnection(
            f"Connection {fields.conn_id!r} of type {fields.conn_type!r} is for {store.schemes[0]}:// addresses, and {address} is "
            f"in another store. Nothing was started. Name a connection for {scheme}:// in delta_conn_id, or leave it out to "
            "use the identity of the machine."
        )
    if store.has_account:
        _require_account(fields, options.get("account_name"), address)


def _require_account(fields: ConnectionFields, account: str | None, address: str) -> None:
    _, at, host = urlsplit(address).netloc.partition("@")
    named = host.partition(".")[0]
    if not at and account is None:
        raise fields.unusable(
            f"neither it nor {address} names a storage account",
            "Write the address as abfss://container@account.dfs.core.windows.net/path.",
        )
    if at and account is not None and named.lower() != account.lower():
        raise fields.unusable(
            f"it is for the storage account {account}, and {address} is in {named}",
            "Name a connection for that account.",
        )
