"""Trigger for deleted rows that a table still holds; for assets (``AssetWatcher``) and sensors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta import watch_memory
from airflow_delta.triggers.table_measure import DeletedRowsMeasure
from airflow_delta.triggers.table_measure_trigger import TableMeasureTrigger


class DeltaDeletionVectorRatioTrigger(TableMeasureTrigger):
    """Fires when deletion vectors hide more than a limit; the event names the partitions, and a ``where`` for them.

    It fires once. It fires again when a further partition passes the limit, or when a partition passes it that had been rewritten
    in between.

    :param ratio: limit for the share of deleted rows; ``None``: no such limit.
    :param file_ratio: share of hidden rows from which on a file counts for the next two limits.
    :param files: limit for the number of such files.
    :param size_bytes: limit for the size of such files together.
    :param per_partition: switch to measure each partition by itself, instead of the table as a whole.

    Further parameters: :class:`~airflow_delta.triggers.table_event_trigger.TableEventTrigger`.
    """

    state_prefix = watch_memory.DELETED_ROWS
    measure_class = DeletedRowsMeasure

    def __init__(  # noqa: PLR0913 - each is an option of its own, by keyword
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
        queue: str | None = None,
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
        super().__init__(table, delta_conn_id, poll_interval, limits=limits, queue=queue)

    def passed(self, finding: Mapping[str, Any]) -> list[str]:
        over = [_name(one["partition"]) for one in finding["partitions"]]
        return ["table"] if self.limits["per_partition"] is False and over else over


def _name(partition: dict[str, str | None]) -> str:
    return json.dumps(partition, sort_keys=True)
