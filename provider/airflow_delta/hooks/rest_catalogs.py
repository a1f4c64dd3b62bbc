"""The hooks of connections to catalogs, which open tables by their names as :class:`~airflow_delta.hooks.delta_table.DeltaTableHook` does."""

from __future__ import annotations

from airflow_delta.hooks.delta_table import DeltaTableHook


class UnityCatalogHook(DeltaTableHook):
    """Opens ``uc://catalog.schema.table``."""

    conn_type = "unity_catalog"
    default_conn_name = "unity_catalog_default"
    hook_name = "Unity Catalog"


class PolarisHook(DeltaTableHook):
    """Opens ``polaris://catalog.namespace.table``."""

    conn_type = "polaris"
    default_conn_name = "polaris_default"
    hook_name = "Polaris"


class LakekeeperHook(DeltaTableHook):
    """Opens ``lakekeeper://warehouse.namespace.table``."""

    conn_type = "lakekeeper"
    default_conn_name = "lakekeeper_default"
    hook_name = "Lakekeeper"


class GravitinoHook(DeltaTableHook):
    """Opens ``gravitino://catalog.schema.table``."""

    conn_type = "gravitino"
    default_conn_name = "gravitino_default"
    hook_name = "Gravitino"
