"""GENERATE: readers that do not know Delta tables find the files of a table by manifests."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow_delta.operators.arguments import by_attribute
from airflow_delta.operators.base import LOCAL_JOB_ARGUMENTS, DeltaJobOperator
from delta_maintenance.generate.options import GENERATE


class DeltaGenerateOperator(DeltaJobOperator):
    """Writes manifests of a Delta table's newest version in Hive's symlink format. It adds no version, and needs no Spark.

    The XCom is the job's report: ``status``, ``plan``, and ``metrics`` with the manifests that were written and deleted. The
    operator also takes the arguments of :class:`~airflow_delta.operators.base.DeltaJobOperator`.

    :param engine: program that does the work; a GENERATE has no use for Spark. (templated)
    :param where: SQL predicate on partition columns; only manifests of partitions for which it is true are written or deleted.
        Default: every partition. (templated)
    """

    operation = GENERATE
    arguments = by_attribute(*LOCAL_JOB_ARGUMENTS, *GENERATE.options)
    template_fields = (*DeltaJobOperator.template_fields, "where")
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DeltaJobOperator.template_fields_renderers,
        "where": "sql",
    }

    def __init__(self, *, engine: str = "local", where: str | None = None, **kwargs: Any) -> None:
        super().__init__(engine=engine, **kwargs)
        self.where = where
        self.check_known()
