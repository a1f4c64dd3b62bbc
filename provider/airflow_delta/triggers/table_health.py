"""Trigger for a table that needs maintenance; for assets (``AssetWatcher``) and sensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from airflow_delta import watch_memory
from airflow_delta.triggers.table_measure import HealthMeasure
from airflow_delta.triggers.table_measure_trigger import TableMeasureTrigger


class DeltaTableHealthTrigger(TableMeasureTrigger):
    """Fires when a table has too many small files, commits since its checkpoint, or tombstones.

    It fires once. It fires again when a further limit is passed, or one that was not passed any more in between.

    :param small_files: most files that OPTIMIZE may find to merge.
    :param small_file_bytes: size below which a file is small.
    :param commits_since_checkpoint: most commits that may follow the newest checkpoint.
    :param tombstones: most removed files that the log may still name.

    Further parameters: :class:`~airflow_delta.triggers.table_event_trigger.TableEventTrigger`.
    """

    state_prefix = watch_memory.HEALTH
    measure_class = HealthMeasure

    def __init__(
        self,
        table: str | Sequence[str],
        delta_conn_id: str | None = None,
        poll_interval: float = 60.0,
        *,
        small_files: int | None = None,
        small_file_bytes: int = 32 << 20,
        commits_since_checkpoint: int | None = None,
        tombstones: int | None = None,
        queue: str | None = None,
    ) -> None:
        if small_files is None and commits_since_checkpoint is None and tombstones is None:
            raise ValueError("No limit is given. Give small_files, commits_since_checkpoint or tombstones.")
        limits = {
            "small_files": small_files,
            "small_file_bytes": small_file_bytes,
            "commits_since_checkpoint": commits_since_checkpoint,
            "tombstones": tombstones,
        }
        super().__init__(table, delta_conn_id, poll_interval, limits=limits, queue=queue)

    def passed(self, finding: Mapping[str, Any]) -> list[str]:
        return list(finding["passed"])
