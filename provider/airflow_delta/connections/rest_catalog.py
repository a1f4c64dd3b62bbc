"""Connections to Unity Catalog, Polaris, Lakekeeper and Gravitino.

Such a connection says where the catalog is and who asks (host; password for a token, or login and password for an OAuth client), and its
extra holds the rest: members that are the catalog's (:data:`MEMBERS`), and options of the stores of its tables. A connection of any other
type that can open tables may have the catalog's option in its extra instead.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_delta.connections import delta
from airflow_delta.connections.fields import ConnectionFields
from delta_log.catalog.table_name import TableName
from delta_log.storage.schemes import CATALOGS

#: By type of connection, the scheme of the names that are looked up with it.
SCHEMES: Mapping[str, str] = {
    "unity_catalog": "uc",
    "polaris": "polaris",
    "lakekeeper": "lakekeeper",
    "gravitino": "gravitino",
}
#: Members of the extra that are for the catalog.
MEMBERS = ("token_uri", "scope", "ca_bundle", "metalake", "vended_credentials", "owner_permits_maintenance")


def storage_options(fields: ConnectionFields) -> dict[str, Any]:
    return {name: value for name, value in delta.storage_options(fields).items() if name not in MEMBERS}


def catalog_option(name: TableName, fields: ConnectionFields | None) -> dict[str, Any]:
    """Return the option of the catalog of a name.

    :raises UnusableConnection: the connection is for another catalog, or has no host.
    """
    if fields is None:
        return {}
    option = CATALOGS[name.catalog].option
    scheme = SCHEMES.get(fields.conn_type)
    if scheme is None:
        given = fields.mapping(option)
        return {option: dict(given)} if given else {}
    if scheme != name.catalog:
        raise fields.unusable(
            f"it is for names that begin with {scheme}://, and {name} is another catalog's",
            "Name a connection to that catalog.",
        )
    if fields.host is None:
        raise fields.unusable(
            "it names no host", "Set its host to the address of the catalog, with https:// before it."
        )
    found: dict[str, Any] = {"uri": fields.host if "://" in fields.host else f"https://{fields.host}"}
    if fields.login is not None:
        found["client_id"] = fields.login
    if fields.password is not None:
        found["token" if fields.login is None else "client_secret"] = fields.password
    return {option: {**found, **{key: fields.extra[key] for key in MEMBERS if key in fields.extra}}}
