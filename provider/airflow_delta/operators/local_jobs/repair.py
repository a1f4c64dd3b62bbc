"""Repair: files that the log names and the store lacks are reported, and taken out of the log on request."""

from __future__ import annotations

from typing import Any, ClassVar

from airflow_delta.operators.arguments import by_attribute
from airflow_delta.operators.base import LOCAL_JOB_ARGUMENTS, DeltaJobOperator
from delta_maintenance.repair.options import REPAIR


class DeltaRepairOperator(DeltaJobOperator):
    """Reports files that a Delta table's log names and its store lacks, and takes them out of the log on request.

    The XCom is the job's report: ``status``, ``version``, ``metrics``, and ``plan`` with the missing files. The operator also takes
    the arguments of :class:`~airflow_delta.operators.base.DeltaJobOperator`.

    :param engine: program that does the work; a repair has no use for Spark. (templated)
    :param remove_missing: switch to take missing files out of the log; their rows are lost. (templated)
    :param lost_vectors: with ``remove_missing``, what to do where only the deletion vector of a file is missing: ``keep``: leave it;
        ``remove-file``: take the file out of the log, too; ``restore-rows``: take the vector out, so that its deleted rows come back;
        default: ``keep``. (templated)
    :param approved_plan: plan of a dry run that was approved, or its digest: nothing is removed where the plan is another one by now.
        (templated)
    :param output: address of a new file for every missing file, one JSON object a line. (templated)
    """

    operation = REPAIR
    arguments = by_attribute(*LOCAL_JOB_ARGUMENTS, *REPAIR.options)
    template_fields = (
        *DeltaJobOperator.template_fields,
        "remove_missing",
        "lost_vectors",
        "approved_plan",
        "output_uri",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DeltaJobOperator.template_fields_renderers,
        "approved_plan": "json",
    }

    def __init__(
        self,
        *,
        engine: str = "local",
        remove_missing: bool | str = False,
        lost_vectors: str | None = None,
        approved_plan: Any = None,
        output: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(engine=engine, **kwargs)
        self.remove_missing = remove_missing
        self.lost_vectors = lost_vectors
        self.approved_plan = approved_plan
        # `output` is Airflow's: the reference to the task's XCom.
        self.output_uri = output
        self.check_known()
