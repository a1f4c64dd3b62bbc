"""Lineage of a maintenance job for OpenLineage, where Airflow's provider for it is installed.

Maintenance reads a table and writes the same table. A rewrite that committed tells the version that it read and the one that it
made, the rows, bytes and files that it wrote, and that each column comes from itself, unchanged.

OpenLineage calls :func:`lineage_at_start` and :func:`lineage_at_end` as methods of an operator, in the process of the task. It is
imported within them only. They are functions, since Airflow looks through every base class of an operator whenever it sets one of
its seventy attributes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from delta_log.storage.table_uri import TableUri, is_name

if TYPE_CHECKING:
    from airflow.providers.common.compat.openlineage.facet import Dataset, InputDataset, OutputDataset
    from airflow.providers.openlineage.extractors import OperatorLineage

    from delta_maintenance.contract import JobReport

    Lineage = OperatorLineage[Any, Any]


def dataset_name(table: str) -> tuple[str, str]:
    """Namespace and name of a table by OpenLineage's rules: ``("s3://lake", "sales/events")``, ``("file", "/data/events")``.

    :raises InvalidRequest: the address is relative, carries credentials, or has more than one meaning.
    """
    uri = TableUri.parse(table)
    path = "/".join(uri.segments)
    if not uri.scheme:
        return "file", f"/{path}"
    return f"{uri.scheme}://{uri.authority}", path or "/"


class ReportingTask(Protocol):
    """What this module needs of an operator.

    :ivar report: report of the job, once it has ended.
    """

    table: str
    report: JobReport | None


def lineage_at_start(operator: ReportingTask) -> Lineage:
    return lineage_of(operator.table, None)


def lineage_at_end(operator: ReportingTask, task_instance: Any) -> Lineage:  # noqa: ARG001 - OpenLineage gives it
    return lineage_of(operator.table, operator.report)


def lineage_of(table: str, report: JobReport | None) -> Lineage:
    """
    :param table: address of the table. A name stands for no data set before it was looked up; the report has the address that was
        found.
    :param report: report of the job; ``None`` while it has not ended.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage

    if report is not None and report.location is not None:
        table = report.location
    if is_name(table):
        return OperatorLineage()
    if report is not None and report.status in ("planned", "nothing_to_do"):
        return OperatorLineage(inputs=[_input(table, report)])
    return OperatorLineage(inputs=[_input(table, report)], outputs=[_output(table, report)])


def _input(table: str, report: JobReport | None) -> InputDataset:
    from airflow.providers.common.compat.openlineage.facet import InputDataset

    namespace, name = dataset_name(table)
    version = None if report is None else report.read_version
    return InputDataset(namespace=namespace, name=name, facets=_version(version))


def _output(table: str, report: JobReport | None) -> OutputDataset:
    from airflow.providers.common.compat.openlineage.facet import (
        OutputDataset,
        OutputStatisticsOutputDatasetFacet,
    )

    namespace, name = dataset_name(table)
    dataset = OutputDataset(namespace=namespace, name=name)
    if report is None:
        return dataset
    dataset.facets = {**_version(report.version), **_columns(dataset, report)}
    written = report.metrics.get("numAddedFiles")
    if written:
        dataset.outputFacets = {
            "outputStatistics": OutputStatisticsOutputDatasetFacet(
                rowCount=report.metrics.get("numOutputRows"),
                size=report.metrics.get("numAddedBytes"),
                fileCount=written,
            )
        }
    return dataset


def _version(version: int | None) -> dict[str, Any]:
    from openlineage.client.facet_v2 import dataset_version_dataset

    if version is None:
        return {}
    return {"version": dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(version))}


def _columns(dataset: Dataset, report: JobReport) -> dict[str, Any]:
    """Each column comes from the same column of the same table; no value changes."""
    from openlineage.client.facet_v2 import column_lineage_dataset as lineage

    if not report.columns:
        return {}
    identity = lineage.Transformation(type="DIRECT", subtype="IDENTITY")
    fields = {
        column: lineage.Fields(
            inputFields=[
                lineage.InputField(
                    namespace=dataset.namespace, name=dataset.name, field=column, transformations=[identity]
                )
            ]
        )
        for column in report.columns
    }
    return {"columnLineage": lineage.ColumnLineageDatasetFacet(fields=fields)}
