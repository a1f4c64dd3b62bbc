"""CHECKPOINT: readers open a table from one file instead of from hundreds of commits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_delta.operators.base import DeltaJobOperator
from delta_maintenance.log_upkeep.options import CHECKPOINT

if TYPE_CHECKING:
    from airflow_delta.runners.driver import DriverLauncher


class DeltaCheckpointOperator(DeltaJobOperator):
    """Writes a checkpoint of a Delta table's newest version. It adds no version, and needs no Spark.

    The XCom is the job's report: ``status``, ``version``, ``plan`` with the reasons why a checkpoint was due or not, and
    ``metrics`` named as the log names them (``size`` in actions, ``numOfAddFiles``, ``sizeInBytes``).
    """

    operation = CHECKPOINT

    if TYPE_CHECKING:
        table: str
        delta_conn_id: str | None
        spark_conn_id: str
        engine: str
        memory_limit: int | str
        parallelism: int | str | None
        executor_credentials: str
        spark_conf: dict[str, Any] | None
        spark_binary: str | None
        deploy_mode: str | None
        cluster_application: str | None
        emit_events: str | None
        asset_alias: str | None
        emit_data_asset: bool | str
        policy: str | None
        top_format: str | None
        full: bool | str
        if_due: bool | str
        compact_log: bool | str
        cleanup_log: bool | str
        repair_checksum: bool | str

        def __init__(
            self,
            *,
            table: str,
            delta_conn_id: str | None = None,
            spark_conn_id: str = "spark_default",
            engine: str = "local",
            dry_run: bool | str = False,
            memory_limit: int | str = "1GiB",
            parallelism: int | str | None = None,
            executor_credentials: str = "job",
            spark_conf: dict[str, Any] | None = None,
            spark_binary: str | None = None,
            deploy_mode: str | None = None,
            cluster_application: str | None = None,
            emit_events: str | None = None,
            asset_alias: str | None = None,
            emit_data_asset: bool | str = False,
            policy: str | None = None,
            top_format: str | None = None,
            full: bool | str = False,
            if_due: bool | str = True,
            compact_log: bool | str = False,
            cleanup_log: bool | str = False,
            repair_checksum: bool | str = False,
            deferrable: bool | None = None,
            launcher: DriverLauncher | None = None,
            **kwargs: Any,
        ) -> None: ...
