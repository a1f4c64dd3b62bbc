"""Waiting until a table wants maintenance."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_delta.operators.arguments import by_attribute
from airflow_delta.sensors.base import DeltaTableSensor
from airflow_delta.sensors.table_measure import TableMeasureSensor
from airflow_delta.triggers.table_health import DeltaTableHealthTrigger
from delta_maintenance.options import Count, Option, Size


class DeltaTableHealthSensor(TableMeasureSensor):
    """Waits until a table has more of something than a limit; the XCom has the counts, and which limits they pass.

    The sensor also takes the arguments of :class:`~airflow_delta.sensors.base.DeltaTableSensor`.

    :param small_files: most files smaller than ``small_file_size`` that OPTIMIZE may find to merge. (templated)
    :param small_file_size: size below which a file is small. (templated)
    :param commits_since_checkpoint: most commits that may follow the newest checkpoint; every reader replays them. (templated)
    :param tombstones: most removed files that the log may still name. (templated)
    """

    arguments = by_attribute(
        *DeltaTableSensor.arguments.values(),
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
    template_fields = (
        *DeltaTableSensor.template_fields,
        "small_files",
        "small_file_size",
        "commits_since_checkpoint",
        "tombstones",
    )

    def __init__(
        self,
        *,
        small_files: int | str | None = None,
        small_file_size: int | str = "32MiB",
        commits_since_checkpoint: int | str | None = None,
        tombstones: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.small_files = small_files
        self.small_file_size = small_file_size
        self.commits_since_checkpoint = commits_since_checkpoint
        self.tombstones = tombstones
        self.check_known()

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
