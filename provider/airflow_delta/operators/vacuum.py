"""VACUUM: files that no version in retention needs leave the store."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from airflow_delta.operators.base import DeltaJobOperator
from delta_maintenance.vacuum.options import VACUUM

if TYPE_CHECKING:
    from airflow_delta.runners.driver import DriverLauncher


class DeltaVacuumOperator(DeltaJobOperator):
    """Deletes files below a Delta table's root that no version in retention needs. No row changes.

    The XCom is the job's report: ``status``, ``version``, ``metrics`` with files and bytes, and ``plan`` with the reasons.
    """

    operation = VACUUM

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
        retain_hours: float | str | None
        retention_check: bool | str
        where: str | None
        lite: bool | str
        inventory: str | None
        require_proof: bool | str
        neighbours: str | None
        output_uri: str | None
        approved_plan: Any
        quarantine: bool | str
        purge_quarantine_hours: float | str | None

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
            retain_hours: float | str | None = None,
            retention_check: bool | str = True,
            where: str | None = None,
            lite: bool | str = False,
            inventory: str | None = None,
            require_proof: bool | str = False,
            neighbours: str | None = None,
            output: str | None = None,
            approved_plan: Any = None,
            quarantine: bool | str = False,
            purge_quarantine_hours: float | str | None = None,
            deferrable: bool | None = None,
            launcher: DriverLauncher | None = None,
            **kwargs: Any,
        ) -> None: ...
