"""CHECKPOINT: readers open a table from one file instead of from hundreds of commits."""

from __future__ import annotations

from typing import Any

from airflow_delta.operators.arguments import by_attribute
from airflow_delta.operators.base import LOCAL_JOB_ARGUMENTS, DeltaJobOperator
from delta_maintenance.log_upkeep.options import CHECKPOINT


class DeltaCheckpointOperator(DeltaJobOperator):
    """Writes a checkpoint of a Delta table's newest version. It adds no version, and needs no Spark.

    The XCom is the job's report: ``status``, ``version``, ``plan`` with the reasons why a checkpoint was due or not, and
    ``metrics`` named as the log names them (``size`` in actions, ``numOfAddFiles``, ``sizeInBytes``). The operator also takes the
    arguments of :class:`~airflow_delta.operators.base.DeltaJobOperator`.

    :param engine: program that does the work; a checkpoint has no use for Spark. (templated)
    :param policy: kind of checkpoint: ``classic``: one file; ``v2``: a small file that names others; default: the table's
        ``delta.checkpointPolicy``. (templated)
    :param top_format: format of the first file of a V2 checkpoint; default: ``json``. (templated)
    :param full: switch to write all sidecars of a V2 checkpoint; without it, sidecars that did not change are used again.
        (templated)
    :param if_due: switch to write a checkpoint only if readers have much of the log to replay. (templated)
    :param compact_log: switch to put many commits into one log compaction, if no checkpoint is due. (templated)
    :param cleanup_log: switch to delete files of the log afterwards that no version in retention needs. (templated)
    :param repair_checksum: switch to write the version's checksum file where it is missing or wrong, if the right content can be
        proved. (templated)
    """

    operation = CHECKPOINT
    arguments = by_attribute(*LOCAL_JOB_ARGUMENTS, *CHECKPOINT.options)
    template_fields = (
        *DeltaJobOperator.template_fields,
        "policy",
        "top_format",
        "full",
        "if_due",
        "compact_log",
        "cleanup_log",
        "repair_checksum",
    )

    def __init__(
        self,
        *,
        engine: str = "local",
        policy: str | None = None,
        top_format: str | None = None,
        full: bool | str = False,
        if_due: bool | str = True,
        compact_log: bool | str = False,
        cleanup_log: bool | str = False,
        repair_checksum: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(engine=engine, **kwargs)
        self.policy = policy
        self.top_format = top_format
        self.full = full
        self.if_due = if_due
        self.compact_log = compact_log
        self.cleanup_log = cleanup_log
        self.repair_checksum = repair_checksum
        self.check_known()
