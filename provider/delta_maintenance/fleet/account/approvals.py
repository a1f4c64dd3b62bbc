"""What persons have approved: deletions of tables, in a file for each answer below the memory of a fleet.

An approval holds for one run of each operation, and for :data:`APPROVED_DAYS` days.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

import msgspec
from msgspec import Struct

from delta_log.storage.storage import Storage
from delta_maintenance.fleet.history import FleetHistory
from delta_maintenance.units import DAY_MS, format_time

APPROVED_DAYS = 7
_DIRECTORY = "approvals"
_TIME = "%Y%m%dT%H%M%SZ"


class Approval(Struct, frozen=True):
    """One answer of a person.

    :param operations: names of the operations that are approved, by the address of their table.
    :param by: name of the person, as far as it is known.
    """

    approved_ms: int
    operations: Mapping[str, tuple[str, ...]]
    by: str = ""


class ApprovalFolder:
    """The approvals of a fleet.

    :param storage: storage of the directory in which the fleet keeps its memory.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage

    def add(self, approval: Approval, new_id: str) -> None:
        """
        :param new_id: text that no other approval has.
        """
        name = f"{format_time(approval.approved_ms, _TIME)}-{new_id[:8]}.json"
        self._storage.put(f"{_DIRECTORY}/{name}", msgspec.json.encode(approval))

    def valid(self, now_ms: int) -> list[Approval]:
        """The approvals of the last :data:`APPROVED_DAYS` days, oldest first. A file that is none counts as no approval."""
        first = format_time(now_ms - APPROVED_DAYS * DAY_MS, _TIME)
        files = self._storage.list_from(_DIRECTORY, first)
        found = [_decoded(self._storage.read(file.key)) for file in files]
        return [one for one in found if one is not None]


def _decoded(data: bytes) -> Approval | None:
    try:
        return msgspec.json.decode(data, type=Approval)
    except msgspec.DecodeError:
        return None


def not_used_up(approvals: Iterable[Approval], history: FleetHistory) -> dict[str, tuple[str, ...]]:
    """The operations that are approved, by table, and have not ended well since."""
    found: dict[str, tuple[str, ...]] = {}
    for approval in approvals:
        for table, operations in approval.operations.items():
            done = _done_since(history, table, approval.approved_ms)
            found[table] = (*found.get(table, ()), *(one for one in operations if one not in done))
    return {table: tuple(dict.fromkeys(operations)) for table, operations in found.items() if operations}


def _done_since(history: FleetHistory, table: str, since_ms: int) -> Collection[str]:
    known = history.tables.get(table)
    runs = () if known is None else known.runs
    return {run.operation for run in runs if run.started_ms >= since_ms and not run.has_failed}
