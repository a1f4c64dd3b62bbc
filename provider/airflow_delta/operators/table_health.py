"""Table health: what a table needs, as the XCom of a task."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from airflow.sdk import BaseOperator
from airflow.sdk.exceptions import AirflowException
from msgspec.structs import replace

from airflow_delta.hooks.delta_table import DeltaTableHook
from airflow_delta.links import TableLink, TablePageLink, leading_links
from airflow_delta.notifications.failures import forget_failures
from airflow_delta.operators.arguments import DELTA_CONN_ID, TABLE, CheckedArguments, by_attribute
from airflow_delta.operators.monitoring import report_failure, report_health
from airflow_delta.operators.reporting.failure import raise_for_error, with_connection
from airflow_delta.operators.reporting.table_stats import gauge_failure, gauge_health
from delta_log.printable import printable
from delta_log.storage.table_uri import is_name
from delta_maintenance.errors import error_report
from delta_maintenance.health.options import HEALTH
from delta_maintenance.process.fast_start import convert_without_pandas

if TYPE_CHECKING:
    from airflow.sdk import Context


class DeltaTableHealthOperator(CheckedArguments, BaseOperator):
    """Reads what a Delta table needs: facts, findings, and the operations that would help. It writes nothing.

    The XCom is the document: ``status``, ``facts``, ``findings`` and ``recommendations``, each with the operator and its
    arguments. The task reads the log itself and starts no job. It succeeds whatever the status is.

    :param table: address of the table: an absolute path, a URI such as ``s3://lake/events``, or a name in a catalog,
        ``glue://sales.events`` or ``uc://prod.sales.events``. (templated)
    :param delta_conn_id: connection with the credentials of the table's storage, of type delta, aws, google_cloud_platform,
        wasb, adls, azure_data_lake or azure, or of a catalog; default: the identity of the machine. (templated)
    :param small_files: most files that OPTIMIZE may find to merge; default: 10. (templated)
    :param deleted_rows_ratio: greatest part of deleted rows in any partition; default: 0.1. (templated)
    :param reclaimable_size: most bytes of removed files that VACUUM may find to delete; default: 1GiB. (templated)
    :param expired_log_files: most files of the log that may be older than its retention and not needed; default: 100. (templated)
    :param layout_gain: least part of the table that queries must skip in addition after a layout; default: 0.2. (templated)
    :param target_size: size of new files for which to plan an OPTIMIZE; default: the table's ``delta.targetFileSize``, else 1GiB.
        (templated)
    :param min_file_size: size below which a file is small; default: 3/4 of the target size. (templated)
    :param queries: predicates of typical queries, with semicolons between them, for which to look for a layout; default: a
        clustered table is judged by its own columns, others are not. (templated)
    :param compact_log: switch to look whether a log compaction would help readers, if no checkpoint is due. (templated)
    """

    operation = HEALTH
    arguments = by_attribute(TABLE, DELTA_CONN_ID, *HEALTH.options)
    template_fields = (
        "table",
        "delta_conn_id",
        "small_files",
        "deleted_rows_ratio",
        "reclaimable_size",
        "expired_log_files",
        "layout_gain",
        "target_size",
        "min_file_size",
        "queries",
        "compact_log",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {"queries": "sql"}
    ui_color = "#e3f4f7"
    operator_extra_links = (TableLink(), TablePageLink())
    #: The reading, once the task has made it.
    document: dict[str, Any] | None = None

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
    ) -> None:
        super().__init__(**kwargs)
        self.table = table
        self.delta_conn_id = delta_conn_id
        self.small_files = small_files
        self.deleted_rows_ratio = deleted_rows_ratio
        self.reclaimable_size = reclaimable_size
        self.expired_log_files = expired_log_files
        self.layout_gain = layout_gain
        self.target_size = target_size
        self.min_file_size = min_file_size
        self.queries = queries
        self.compact_log = compact_log
        self.check_known()

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
