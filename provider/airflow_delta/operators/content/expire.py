"""EXPIRE: rows leave a table when a column says that they are old enough."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from airflow_delta.operators.arguments import by_attribute
from airflow_delta.operators.base import JOB_ARGUMENTS, DeltaJobOperator
from delta_maintenance.expire.options import EXPIRE
from delta_maintenance.options import ENGINE


class DeltaExpireOperator(DeltaJobOperator):
    """Removes rows of a Delta table that are older than an age, as a ``DELETE`` does. Time travel shows them until VACUUM has run.

    The XCom is the job's report: ``status``, ``version``, ``plan`` with the files and rows that expired, and ``metrics`` named as
    delta-spark names the metrics of a ``DELETE``. The operator also takes the arguments of
    :class:`~airflow_delta.operators.base.DeltaJobOperator`.

    :param column: date or timestamp column that says how old a row is; rows with a null stay. (templated)
    :param engine: program that does the work; the job reads one column of few files, and has no use for Spark. (templated)
    :param older_than: age at which rows expire, such as ``36h``, ``400d`` or ``52w``. (templated)
    :param before: time instead of an age: rows from before it expire; exactly one of both is given. (templated)
    :param whole_files: switch to remove only files all of whose rows have expired; no file is read. (templated)
    :param max_rows: number of rows above which nothing is removed. (templated)
    """

    operation = EXPIRE
    arguments = by_attribute(
        *JOB_ARGUMENTS, replace(ENGINE, default="local", argument_default="local"), *EXPIRE.options
    )
    template_fields = (
        *DeltaJobOperator.template_fields,
        "column",
        "older_than",
        "before",
        "whole_files",
        "max_rows",
    )

    def __init__(
        self,
        *,
        column: str,
        engine: str = "local",
        older_than: str | None = None,
        before: str | None = None,
        whole_files: bool | str = False,
        max_rows: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(engine=engine, **kwargs)
        self.column = column
        self.older_than = older_than
        self.before = before
        self.whole_files = whole_files
        self.max_rows = max_rows
        self.check_known()
