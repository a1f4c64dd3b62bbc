"""RESTORE: a table is what it was at an earlier version again."""

from __future__ import annotations

from typing import Any

from airflow_delta.operators.arguments import by_attribute
from airflow_delta.operators.base import LOCAL_JOB_ARGUMENTS, DeltaJobOperator
from delta_maintenance.restore.options import RESTORE


class DeltaRestoreOperator(DeltaJobOperator):
    """Makes a Delta table what it was at an earlier version, as a new version. Exactly one of the three arguments below is given.

    The XCom is the job's report: ``status``, ``version``, ``metrics`` named as delta-spark names them, and ``plan`` with the files
    that come back and go. The operator also takes the arguments of :class:`~airflow_delta.operators.base.DeltaJobOperator`.

    :param engine: program that does the work; a RESTORE has no use for Spark. (templated)
    :param to_version: version to restore. (templated)
    :param to_timestamp: time, such as ``2026-01-31T12:00:00Z``; the newest version committed at or before it is restored. (templated)
    :param undo_run: id of a run of this provider, as its report names it; the version before its first commit is restored. (templated)
    """

    operation = RESTORE
    arguments = by_attribute(*LOCAL_JOB_ARGUMENTS, *RESTORE.options)
    template_fields = (*DeltaJobOperator.template_fields, "to_version", "to_timestamp", "undo_run")

    def __init__(
        self,
        *,
        engine: str = "local",
        to_version: int | str | None = None,
        to_timestamp: str | None = None,
        undo_run: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(engine=engine, **kwargs)
        self.to_version = to_version
        self.to_timestamp = to_timestamp
        self.undo_run = undo_run
        self.check_known()
