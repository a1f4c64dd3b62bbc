"""REORG PURGE: deleted rows and dropped columns leave the files that hold them."""

from __future__ import annotations

from typing import Any

from airflow_delta.operators.rewrite import DeltaRewriteOperator


class DeltaReorgPurgeOperator(DeltaRewriteOperator):
    """Rewrites the files of a Delta table in which rows are only marked as deleted, or that hold columns which the table
    has dropped: ``REORG TABLE … APPLY (PURGE)``. A second run finds nothing to do.

    What is purged stays in the old files until a VACUUM deletes them.

    The XCom is the job's report: ``status``, ``version``, and ``metrics`` named as Spark names them.

    :param max_deleted_rows_ratio: rewrite only files of which more than this share is deleted, and look for no dropped
        columns; ``None``: every file with a deletion, and dropped columns. (templated)

    Further parameters: :class:`~airflow_delta.operators.rewrite.DeltaRewriteOperator` and
    :class:`~airflow_delta.operators.base.DeltaJobOperator`.
    """

    operation = "purge"

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.check_known()
