"""Waiting until deletion vectors hide too much of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_delta.operators import arguments
from airflow_delta.operators.arguments import Argument
from airflow_delta.sensors.base import DeltaTableSensor
from airflow_delta.sensors.table_measure import TableMeasureSensor
from airflow_delta.triggers.deletion_vector_ratio import DeltaDeletionVectorRatioTrigger


class DeltaDeletionVectorRatioSensor(TableMeasureSensor):
    """Waits until deleted rows pass a limit; the XCom names the partitions, and a ``where`` for the purge of them.

    :param ratio: deleted rows by all rows; ``None``: no such limit. (templated)
    :param file_ratio: the share of hidden rows from which on a file counts for the next two. (templated)
    :param files: more such files than this. (templated)
    :param size: such files that weigh more than this together, such as ``10GiB``. (templated)
    :param per_partition: measure each partition by itself; else the table as a whole. (templated)

    Further parameters: :class:`~airflow_delta.sensors.base.DeltaTableSensor`.
    """

    template_fields: Sequence[str] = (
        *DeltaTableSensor.template_fields,
        "ratio",
        "file_ratio",
        "files",
        "size",
        "per_partition",
    )
    arguments: ClassVar[Mapping[str, Argument]] = {
        **DeltaTableSensor.arguments,
        "ratio": Argument("ratio", arguments.read_ratio),
        "file_ratio": Argument("file_ratio", arguments.read_ratio, required=True),
        "files": Argument("files", arguments.read_count),
        "size": Argument("size", arguments.read_size),
        "per_partition": Argument("per_partition", arguments.read_switch, required=True),
    }

    def __init__(
        self,
        *,
        ratio: float | str | None = 0.1,
        file_ratio: float | str = 0.1,
        files: int | str | None = None,
        size: int | str | None = None,
        per_partition: bool | str = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.ratio = ratio
        self.file_ratio = file_ratio
        self.files = files
        self.size = size
        self.per_partition = per_partition
        self.check_known()

    def trigger(self) -> DeltaDeletionVectorRatioTrigger:
        return DeltaDeletionVectorRatioTrigger(
            self.value_of("table"),
            self.value_of("delta_conn_id"),
            max(self.poke_interval, 0.1),
            ratio=self.value_of("ratio"),
            file_ratio=self.value_of("file_ratio"),
            files=self.value_of("files"),
            size_bytes=self.value_of("size"),
            per_partition=self.value_of("per_partition"),
        )

    def summary(self, finding: Mapping[str, Any]) -> str:
        return (
            f"{finding['numDeletedRows']} of {finding['numRows']} rows are deleted, "
            f"{finding['numPartitions']} partitions pass the limit"
        )
