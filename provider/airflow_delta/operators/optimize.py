"""OPTIMIZE: many small files become few large ones, and deleted rows leave the files in which they are marked."""

from __future__ import annotations

from typing import Any

from airflow_delta.operators.arguments import by_attribute
from airflow_delta.operators.base import JOB_ARGUMENTS
from airflow_delta.operators.rewrite import DeltaRewriteOperator
from delta_maintenance.optimize.options import OPTIMIZE


class DeltaOptimizeOperator(DeltaRewriteOperator):
    """Compacts the files of a Delta table. No row changes, and readers and writers need not stop.

    The XCom is the job's report: ``status``, ``version``, and ``metrics`` named as Spark names them. The operator also takes the
    arguments of :class:`~airflow_delta.operators.rewrite.DeltaRewriteOperator`.

    :param min_file_size: size below which a file is compacted; default: 3/4 of the target size. (templated)
    :param max_file_size: size above which a file is split into files of the target size; default: no file is split. (templated)
    :param full: switch to rewrite every selected file, except those that an earlier run wrote with the same settings. (templated)
    :param zorder_by: columns of which rows with like values get into the same files, along a Z-order curve; default: no Z-order.
        (templated)
    :param layout: way to put rows with like values of the columns of ``by`` into the same files: ``kd``, a tree of quantiles,
        ``hilbert`` or ``zorder``, along a curve; or ``pack``: small files are only put together. Default: a clustered table is
        clustered, any other is packed. (templated)
    :param by: columns of ``layout``. (templated)
    :param seal_size: size above which groups of clustered files in a clustered table are left alone; default: 100GiB, as in
        Spark. (templated)
    :param own_cubes: switch to cluster a table for ourselves: OPTIMIZE of Delta Lake on Spark leaves the new files alone, unless
        it is FULL. (templated)
    """

    operation = OPTIMIZE
    arguments = by_attribute(*JOB_ARGUMENTS, *OPTIMIZE.options)
    template_fields = (
        *DeltaRewriteOperator.template_fields,
        "min_file_size",
        "max_file_size",
        "full",
        "zorder_by",
        "layout",
        "by",
        "seal_size",
        "own_cubes",
    )

    def __init__(
        self,
        *,
        min_file_size: int | str | None = None,
        max_file_size: int | str | None = None,
        full: bool | str = False,
        zorder_by: str | list[str] | None = None,
        layout: str | None = None,
        by: str | list[str] | None = None,
        seal_size: int | str | None = None,
        own_cubes: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.min_file_size = min_file_size
        self.max_file_size = max_file_size
        self.full = full
        self.zorder_by = zorder_by
        self.layout = layout
        self.by = by
        self.seal_size = seal_size
        self.own_cubes = own_cubes
        self.check_known()
