"""Waiting until a table wants maintenance."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_delta.operators import arguments
from airflow_delta.operators.arguments import Argument
from airflow_delta.sensors.base import DeltaTableSensor
from airflow_delta.sensors.table_measure import TableMeasureSensor
from airflow_delta.triggers.table_health import DeltaTableHealthTrigger


class DeltaTableHealthSensor(TableMeasureSensor):
    """Waits until a table has more of something than a limit; the XCom has the counts, and which limits they pass.

    :param small_files: files of less than `small_file_size`. (templated)
    :param small_file_size: what a small file is, such as ``32MiB``. (templated)
    :param commits_since_checkpoint: commits that every reader replays. (templated)
    :param tombstones: removed files that the log still names. (templated)

    Further parameters: :class:`~airflow_delta.sensors.base.DeltaTableSensor`.
    """

    template_fields: Sequence[str] = (
        *DeltaTableSensor.template_fields,
        "small_files",
        "small_file_size",
        "commits_since_checkpoint",
        "tombstones",
    )
    arguments: ClassVar[Mapping[str, Argument]] = {
        **DeltaTableSensor.arguments,
        "small_files": Argument("small_files", arguments.read_count),
        "small_file_size": Argument("small_file_size", arguments.read_size, required=True),
        "commits_since_checkpoint": Argument("commits_since_checkpoint", arguments.read_count),
        "tombstones": Argument("tombstones", arguments.read_count),
    }

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
        if small_files is None and commits_since_checkpoint is None and tombstones is None:
            raise ValueError("No limit is given. Give small_files, commits_since_checkpoint or tombstones.")
        self.small_files = small_files
        self.small_file_size = small_file_size
        self.commits_since_checkpoint = commits_since_checkpoint
        self.tombstones = tombstones
        self.check_known()

    def trigger(self) -> DeltaTableHealthTrigger:
        limits = {
            "small_files": self.value_of("small_files"),
            "small_file_bytes": self.value_of("small_file_size"),
            "commits_since_checkpoint": self.value_of("commits_since_checkpoint"),
            "tombstones": self.value_of("tombstones"),
        }
        return DeltaTableHealthTrigger(
            self.value_of("table"),
            self.value_of("delta_conn_id"),
            max(self.poke_interval, 0.1),
            limits=limits,
        )

    def summary(self, finding: Mapping[str, Any]) -> str:
        return f"too much of {', '.join(finding['passed'])}"
