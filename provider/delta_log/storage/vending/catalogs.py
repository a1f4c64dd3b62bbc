"""The catalogs with a REST interface, by the schemes of their names."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from delta_log.storage.schemes import CATALOGS
from delta_log.storage.vending.generic_tables import Lakekeeper, Polaris
from delta_log.storage.vending.gravitino import Gravitino
from delta_log.storage.vending.rest_catalog import RestCatalog
from delta_log.storage.vending.rest_client import RestClient, RestSettings
from delta_log.storage.vending.unity_catalog import UnityCatalog

REST_CATALOGS: Mapping[str, type[RestCatalog]] = {
    kind.scheme: kind for kind in (UnityCatalog, Polaris, Lakekeeper, Gravitino)
}


def rest_catalog(scheme: str, given: Any, **client: Any) -> RestCatalog:
    """
    :param given: value of the storage option of the catalog.
    :param client: further arguments of :class:`~delta_log.storage.vending.rest_client.RestClient`.
    :raises InvalidRequest: the option is missing or wrong.
    """
    kind = REST_CATALOGS[scheme]
    return kind(RestClient(kind.words, RestSettings.from_option(CATALOGS[scheme].option, given), **client))
