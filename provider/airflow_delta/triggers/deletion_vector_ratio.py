"""Trigger for deleted rows that a table still holds; for assets (``AssetWatcher``) and sensors."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from airflow_delta.triggers.table_measure import DeletedRowsMeasure, TableMeasure
from airflow_delta.triggers.table_measure_trigger import TableMeasureTrigger

if TYPE_CHECKING:
    from airflow_delta.triggers.table_stream import WatchedTable


class DeltaDeletionVectorRatioTrigger(TableMeasureTrigger):
    """Fires when deletion vectors hide more than a limit; the event names the partitions, and a ``where`` for them.

    It fires once. It fires again when a further partition passes the limit, or when a partition passes it that had been rewritten
    in between.

    :param ratio: limit for the share of deleted rows; ``None``: no such limit.
    :param file_ratio: share of hidden rows from which on a file counts for the next two limits.
    :param files: limit for the number of such files.
    :param size_bytes: limit for the size of such files together.
    :param per_partition: measure each partition by itself, instead of the table as a whole.

    Further parameters: :class:`~airflow_delta.triggers.table_event_trigger.TableEventTrigger`.
    """

    state_prefix = "delta_deleted_rows"
    measure_class = DeletedRowsMeasure

    def __init__(
        self,
        table: str | Sequence[str],
        delta_conn_id: str | None = None,
        poll_interval: float = 60.0,
        *,
        ratio: float | None = 0.1,
        file_ratio: float = 0.1,
        files: int | None = None,
        size_bytes: int | None = None,
        per_partition: bool = True,
    ) -> None:
        if ratio is None and files is None and size_bytes is None:
            raise ValueError("No limit is given. Give ratio, files or size_bytes.")
        limits = {
            "ratio": ratio,
            "file_ratio": file_ratio,
            "files": files,
            "size_bytes": size_bytes,
            "per_partition": per_partition,
        }
        super().__init__(table, delta_conn_id, poll_interval, limits=limits)
        self._measures: dict[str, TableMeasure] = {}
        self._measured: dict[str, int] = {}
        #: The outcome of the last look, which Airflow may not have stored yet.
        self._known: dict[str, dict[str, Any]] = {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        path, kwargs = super().serialize()
        del kwargs["limits"]
        return path, {**kwargs, **self.limits}

    async def tell(self, table: WatchedTable, latest: int, deadline: float) -> AsyncIterator[dict[str, Any]]:
        if latest < 0 or self._measured.get(table.uri, -1) >= latest:
            return
        measure = self._measures.setdefault(table.uri, self.measure(table.uri))
        storage = await self.store.run(self.store.open, table.uri)
        found = await self.store.run(measure.finding, storage, latest)
        over = [] if found is None else [_name(one["partition"]) for one in found["partitions"]]
        if self.limits["per_partition"] is False and over:
            over = ["table"]
        known = self._known.get(table.uri) or self.recalled(table.uri) or {"over": []}
        if found is not None and not set(over) <= set(known["over"]):
            yield found
        self._measured[table.uri] = latest
        self._known[table.uri] = {"version": latest, "over": over}
        self.outcome(table.uri, self._known[table.uri])

    def earlier(self, one: Any, other: Any) -> Any:
        return min(one, other, key=lambda known: len(known["over"]))


def _name(partition: dict[str, str | None]) -> str:
    return json.dumps(partition, sort_keys=True)
