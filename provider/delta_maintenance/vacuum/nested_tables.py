"""Files of others are not deleted: files of neighbours below the root, and files of a table that has replaced this one."""

from __future__ import annotations

from collections.abc import Mapping

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.errors import TableReplaced
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.listing.key_columns import are_within
from delta_maintenance.listing.neighbours import in_words, neighbours_above
from delta_maintenance.vacuum.options import REFUSE
from delta_maintenance.vacuum.plan.planner import VacuumBasis, filter_rows


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


def neighbours_of(storage: Storage, basis: VacuumBasis, found: pa.Table) -> Mapping[str, str]:
    """Find the neighbours whose files would look like orphans of this table.

    :param found: files that are neither protected nor behind a link. An inventory may leave out what neighbours are known
        by. So their directories are looked at.
    :return: the kind of each neighbour, by directory.
    :raises VacuumRefused: there are neighbours, and the options do not say that they are to be kept.
    """
    neighbours = basis.listing.neighbours
    if basis.options.inventory is not None:
        orphans = filter_rows(found, pc.invert(_is_named(basis, found.column("key"))))
        hidden = HiddenNames.of(basis.snapshot)
        neighbours = {**neighbours, **neighbours_above(storage, orphans.column("key"), hidden)}
    if neighbours and basis.options.neighbours == REFUSE:
        raise VacuumRefused(
            f"Below this table lies what belongs to others: {in_words(neighbours)}. Its files would look like orphans of this "
            "table. Nothing was deleted. Look whether this is the right address, move out what does not belong here, or vacuum "
            'beside it with neighbours="keep" (--neighbours keep): these directories then stay as they are.'
        )
    return neighbours


def without_neighbours(basis: VacuumBasis, found: pa.Table) -> pa.Table:
    """Select the files that belong to no neighbour. A file that the log has removed belongs to this table."""
    if not basis.neighbours or not found.num_rows:
        return found
    keys = found.column("key")
    return filter_rows(found, pc.or_(_is_named(basis, keys), pc.invert(are_within(keys, basis.neighbours))))


def _is_named(basis: VacuumBasis, keys: pa.ChunkedArray) -> pa.ChunkedArray:
    return pc.is_in(keys, value_set=basis.protected.expired.column("key"))
