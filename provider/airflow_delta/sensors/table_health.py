"""Waiting until a table wants maintenance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_delta.sensors.table_measure import TableMeasureSensor
from airflow_delta.triggers.table_health import DeltaTableHealthTrigger
from delta_maintenance.options import Count, Option, Size

if TYPE_CHECKING:
    from datetime import timedelta


class DeltaTableHealthSensor(TableMeasureSensor):
    """Waits until a table has more of something than a limit; the XCom has the counts, and which limits they pass."""

    own_arguments = (
        Option(
            "small_files",
            Count("files"),
            "most files smaller than small_file_size that OPTIMIZE may find to merge",
        ),
        Option("small_file_size", Size(), "size below which a file is small", argument_default="32MiB"),
        Option(
            "commits_since_checkpoint",
            Count("commits"),
            "most commits that may follow the newest checkpoint; every reader replays them",
        ),
        Option("tombstones", Count("files"), "most removed files that the log may still name"),
    )

    if TYPE_CHECKING:
        table: str
        delta_conn_id: str | None
        small_files: int | str | None
        small_file_size: int | str
        commits_since_checkpoint: int | str | None
        tombstones: int | str | None

        def __init__(
            self,
            *,
            table: str,
            delta_conn_id: str | None = None,
            small_files: int | str | None = None,
            small_file_size: int | str = "32MiB",
            commits_since_checkpoint: int | str | None = None,
            tombstones: int | str | None = None,
            deferrable: bool | None = None,
            poke_interval: timedelta | float = 30,
            **kwargs: Any,
        ) -> None: ...

    def check_known(self) -> None:
        if self.small_files is None and self.commits_since_checkpoint is None and self.tombstones is None:
            raise ValueError("No limit is given. Give small_files, commits_since_checkpoint or tombstones.")
        super().check_known()

    def trigger(self) -> DeltaTableHealthTrigger:
        return DeltaTableHealthTrigger(
            self.value_of("table"),
            self.value_of("delta_conn_id"),
            max(self.poke_interval, 0.1),
            small_files=self.value_of("small_files"),
            small_file_bytes=self.value_of("small_file_size"),
            commits_since_checkpoint=self.value_of("commits_since_checkpoint"),
            tombstones=self.value_of("tombstones"),
        )

    def summary(self, finding: Mapping[str, Any]) -> str:
        return f"too much of {', '.join(finding['passed'])}"
