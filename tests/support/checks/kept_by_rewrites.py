"""What OPTIMIZE and REORG PURGE must leave as it is beside the values of rows, taken before and compared afterwards."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from delta_log import Snapshot, Table
from delta_log.table_config.properties import flag
from tests.support.checks.added_files import Names, check_added_files, field_ids
from tests.support.tables.tracked_rows import check_given_ids, tracked_rows


@dataclass(frozen=True)
class Facts:
    """
    :param field_ids: of the live files, by the physical path of each struct member.
    :param tracked: rows with their ids and commit versions; ``None``: the table does not track rows.
    """

    snapshot: Snapshot
    field_ids: dict[Names, set[int]]
    tracked: list[str] | None


def facts_of(table: Path) -> Facts:
    snapshot = Table(str(table)).snapshot()
    tracks = flag(snapshot.properties, "delta.enableRowTracking")
    return Facts(snapshot, field_ids(table), tracked_rows(table) if tracks else None)


def check_rewritten(table: Path, before: Facts, *, copied: bool = False) -> int:
    """Check what rewrites have done since then, and each file that they have added; gives the number of those.

    :param copied: row groups of any size were copied.
    """
    after = facts_of(table)
    old, new = before.snapshot, after.snapshot
    assert (new.metadata, new.protocol) == (old.metadata, old.protocol)
    for path, ids in after.field_ids.items():
        assert ids == before.field_ids.get(path, ids)
    assert after.tracked == before.tracked
    if after.tracked is not None:
        check_given_ids(old, new)
    return sum(
        check_added_files(table, version, copied=copied)
        for version in range(old.version + 1, new.version + 1)
    )
