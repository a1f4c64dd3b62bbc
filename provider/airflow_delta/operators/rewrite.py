"""Base of the operators that rewrite data files: OPTIMIZE and REORG PURGE."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from airflow_delta.operators.base import DeltaJobOperator


class DeltaRewriteOperator(DeltaJobOperator):
    """Rewrites files of a Delta table. It also takes the arguments of
    :class:`~airflow_delta.operators.base.DeltaJobOperator`.

    :param where: SQL predicate on partition columns; only partitions for which it is true are rewritten. Default: every
        partition. (templated)
    :param target_size: size of the new files; default: the table's ``delta.targetFileSize``, else 1GiB. (templated)
    :param max_deleted_rows_ratio: greatest part of deleted rows in a file that is left alone, even a single file; default: 0.05
        for OPTIMIZE; a purge rewrites every file with a deletion or a dropped column, and with a ratio looks for no dropped
        columns. (templated)
    :param max_bytes: most bytes to read in one run; what removes most files for its bytes goes first. Default: no limit.
        (templated)
    :param max_files: most files to replace in one run; default: no limit. (templated)
    :param max_duration: seconds after which no bin is begun; bins that have begun are finished and committed. Default: no limit.
        (templated)
    :param quiet_minutes: minutes since the last write within which a partition is hot; default: no partition is hot. (templated)
    :param hot_partitions: treatment of hot partitions: ``last``: they are rewritten last; ``wait``: they are left for another
        run; default: ``last``. (templated)
    :param batch_size: bytes to rewrite before each commit; default: one commit, at the end. (templated)
    :param rewrite: way of rewriting: ``auto``: large row groups are copied as bytes where nothing in them changes; ``copy``: small
        ones, too; ``encode``: none; default: ``auto``. (templated)
    :param verify: check of the new files: ``counts``: row counts are compared; ``full``: the files are read back and all columns
        are compared, too; default: ``counts``. (templated)
    :param on_broken_source: reaction to a missing or broken file: ``fail``, or ``skip``: its bin is left out; default: ``fail``.
        (templated)
    :param remap: switch to delete rows in the new files, too, that others delete meanwhile; without it their bin is left out.
        (templated)
    :param commit_when: moment of a commit: ``gap``: finished bins are held back until few statements of other writers are in
        flight; ``now``: at once; default: ``now``. (templated)
    :param max_wait: most seconds to wait with ``commit_when="gap"``; default: 600. (templated)
    :param after_max_wait: end of a wait without a gap: ``commit``, or ``leave``: the bins are left to the next try of the run, and
        this try fails; default: ``commit``. (templated)
    :param output: address of a new file for the whole plan of a dry run, one JSON object a line. (templated)
    :param approved_plan: plan of a dry run that was approved, or its digest; the run refuses if the plan is another one by now.
        (templated)
    """

    template_fields: Sequence[str] = (
        *DeltaJobOperator.template_fields,
        "where",
        "target_size",
        "max_deleted_rows_ratio",
        "max_bytes",
        "max_files",
        "max_duration",
        "quiet_minutes",
        "hot_partitions",
        "batch_size",
        "rewrite",
        "verify",
        "on_broken_source",
        "remap",
        "commit_when",
        "max_wait",
        "after_max_wait",
        "output_uri",
        "approved_plan",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DeltaJobOperator.template_fields_renderers,
        "where": "sql",
        "approved_plan": "json",
    }

    def __init__(
        self,
        *,
        where: str | None = None,
        target_size: int | str | None = None,
        max_deleted_rows_ratio: float | str | None = None,
        max_bytes: int | str | None = None,
        max_files: int | str | None = None,
        max_duration: int | str | None = None,
        quiet_minutes: int | str | None = None,
        hot_partitions: str | None = None,
        batch_size: int | str | None = None,
        rewrite: str | None = None,
        verify: str | None = None,
        on_broken_source: str | None = None,
        remap: bool | str = False,
        commit_when: str | None = None,
        max_wait: int | str | None = None,
        after_max_wait: str | None = None,
        output: str | None = None,
        approved_plan: Any = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.where = where
        self.target_size = target_size
        self.max_deleted_rows_ratio = max_deleted_rows_ratio
        self.max_bytes = max_bytes
        self.max_files = max_files
        self.max_duration = max_duration
        self.quiet_minutes = quiet_minutes
        self.hot_partitions = hot_partitions
        self.batch_size = batch_size
        self.rewrite = rewrite
        self.verify = verify
        self.on_broken_source = on_broken_source
        self.remap = remap
        self.commit_when = commit_when
        self.max_wait = max_wait
        self.after_max_wait = after_max_wait
        # `output` is Airflow's: the reference to the task's XCom.
        self.output_uri = output
        self.approved_plan = approved_plan
