"""Summarises what one commit did, for a watcher that waits for changes and does not read the table.

Protocol sections "Actions" and "Commit Provenance Information". A commit changes data if a file action says so
(``dataChange``; absent means yes). Commits of OPTIMIZE, CHECKPOINT and VACUUM change none. Rows are counted by the statistics
and deletion vectors of the files, else by ``commitInfo``. Where neither gives the number, it is ``None``, never a guess.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

from msgspec import Struct, field

from delta_log.log.actions import MAX_ROW_ID, Action, Add, Remove
from delta_log.snapshot.commit_info import stated_time_ms
from delta_log.table_config.properties import whole_number

#: ``operationMetrics`` of several writers.
_ADDED_METRICS = ("numOutputRows", "num_added_rows")
_DELETED_METRICS = ("numDeletedRows", "num_deleted_rows")


class CommitSummary(Struct, frozen=True):
    """The facts of one commit.

    :param timestamp_ms: milliseconds since the epoch: the in-commit timestamp, else the writer's, else the commit file's.
    :param operation: the writer's name for it, such as ``WRITE``; empty where it gave none.
    :param num_added_rows: rows of added files, by data-changing actions; ``None`` if unknown.
    :param num_deleted_rows: rows of removed files and rows that vectors delete, by data-changing actions; ``None`` if unknown.
    :param partitions: the partitions that data-changing actions touched, logical names to raw values.
    :param transactions: the ``txn`` actions, application id to version.
    """

    version: int
    timestamp_ms: int
    operation: str
    data_change: bool
    num_added_files: int = 0
    num_removed_files: int = 0
    num_added_rows: int | None = 0
    num_deleted_rows: int | None = 0
    partitions: tuple[Mapping[str, str | None], ...] = ()
    transactions: Mapping[str, int] = field(default_factory=dict)

    @property
    def num_rows(self) -> int | None:
        """The sum of added and deleted rows; ``None`` if unknown."""
        if self.num_added_rows is None or self.num_deleted_rows is None:
            return None
        return self.num_added_rows + self.num_deleted_rows

    def to_dict(self, max_partitions: int | None = None) -> dict[str, Any]:
        """Return the facts as JSON values, under names like the names in ``commitInfo``."""
        return {
            "version": self.version,
            "timestamp": self.timestamp_ms,
            "operation": self.operation,
            "dataChange": self.data_change,
            "numAddedFiles": self.num_added_files,
            "numRemovedFiles": self.num_removed_files,
            "numAddedRows": self.num_added_rows,
            "numDeletedRows": self.num_deleted_rows,
            "numPartitions": len(self.partitions),
            "partitions": [dict(partition) for partition in self.partitions[:max_partitions]],
            "transactions": dict(self.transactions),
        }


class CommitFilter(Struct, frozen=True):
    """Chooses the commits that a watcher reports.

    :param data_change_only: ``True``: leave out commits that change no data, so that maintenance triggers no DAG.
    :param operations: operations to include, in upper case; empty: all.
    :param partitions: raw values by column. Only commits are reported that touched a partition that fits: for each of these
        columns, it has one of these raw values. Empty: all.
    :param min_rows: number of rows that commits must have together before they are reported. A commit with an unknown number of
        rows counts as enough.
    """

    data_change_only: bool = True
    operations: frozenset[str] = frozenset()
    partitions: Mapping[str, frozenset[str | None]] = field(default_factory=dict)
    min_rows: int = 0

    @classmethod
    def of(
        cls,
        *,
        data_change_only: bool = True,
        operations: Iterable[str] | None = None,
        partitions: Mapping[str, Any] | None = None,
        min_rows: int = 0,
    ) -> CommitFilter:
        """Make a filter from what a user writes: one value or several for each partition column."""
        return cls(
            data_change_only,
            frozenset(name.upper() for name in operations or ()),
            {column: _raw_values(values) for column, values in (partitions or {}).items()},
            min_rows,
        )

    def passes(self, commit: CommitSummary) -> bool:
        if self.data_change_only and not commit.data_change:
            return False
        if self.operations and commit.operation.upper() not in self.operations:
            return False
        return not self.partitions or any(self._fits(partition) for partition in commit.partitions)

    def _fits(self, partition: Mapping[str, str | None]) -> bool:
        return all(
            column in partition and partition[column] in values for column, values in self.partitions.items()
        )

    def is_enough(self, commits: Sequence[CommitSummary]) -> bool:
        """Tell whether there are commits with enough rows to report them."""
        if not commits:
            return False
        rows = [commit.num_rows for commit in commits]
        return None in rows or sum(count or 0 for count in rows) >= self.min_rows


def _raw_values(values: Any) -> frozenset[str | None]:
    several = values if isinstance(values, Collection) and not isinstance(values, str) else [values]
    return frozenset(None if value is None else str(value) for value in several)


def summarise(
    version: int,
    actions: Sequence[Action],
    file_time_ms: int | None,
    logical_names: Mapping[str, str] | None = None,
) -> CommitSummary:
    """Summarise one commit.

    :param file_time_ms: the commit file's time, used where ``commitInfo`` gives none; ``None``: unknown, the result is 0.
    :param logical_names: logical names of partition columns by physical ones, where they differ.
    """
    raw = next((a.commitInfo for a in actions if a.commitInfo is not None), {})
    stated_ms = stated_time_ms(raw)
    adds = [a.add for a in actions if a.add is not None and a.add.dataChange is not False]
    removes = [a.remove for a in actions if a.remove is not None and a.remove.dataChange is not False]
    added, deleted = _rows(adds, removes)
    metrics = raw.get("operationMetrics")
    if adds and added is None:
        added = _metric(metrics, _ADDED_METRICS)
    if removes and deleted is None:
        deleted = _metric(metrics, _DELETED_METRICS)
    operation = raw.get("operation")
    return CommitSummary(
        version=version,
        timestamp_ms=(file_time_ms or 0) if stated_ms is None else stated_ms,
        operation=operation if isinstance(operation, str) else "",
        data_change=bool(adds or removes),
        num_added_files=sum(a.add is not None for a in actions),
        num_removed_files=sum(a.remove is not None for a in actions),
        num_added_rows=added,
        num_deleted_rows=deleted,
        partitions=_partitions([*adds, *removes], logical_names or {}),
        transactions={a.txn.appId: a.txn.version for a in actions if a.txn is not None},
    )


def _rows(adds: Sequence[Add], removes: Sequence[Remove]) -> tuple[int | None, int | None]:
    """Count added and deleted rows. A file that only gets another deletion vector adds none."""
    before = {remove.path: remove for remove in removes}
    added: int | None = 0
    deleted: int | None = 0
    for add in adds:
        remove = before.pop(add.path, None)
        if remove is None:
            added = _sum(added, _live_rows(add))
        else:
            deleted = _sum(deleted, _hidden(add) - _hidden(remove))
    for remove in before.values():
        deleted = _sum(deleted, _live_rows(remove))
    return added, deleted


def _sum(total: int | None, more: int | None) -> int | None:
    return None if total is None or more is None else total + more


def _live_rows(file: Add | Remove) -> int | None:
    try:
        records = json.loads(file.stats or "null")
    except (ValueError, RecursionError):
        return None
    count = records.get("numRecords") if isinstance(records, dict) else None
    if not isinstance(count, int) or isinstance(count, bool) or not 0 <= count <= MAX_ROW_ID:
        return None
    return count - _hidden(file)


def _hidden(file: Add | Remove) -> int:
    return file.deletionVector.cardinality if file.deletionVector is not None else 0


def _metric(metrics: Any, names: Iterable[str]) -> int | None:
    """Return the first metric that is a number. Writers write numbers as JSON numbers or as strings."""
    stated = [str(metrics.get(name)) for name in names] if isinstance(metrics, Mapping) else []
    return next((count for count in map(whole_number, stated) if count is not None), None)


def _partitions(
    files: Iterable[Add | Remove], logical_names: Mapping[str, str]
) -> tuple[Mapping[str, str | None], ...]:
    """Return each partition once, in the order of the commit."""
    met: dict[tuple[tuple[str, str | None], ...], None] = {}
    for file in files:
        if file.partitionValues:
            met[tuple(sorted(file.partitionValues.items()))] = None
    return tuple(
        {logical_names.get(name, name): value or None for name, value in partition} for partition in met
    )
