"""The asset that stands for the maintenance of a table, as distinct from the table's data.

Maintenance changes no row, so it must not start DAGs that are scheduled on the table's data. Its results go to an asset of their
own, ``delta-maintenance:<table>``, through the alias :data:`MAINTENANCE_ALIAS`: a table's address may be a template, so that the
asset is known only when the task runs. A run that commits nothing emits no event.
"""

from __future__ import annotations

from airflow.sdk import Asset, AssetAlias

from delta_log.storage.table_uri import require_no_credentials

#: Outlet of every maintenance operator. ``DAG(schedule=MAINTENANCE_ALIAS)`` follows all tables at once.
MAINTENANCE_ALIAS = AssetAlias("delta-maintenance")


def maintenance_asset(table: str) -> Asset:
    """The asset whose events tell that `table` was maintained: for ``DAG(schedule=…)`` and inlets.

    >>> maintenance_asset("s3://lake/events/").uri
    'delta-maintenance:s3://lake/events'

    :raises InvalidRequest: the address carries credentials; the names of assets are shown to everyone.
    """
    require_no_credentials(table)
    # No provider has a URI handler for the scheme "delta-maintenance", so none changes or refuses the rest.
    identifier = f"delta-maintenance:{table.rstrip('/') or '/'}"
    return Asset(name=identifier, uri=identifier)
