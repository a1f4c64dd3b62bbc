"""Waiting until deletion vectors hide too much of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_delta.operators.arguments import by_attribute
from airflow_delta.sensors.base import DeltaTableSensor
from airflow_delta.sensors.table_measure import TableMeasureSensor
from airflow_delta.triggers.deletion_vector_ratio import DeltaDeletionVectorRatioTrigger
from delta_maintenance.options import Count, Option, Ratio, Size, Switch


class DeltaDeletionVectorRatioSensor(TableMeasureSensor):
    """Waits until deleted rows pass a limit; the XCom names the partitions, and a ``where`` for the purge of them.

    The sensor also takes the arguments of :class:`~airflow_delta.sensors.base.DeltaTableSensor`.

    :param ratio: limit for the share of deleted rows; ``None``: no such limit. (templated)
    :param file_ratio: share of hidden rows from which on a file counts for the next two limits. (templated)
    :param files: limit for the number of such files. (templated)
    :param size: limit for the size of such files together, such as 10GiB. (templated)
    :param per_partition: switch to measure each partition by itself, instead of the table as a whole. (templated)
    """

    arguments = by_attribute(
        *DeltaTableSensor.arguments.values(),
        Option(
            "ratio",
            Ratio(),
            "limit for the share of deleted rows; None: no such limit",
            argument_default=0.1,
            required=False,
        ),
        Option(
            "file_ratio",
            Ratio(),
            "share of hidden rows from which on a file counts for the next two limits",
            argument_default=0.1,
        ),
        Option("files", Count("files"), "limit for the number of such files"),
        Option("size", Size(), "limit for the size of such files together, such as 10GiB"),
        Option(
            "per_partition",
            Switch(),
            "measure each partition by itself, instead of the table as a whole",
            argument_default=True,
        ),
    )
    template_fields = (
        *DeltaTableSensor.template_fields,
        "ratio",
        "file_ratio",
        "files",
        "size",
        "per_partition",
    )

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
