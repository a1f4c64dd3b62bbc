"""Adds the page *Delta tables* and its API to Airflow.

Every process of Airflow loads its plugins, workers included, so this module imports little. The API server
makes the API when the first request comes.
"""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any

from airflow import __version__ as airflow_version
from airflow.plugins_manager import AirflowPlugin
from airflow.sdk.configuration import conf

from airflow_delta.monitoring.page_address import PAGE_ROUTE, path_of_airflow

URL_PREFIX = "/delta-tables"
#: Where Airflow's UI can show the page, with the route there: its own page, a tab, or a panel. Airflow leaves out a route that is there twice.
_ROUTES = {
    "nav": PAGE_ROUTE,
    "dag": f"{PAGE_ROUTE}-of-dag",
    "task_instance": f"{PAGE_ROUTE}-of-task",
    "asset": f"{PAGE_ROUTE}-of-asset",
    "dashboard": None,
}
PLACES = tuple(_ROUTES)
#: Places by the first release of Airflow that knows them. An older one could not tell its UI of any plugin.
_SINCE = {"asset": (3, 4)}
_RELEASE = tuple(int(part) for part in airflow_version.split(".")[:2])
_NAME = "Delta tables"
_LOG = logging.getLogger(__name__)


class LateApp:
    """An ASGI application that is made at its first request. If it cannot be made, each request says so, and tries again."""

    def __init__(self) -> None:
        self._app: Callable[..., Awaitable[None]] | None = None

    async def __call__(
        self, scope: MutableMapping[str, Any], receive: Callable[..., Any], send: Callable[..., Any]
    ) -> None:
        if self._app is None:
            try:
                from airflow_delta.monitoring.api import configured_app

                self._app = configured_app()
            except Exception:  # noqa: BLE001
                # Airflow's own routes go on.
                _LOG.exception("The page Delta tables cannot start.")
                await _refusal()(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _refusal() -> Callable[..., Awaitable[None]]:
    from starlette.responses import JSONResponse

    # The reason is not for everybody: this answer needs no token.
    detail = "The page Delta tables cannot start. The log of the API server says why."
    return JSONResponse({"detail": detail}, 503, headers={"Content-Security-Policy": "default-src 'none'"})


def react_apps(places: str, release: tuple[int, ...] = _RELEASE) -> list[dict[str, str]]:
    """
    :param places: names out of :data:`PLACES`, with commas between them. Others are left out with a warning, since a plugin that raises
        takes its API with it.
    :param release: Airflow's release; places that it does not know yet are left out.
    """
    wanted = [place for place in (one.strip() for one in places.split(",")) if place]
    unknown = sorted(set(wanted) - set(PLACES))
    if unknown:
        _LOG.warning("[delta] page_places: %s is not one of %s.", ", ".join(unknown), ", ".join(PLACES))
    return [_app(place) for place in PLACES if place in wanted and release >= _SINCE.get(place, ())]


def _app(place: str) -> dict[str, str]:
    # Airflow's UI takes the component of a name from where the script has put it, see page/src/main.tsx.
    route = _ROUTES[place]
    app = {
        "name": _NAME,
        "bundle_url": f"{path_of_airflow()}{URL_PREFIX}/delta-tables.js",
        "destination": place,
    }
    if route is None:
        return {**app, "name": f"{_NAME} panel"}
    return {**app, "url_route": route, **({"category": "browse"} if place == "nav" else {})}


class DeltaTablesPlugin(AirflowPlugin):
    name = "delta_tables"
    fastapi_apps = [  # noqa: RUF012 - as the base class declares it
        {"app": LateApp(), "url_prefix": URL_PREFIX, "name": _NAME}
    ]
    react_apps = react_apps(conf.get("delta", "page_places", fallback=", ".join(PLACES)))
