"""ANALYZE: files get statistics that their writer left out, so that queries can skip them."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow_delta.operators.arguments import by_attribute
from airflow_delta.operators.base import LOCAL_JOB_ARGUMENTS, DeltaJobOperator
from delta_maintenance.analyze.options import ANALYZE


class DeltaAnalyzeOperator(DeltaJobOperator):
    """Computes the statistics of a Delta table's files anew where the log lacks them. No data file is touched.

    The XCom is the job's report: ``status``, ``version``, ``metrics``, and ``plan`` with the files that were looked at. The operator
    also takes the arguments of :class:`~airflow_delta.operators.base.DeltaJobOperator`.

    :param engine: program that does the work; an ANALYZE has no use for Spark. (templated)
    :param where: SQL predicate on partition columns; only files of partitions for which it is true are looked at. Default: every
        partition. (templated)
    :param every_file: switch to look at files that have statistics, too, and to correct statistics that are untrue. (templated)
    :param max_files: number of files that one run looks at; default: no limit. (templated)
    """

    operation = ANALYZE
    arguments = by_attribute(*LOCAL_JOB_ARGUMENTS, *ANALYZE.options)
    template_fields = (*DeltaJobOperator.template_fields, "where", "every_file", "max_files")
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DeltaJobOperator.template_fields_renderers,
        "where": "sql",
    }

    def __init__(
        self,
        *,
        engine: str = "local",
        where: str | None = None,
        every_file: bool | str = False,
        max_files: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(engine=engine, **kwargs)
        self.where = where
        self.every_file = every_file
        self.max_files = max_files
        self.check_known()
