"""REORG PURGE: deleted rows and dropped columns leave the files that hold them."""

from __future__ import annotations

from typing import Any

from airflow_delta.operators.arguments import by_attribute
from airflow_delta.operators.base import JOB_ARGUMENTS
from airflow_delta.operators.rewrite import DeltaRewriteOperator
from delta_maintenance.optimize.options import PURGE


class DeltaReorgPurgeOperator(DeltaRewriteOperator):
    """Rewrites the files of a Delta table in which rows are only marked as deleted, or that hold columns which the table
    has dropped: ``REORG TABLE … APPLY (PURGE)``. A second run finds nothing to do.

    What is purged stays in the old files until a VACUUM deletes them.

    The XCom is the job's report: ``status``, ``version``, and ``metrics`` named as Spark names them. The operator takes the
    arguments of :class:`~airflow_delta.operators.rewrite.DeltaRewriteOperator`.
    """

    operation = PURGE
    arguments = by_attribute(*JOB_ARGUMENTS, *PURGE.options)

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.check_known()
