"""OPTIMIZE: many small files become few large ones, and deleted rows leave the files they were marked in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_delta.operators import arguments
from airflow_delta.operators.arguments import Argument
from airflow_delta.operators.rewrite import DeltaRewriteOperator


class DeltaOptimizeOperator(DeltaRewriteOperator):
    """Compacts the files of a Delta table. No row changes, and readers and writers need not stop.

    The XCom is the job's report: ``status``, ``version``, and ``metrics`` named as Spark names them.

    :param min_file_size: files smaller than this are compacted; ``None``: a share of the target size. (templated)
    :param max_file_size: larger files are split into files of the target size; ``None``: none is. (templated)
    :param full: rewrite every selected file, whether it needs it or not. (templated)

    Further parameters: :class:`~airflow_delta.operators.rewrite.DeltaRewriteOperator` and
    :class:`~airflow_delta.operators.base.DeltaJobOperator`.
    """

    operation = "optimize"

    template_fields: Sequence[str] = (
        *DeltaRewriteOperator.template_fields,
        "min_file_size",
        "max_file_size",
        "full",
    )
    arguments: ClassVar[Mapping[str, Argument]] = {
        **DeltaRewriteOperator.arguments,
        "min_file_size": Argument("min_file_size", arguments.read_size),
        "max_file_size": Argument("max_file_size", arguments.read_size),
        "full": Argument("full", arguments.read_switch, required=True),
    }

    def __init__(
        self,
        *,
        min_file_size: int | str | None = None,
        max_file_size: int | str | None = None,
        full: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.min_file_size = min_file_size
        self.max_file_size = max_file_size
        self.full = full
        self.check_known()

    def own_options(self) -> dict[str, Any]:
        return {
            "min_file_size_bytes": self.value_of("min_file_size"),
            "max_file_size_bytes": self.value_of("max_file_size"),
            "full": self.value_of("full") or None,
        }
