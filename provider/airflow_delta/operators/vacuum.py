"""VACUUM: files that no version in retention needs leave the store."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from airflow_delta.operators.arguments import by_attribute
from airflow_delta.operators.base import JOB_ARGUMENTS, DeltaJobOperator
from delta_maintenance.vacuum.options import VACUUM


class DeltaVacuumOperator(DeltaJobOperator):
    """Deletes files below a Delta table's root that no version in retention needs. No row changes.

    The XCom is the job's report: ``status``, ``version``, ``metrics`` with files and bytes, and ``plan`` with the reasons. The
    operator also takes the arguments of :class:`~airflow_delta.operators.base.DeltaJobOperator`.

    :param retain_hours: hours for which files that were needed are kept; default: the table's
        ``delta.deletedFileRetentionDuration``, else 168. (templated)
    :param retention_check: switch to refuse a retention that is shorter than the table's. (templated)
    :param where: SQL predicate on partition columns; only partitions for which it is true are cleaned. Default: every partition.
        (templated)
    :param lite: switch to delete what the log has removed since the last vacuum, without a listing and without orphans.
        (templated)
    :param inventory: address of a listing to take the files from: Parquet, CSV, or the ``manifest.json`` of an S3 Inventory;
        default: the table is listed. (templated)
    :param require_proof: switch to refuse where the log cannot prove which files have to stay. (templated)
    :param neighbours: reaction to tables of other formats, other Delta tables or checkpoints of streams below the root:
        ``refuse``, or ``keep``: they stay, and the vacuum goes on; default: ``refuse``. (templated)
    :param output: address of a new file for every path, one JSON object a line. (templated)
    :param approved_plan: plan of a dry run that was approved: nothing that expired later is deleted, and nothing if the plan has
        grown. (templated)
    :param quarantine: switch to move files to a hidden directory instead of deleting them; on an object store every file is
        copied. (templated)
    :param purge_quarantine_hours: hours in quarantine after which files are deleted; default: nothing of a quarantine is deleted.
        (templated)
    :param keep_versions: versions whose files are kept, too; default: the versions of the table's ``delta-maintenance.keepVersions``.
        (templated)
    :param keep_last: number of the newest versions whose files are kept; default: the table's ``delta-maintenance.keepLast``, else 1.
        (templated)
    """

    operation = VACUUM
    arguments = by_attribute(*JOB_ARGUMENTS, *VACUUM.options)
    template_fields = (
        *DeltaJobOperator.template_fields,
        "retain_hours",
        "retention_check",
        "where",
        "lite",
        "inventory",
        "require_proof",
        "neighbours",
        "output_uri",
        "approved_plan",
        "quarantine",
        "purge_quarantine_hours",
        "keep_versions",
        "keep_last",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DeltaJobOperator.template_fields_renderers,
        "where": "sql",
        "approved_plan": "json",
    }

    def __init__(
        self,
        *,
        retain_hours: float | str | None = None,
        retention_check: bool | str = True,
        where: str | None = None,
        lite: bool | str = False,
        inventory: str | None = None,
        require_proof: bool | str = False,
        neighbours: str | None = None,
        output: str | None = None,
        approved_plan: Any = None,
        quarantine: bool | str = False,
        purge_quarantine_hours: float | str | None = None,
        keep_versions: Sequence[int] | str | None = None,
        keep_last: int | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.retain_hours = retain_hours
        self.retention_check = retention_check
        self.where = where
        self.lite = lite
        self.inventory = inventory
        self.require_proof = require_proof
        self.neighbours = neighbours
        # `output` is Airflow's: the reference to the task's XCom.
        self.output_uri = output
        self.approved_plan = approved_plan
        self.quarantine = quarantine
        self.purge_quarantine_hours = purge_quarantine_hours
        self.keep_versions = keep_versions
        self.keep_last = keep_last
        self.check_known()
