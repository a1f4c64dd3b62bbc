"""The assets that stand for the maintenance of tables, as distinct from their data.

Maintenance changes no row, so it must not start DAGs that are scheduled on a table's data. Its results go to assets of their own:

* ``delta-maintenance:<table>``, one for each table, or
* ``delta-maintenance:<alias>``, one for all tables whose operators have ``asset_alias``. Airflow keeps a row for each asset for
  ever, and looks at all assets of an alias that a DAG is scheduled on, so thousands of mapped tables should share one.

Events reach an asset through an alias, for two reasons. A table's address may be a template, so that the asset is known only when
the task runs. And an asset that is itself an outlet gets an event from every task that succeeds, whatever the task did.
"""

from __future__ import annotations

import re
from urllib.parse import quote

from airflow.sdk import Asset, AssetAlias

from delta_log.storage.table_uri import one_spelling, require_no_credentials

#: Outlet of every maintenance operator. ``DAG(schedule=MAINTENANCE_ALIAS)`` follows all tables at once.
MAINTENANCE_ALIAS = AssetAlias("delta-maintenance")

#: Outlet of operators with ``emit_data_asset=True``. It is an alias of its own: an asset that gets an event through an alias
#: belongs to the alias from then on, and DAGs that follow the alias would run for every later event of the data.
DATA_ALIAS = AssetAlias("delta-data")


def maintenance_asset(table: str) -> Asset:
    """The asset whose events tell that `table` was maintained: for ``DAG(schedule=…)`` and inlets.

    All spellings of an address make one asset. A name in a catalog makes an asset of its own, since what it leads to is known only
    when a task runs.

    >>> maintenance_asset("s3a://lake/events/").uri
    'delta-maintenance:s3://lake/events'
    >>> maintenance_asset("glue://sales.events").uri
    'delta-maintenance:glue://sales.events'

    :raises InvalidRequest: the address carries credentials; the names of assets are shown to everyone.
    """
    require_no_credentials(table)
    return _asset(one_spelling(table))


def shared_maintenance_asset(alias: str) -> Asset:
    """The asset of all tables whose operators have ``asset_alias=alias``.

    >>> shared_maintenance_asset("nightly").uri
    'delta-maintenance:nightly'
    """
    return _asset(alias)


def is_asset_of(table: str, uri: str) -> bool:
    """Whether an asset stands for the maintenance or for the data of a table.

    :param table: address of the table, in its one spelling.
    :param uri: URI of the asset.

    >>> is_asset_of("s3://lake/events", "delta-maintenance:s3://lake/events")
    True
    >>> is_asset_of("s3://lake/events", "s3a://lake/events")
    True
    >>> is_asset_of("s3://lake/events", "s3://lake/events_2024")
    False
    """
    return uri == _identifier(table) or one_spelling(uri) == table


def data_asset(table: str) -> Asset:
    """The asset of a table's data, as ``Asset(table)`` makes it in a DAG file."""
    require_no_credentials(table)
    return Asset(_without_slash(table))


def _without_slash(table: str) -> str:
    return table.rstrip("/") or "/"


def _asset(name: str) -> Asset:
    identifier = _identifier(name)
    return Asset(name=identifier, uri=identifier)


def _identifier(name: str) -> str:
    # No provider has a URI handler for the scheme "delta-maintenance", so none changes or refuses the rest. Airflow on MySQL
    # accepts ASCII names only.
    return f"delta-maintenance:{re.sub(r'[^ -~]+', lambda found: quote(found[0], errors='surrogateescape'), name)}"
