"""What a catalog permits its clients to do besides ordinary commits.

Protocol section "Maintenance Operations on Catalog-managed Tables": checkpoints, log compactions and version checksums are permitted
unless the catalog forbids them; everything else is forbidden unless the catalog permits it.
"""

from __future__ import annotations

from delta_log.errors import MaintenanceForbidden
from delta_log.storage.storage import Storage

#: Rewriting data files without a change of rows; deleting data files; deleting files of the log.
DATA_REORGANIZATION, DATA_CLEANUP, METADATA_CLEANUP = (
    "DATA_REORGANIZATION",
    "DATA_CLEANUP",
    "METADATA_CLEANUP",
)
ALL_MAINTENANCE = frozenset({DATA_REORGANIZATION, DATA_CLEANUP, METADATA_CLEANUP})


def require_permission(storage: Storage, maintenance: str) -> None:
    """
    :param maintenance: one of :data:`ALL_MAINTENANCE`.
    :raises MaintenanceForbidden: a catalog manages the table, and does not permit it.
    """
    permitted = storage.permissions()
    if permitted is not None and maintenance not in permitted:
        raise MaintenanceForbidden(storage.uri, maintenance)
