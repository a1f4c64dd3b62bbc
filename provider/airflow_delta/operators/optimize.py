"""OPTIMIZE: many small files become few large ones, and deleted rows leave the files in which they are marked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_delta.operators.base import DeltaJobOperator
from delta_maintenance.optimize.options import OPTIMIZE

if TYPE_CHECKING:
    from airflow_delta.runners.driver import DriverLauncher


class DeltaOptimizeOperator(DeltaJobOperator):
    """Compacts the files of a Delta table. No row changes, and readers and writers need not stop.

    The XCom is the job's report: ``status``, ``version``, and ``metrics`` named as Spark names them.
    """

    operation = OPTIMIZE

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
        where: str | None
        target_size: int | str | None
        min_file_size: int | str | None
        max_file_size: int | str | None
        max_deleted_rows_ratio: float | str | None
        full: bool | str
        zorder_by: str | list[str] | None
        layout: str | None
        by: str | list[str] | None
        seal_size: int | str | None
        own_cubes: bool | str
        max_bytes: int | str | None
        max_files: int | str | None
        max_duration: int | str | None
        quiet_minutes: int | str | None
        hot_partitions: str | None
        batch_size: int | str | None
        rewrite: str | None
        verify: str | None
        on_broken_source: str | None
        remap: bool | str
        commit_when: str | None
        max_wait: int | str | None
        after_max_wait: str | None
        output_uri: str | None
        approved_plan: Any

        def __init__(
            self,
            *,
            table: str,
            delta_conn_id: str | None = None,
            spark_conn_id: str = "spark_default",
            engine: str = "auto",
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
            where: str | None = None,
            target_size: int | str | None = None,
            min_file_size: int | str | None = None,
            max_file_size: int | str | None = None,
            max_deleted_rows_ratio: float | str | None = None,
            full: bool | str = False,
            zorder_by: str | list[str] | None = None,
            layout: str | None = None,
            by: str | list[str] | None = None,
            seal_size: int | str | None = None,
            own_cubes: bool | str = False,
            max_bytes: int | str | None = None,
            max_files: int | str | None = None,
            max_duration: int | str | None = None,
            quiet_minutes: int | str | None = None,
            hot_partitions: str | None = None,
            batch_size: int | str | None = None,
            rewrite: str | None = None,
            verify: str | None = None,
            on_broken_source: str | None = None,
            remap: bool | str = False,
            commit_when: str | None = None,
            max_wait: int | str | None = None,
            after_max_wait: str | None = None,
            output: str | None = None,
            approved_plan: Any = None,
            deferrable: bool | None = None,
            launcher: DriverLauncher | None = None,
            **kwargs: Any,
        ) -> None: ...
