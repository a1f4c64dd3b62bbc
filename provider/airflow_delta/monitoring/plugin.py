"""Adds the page *Delta tables* and its API to Airflow.

Every process of Airflow loads its plugins, workers included, so this module imports little. The API server
makes the API when the first request comes.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from airflow.plugins_manager import AirflowPlugin

from airflow_delta.links import PAGE_ROUTE, path_of_airflow

URL_PREFIX = "/delta-tables"


class LateApp:
    """An ASGI application that is made at its first request."""

    def __init__(self) -> None:
        self._app: Callable[..., Awaitable[None]] | None = None

    async def __call__(
        self, scope: MutableMapping[str, Any], receive: Callable[..., Any], send: Callable[..., Any]
    ) -> None:
        if self._app is None:
            from airflow_delta.monitoring.api import configured_app

            self._app = configured_app()
        await self._app(scope, receive, send)


class DeltaTablesPlugin(AirflowPlugin):
    name = "delta_tables"
    fastapi_apps = [  # noqa: RUF012 - as the base class declares it
        {"app": LateApp(), "url_prefix": URL_PREFIX, "name": "Delta tables"}
    ]
    react_apps = [  # noqa: RUF012
        {
            "name": "Delta tables",
            "bundle_url": f"{path_of_airflow()}{URL_PREFIX}/delta-tables.js",
            "destination": "nav",
            "category": "browse",
            "url_route": PAGE_ROUTE,
        }
    ]
