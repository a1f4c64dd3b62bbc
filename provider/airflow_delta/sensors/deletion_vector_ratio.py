"""Waiting until deletion vectors hide too much of a table."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_delta.sensors.table_measure import TableMeasureSensor
from airflow_delta.triggers.deletion_vector_ratio import DeltaDeletionVectorRatioTrigger
from delta_maintenance.options import Count, Option, Ratio, Size, Switch

if TYPE_CHECKING:
    from datetime import timedelta


class DeltaDeletionVectorRatioSensor(TableMeasureSensor):
    """Waits until deleted rows pass a limit; the XCom names the partitions, and a ``where`` for the purge of them."""

    own_arguments = (
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

    if TYPE_CHECKING:
        table: str
        delta_conn_id: str | None
        ratio: float | str | None
        file_ratio: float | str
        files: int | str | None
        size: int | str | None
        per_partition: bool | str

        def __init__(
            self,
            *,
            table: str,
            delta_conn_id: str | None = None,
            ratio: float | str | None = 0.1,
            file_ratio: float | str = 0.1,
            files: int | str | None = None,
            size: int | str | None = None,
            per_partition: bool | str = True,
            deferrable: bool | None = None,
            poke_interval: timedelta | float = 30,
            **kwargs: Any,
        ) -> None: ...

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
