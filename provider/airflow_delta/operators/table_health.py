"""Table health: what a table needs, as the XCom of a task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException

from airflow_delta.hooks.delta_table import DeltaTableHook
from airflow_delta.links import TableLink, TablePageLink, leading_links
from airflow_delta.notifications.failures import forget_failures
from airflow_delta.operators.arguments import DELTA_CONN_ID, TABLE, CheckedArguments
from airflow_delta.operators.failure import raise_for_error, with_connection
from airflow_delta.operators.monitoring import report_failure, report_health
from airflow_delta.operators.table_stats import gauge_failure, gauge_health
from delta_log.printable import printable
from delta_log.storage.table_uri import is_name
from delta_maintenance.errors import error_report
from delta_maintenance.fast_start import convert_without_pandas
from delta_maintenance.health.options import HEALTH
from delta_maintenance.options import Operation, Option

if TYPE_CHECKING:
    from airflow.sdk import Context


class DeltaTableHealthOperator(CheckedArguments, BaseOperator):
    """Reads what a Delta table needs: facts, findings, and the operations that would help. It writes nothing.

    The XCom is the document: ``status``, ``facts``, ``findings`` and ``recommendations``, each with the operator and its
    arguments. The task reads the log itself and starts no job. It succeeds whatever the status is.
    """

    operation: ClassVar[Operation] = HEALTH
    own_arguments: ClassVar[Sequence[Option]] = (TABLE, DELTA_CONN_ID, *HEALTH.options)
    ui_color = "#e3f4f7"
    operator_extra_links = (TableLink(), TablePageLink())
    #: The reading, once the task has made it.
    document: dict[str, Any] | None = None

    if TYPE_CHECKING:
        table: str
        delta_conn_id: str | None
        small_files: int | str | None
        deleted_rows_ratio: float | str | None
        reclaimable_size: int | str | None
        expired_log_files: int | str | None
        layout_gain: float | str | None
        target_size: int | str | None
        min_file_size: int | str | None
        queries: str | list[str] | None
        compact_log: bool | str

        def __init__(
            self,
            *,
            table: str,
            delta_conn_id: str | None = None,
            small_files: int | str | None = None,
            deleted_rows_ratio: float | str | None = None,
            reclaimable_size: int | str | None = None,
            expired_log_files: int | str | None = None,
            layout_gain: float | str | None = None,
            target_size: int | str | None = None,
            min_file_size: int | str | None = None,
            queries: str | list[str] | None = None,
            compact_log: bool | str = False,
            **kwargs: Any,
        ) -> None: ...

    def execute(self, context: Context) -> dict[str, Any]:
        with leading_links(self):
            return self._read(context)

    def _read(self, context: Context) -> dict[str, Any]:
        self.check_all()
        # The process of the task does nothing else, and pandas would be a third of the memory that the reading takes.
        convert_without_pandas()
        # Imported here, since they load pyarrow, and a DAG file imports this module.
        from delta_log.runtime import Runtime
        from delta_maintenance.health.document import health_of
        from delta_maintenance.health.options import HealthOptions
        from delta_maintenance.text.health import render_health

        given = {row.name: self.value_of(row.attribute) for row in HEALTH.options}
        hook = DeltaTableHook(self.value_of("delta_conn_id"))
        try:
            table = hook.get_table(self.table)
            if is_name(self.table):
                self.log.info("%s is at %s.", printable(self.table), printable(table.uri))
            options = HealthOptions.from_mapping(HEALTH.spec_options(given))
            document = health_of(table, self.table, options, Runtime())
        except AirflowException:
            raise
        except Exception as error:  # noqa: BLE001 - it becomes Airflow's, and fails the task
            told = error_report(error)
            told = replace(told, message=with_connection(told.message, hook.delta_conn_id))
            report_failure(context, HEALTH.name, self.table, told, self)
            gauge_failure(context, HEALTH.name, self.table)
            raise_for_error(told, HEALTH.name, self.table)
        for line in render_health(document).splitlines():
            self.log.info("%s", printable(line))
        self.document = document
        gauge_health(context, document)
        report_health(context, document, self)
        forget_failures(context, self)
        return document
