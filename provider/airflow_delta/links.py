"""Links of a task to pages about its job: the Spark application, the table in a catalog, and the table on the page *Delta tables*.

Airflow asks for a link in the process of the task when that has ended, and keeps it as an XCom, even an empty one. So a task that ends
keeps only the links that lead somewhere (:func:`leading_links`). A link without an XCom is not shown. A task that sees its job's output
shows the Spark UI as soon as there is one.

Addresses of pages are templates in Airflow's configuration (``[delta] spark_history_url``, ``[delta] table_url``), since each
installation has other history servers, proxies and catalogs.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from airflow.sdk import BaseOperatorLink
from airflow.sdk.configuration import conf

from airflow_delta.monitoring.page_address import path_of_airflow, path_of_table

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

_SECTION, _HISTORY, _TABLE = "delta", "spark_history_url", "table_url"


class _Link(BaseOperatorLink):
    """A link to a page whose address a task knows when it ends."""

    @abstractmethod
    def address(self, operator: BaseOperator) -> str:
        """The address of the page; empty: there is none."""

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return self.address(operator)


@contextmanager
def leading_links(operator: BaseOperator) -> Iterator[None]:
    """Leave the operator with the links that lead somewhere, however the block ends."""
    try:
        yield
    finally:
        operator.operator_extra_links = tuple(
            link
            for link in type(operator).operator_extra_links
            if not isinstance(link, _Link) or link.address(operator)
        )


class SparkApplicationLink(_Link):
    """The Spark application of a job: its UI while it runs, then its page in the history server, if one is configured."""

    name = "Spark application"

    def address(self, operator: BaseOperator) -> str:
        report = getattr(operator, "report", None)
        told = getattr(operator, "spark_application", None)
        spark = told if report is None or report.spark is None else report.spark
        return "" if spark is None else spark_url(spark, conf.get(_SECTION, _HISTORY, fallback=None))

    def show(self, instance: Any, spark: Mapping[str, Any]) -> None:
        """Show the application's own UI while the task runs.

        :param instance: the task instance of the context.
        """
        url = spark_url(spark, None)
        if url:
            instance.xcom_push(key=self.xcom_key, value=url)


class TableLink(_Link):
    """The page of the table in a catalog, if one is configured."""

    name = "Table"

    def address(self, operator: BaseOperator) -> str:
        template = conf.get(_SECTION, _TABLE, fallback=None)
        return filled(template, "table", str(getattr(operator, "table", "")))


class TablePageLink(_Link):
    """The table on the page *Delta tables* of this Airflow."""

    name = "Delta tables"

    def address(self, operator: BaseOperator) -> str:
        table = str(getattr(operator, "table", ""))
        if not table or not conf.getboolean(_SECTION, "monitoring", fallback=True):
            return ""
        return f"{path_of_airflow()}{path_of_table(table)}"


def spark_url(spark: Mapping[str, Any], history_url: str | None) -> str:
    """The page of an application.

    :param spark: member ``spark`` of a :class:`~delta_maintenance.contract.JobReport`.
    :param history_url: template with ``{application_id}``.
    """
    return filled(history_url, "application_id", spark.get("application_id")) or _web(spark.get("ui_url"))


def filled(template: str | None, name: str, value: str | None) -> str:
    """A template's address with a value, escaped, in the place of its name; empty without a template or a value."""
    if not template or not value:
        return ""
    return _web(template.strip().replace(f"{{{name}}}", quote(value, safe="")))


def _web(url: str | None) -> str:
    """An address that a browser may be led to; empty for any other, such as a script."""
    return url if url and url.lower().startswith(("http://", "https://")) else ""
