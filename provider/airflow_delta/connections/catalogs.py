"""The catalogs in which the tables of a connection are looked up by name.

Any connection may say in its extra which catalogs are asked (``glue``, ``hive_metastore``, ``unity``, ``polaris``, ``lakekeeper``,
``gravitino``), whatever its type; else Airflow's setting ``[delta] hive_metastore`` names the metastore. An ``aws`` connection says where
Glue is as it does for the Amazon provider. Catalogs with a REST interface have connections of their own type
(:mod:`airflow_delta.connections.rest_catalog`).
"""

from __future__ import annotations

from typing import Any

from airflow.sdk.configuration import conf

from airflow_delta.connections.fields import ConnectionFields
from airflow_delta.connections.kinds import kind_of
from airflow_delta.connections.rest_catalog import catalog_option
from delta_log.catalog.table_name import TableName
from delta_log.storage.schemes import S3

_SECTION, _METASTORE = "delta", "hive_metastore"


def catalog_options(name: TableName, fields: ConnectionFields | None) -> dict[str, Any]:
    """Return the option of the catalog of a name.

    :param fields: ``None``: no connection is named.
    :raises UnusableConnection: the connection has no identity for this catalog, or its extra is wrong.
    """
    if name.catalog == "glue":
        return {} if fields is None else _glue(name, fields)
    if name.catalog != "hms":
        return catalog_option(name, fields)
    given = None if fields is None else fields.get(_METASTORE)
    given = given or conf.get(_SECTION, _METASTORE, fallback=None)
    return {_METASTORE: given} if given else {}


def _glue(name: TableName, fields: ConnectionFields) -> dict[str, Any]:
    if kind_of(fields).store not in (None, S3):
        raise fields.unusable(
            f"{name} is looked up with an identity of AWS", "Name a connection of type aws or delta."
        )
    options = dict(fields.mapping("glue"))
    if fields.conn_type == "aws":
        service = fields.mapping("service_config").get("glue") or {}
        endpoint = service.get("endpoint_url") if isinstance(service, dict) else None
        endpoint = endpoint or fields.text("endpoint_url")
        options = {**({"endpoint_url": endpoint} if endpoint else {}), **options}
    return {"glue": options} if options else {}
