"""Refusing to delete files of another table: one that lies below this one, or one that has replaced it."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.arrow.prefetch import map_ordered
from delta_log.errors import TableReplaced
from delta_log.log.file_names import LOG_DIRECTORY
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.listing.key_columns import directories_of
from delta_maintenance.vacuum.plan.plan import EXPIRED, VacuumPlan
from delta_maintenance.vacuum.plan.planner import another_table


def require_same_table(known: Snapshot, found: Snapshot) -> None:
    """
    :param known: the version that was read first.
    :param found: the latest version.
    :raises TableReplaced: another table has replaced the known one.
    :raises UnsupportedFeature: the table now uses a feature that VACUUM does not support.
    """
    table_features.require(found.protocol, Operation.VACUUM)
    if found.metadata.id != known.metadata.id or found.version < known.version:
        why = f"its id was {known.metadata.id}, and is now {found.metadata.id}"
        raise TableReplaced(found.table_uri, known.version, why)


def refuse_tables_below(storage: Storage, plan: VacuumPlan) -> None:
    """Look for the logs of other tables above the candidates, since an inventory may leave the logs out.

    Files that this table's log names as removed belong to no other table.

    :raises VacuumRefused: candidates lie below the root of another table.
    """
    candidates = plan.candidates
    unnamed = candidates.filter(pc.not_equal(candidates.column("reason").cast(pa.string()), EXPIRED))
    above: set[str] = set()
    for parent in directories_of(unnamed.column("key")):
        directory = parent
        while directory and directory not in above:
            above.add(directory)
            directory = directory.rpartition("/")[0]
    directories = sorted(above)
    logs = map_ordered(
        lambda directory: next(storage.list_from(f"{directory}/{LOG_DIRECTORY}"), None),
        directories,
        storage.concurrency,
    )
    roots = [directory for directory, log in zip(directories, logs, strict=True) if log is not None]
    if roots:
        raise VacuumRefused(another_table(roots))
