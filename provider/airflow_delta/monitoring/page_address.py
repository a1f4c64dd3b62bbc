"""Where the page *Delta tables* is in Airflow's UI."""

from __future__ import annotations

from urllib.parse import urlsplit

from airflow.sdk.configuration import conf

from airflow_delta.monitoring.record import table_id

#: The route of the page, below ``/plugin/``.
PAGE_ROUTE = "delta-tables"


def path_of_table(table: str) -> str:
    """The path and query of a table's view, below the address of Airflow."""
    return f"/plugin/{PAGE_ROUTE}?table={table_id(table)}"


def path_of_airflow() -> str:
    """The path below which a proxy serves Airflow; empty in most installations."""
    return urlsplit(str(conf.get("api", "base_url", fallback=""))).path.rstrip("/")
