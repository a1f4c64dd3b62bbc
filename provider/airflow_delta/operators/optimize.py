"""OPTIMIZE: many small files become few large ones, and deleted rows leave the files they were marked in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_delta.operators import arguments
from airflow_delta.operators.arguments import Argument
from airflow_delta.operators.base import DeltaJobOperator


class DeltaOptimizeOperator(DeltaJobOperator):
    """Compacts the files of a Delta table. No row changes, and readers and writers need not stop.

    The XCom is the job's report: ``status``, ``version``, and ``metrics`` named as Spark names them.

    :param where: predicate on partition columns, such as ``day >= '2026-01-01'``: only these partitions. (templated)
    :param target_size: size of the files to be made, such as ``256MiB``; ``None``: the table's own. (templated)
    :param min_file_size: files smaller than this are compacted; ``None``: a share of the target size. (templated)
    :param max_deleted_rows_ratio: files with more deleted rows than this share are rewritten too. (templated)
    :param max_bytes: rewrite no more than this in one run. (templated)
    :param full: rewrite every selected file, whether it needs it or not. (templated)

    Further parameters: :class:`~airflow_delta.operators.base.DeltaJobOperator`.
    """

    operation = "optimize"

    template_fields: Sequence[str] = (
        *DeltaJobOperator.template_fields,
        "where",
        "target_size",
        "min_file_size",
        "max_deleted_rows_ratio",
        "max_bytes",
        "full",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DeltaJobOperator.template_fields_renderers,
        "where": "sql",
    }
    arguments: ClassVar[Mapping[str, Argument]] = {
        **DeltaJobOperator.arguments,
        "where": Argument("where", arguments.read_text),
        "target_size": Argument("target_size", arguments.read_size),
        "min_file_size": Argument("min_file_size", arguments.read_size),
        "max_deleted_rows_ratio": Argument("max_deleted_rows_ratio", arguments.read_ratio),
        "max_bytes": Argument("max_bytes", arguments.read_size),
        "full": Argument("full", arguments.read_switch, required=True),
    }

    def __init__(
        self,
        *,
        where: str | None = None,
        target_size: int | str | None = None,
        min_file_size: int | str | None = None,
        max_deleted_rows_ratio: float | str | None = None,
        max_bytes: int | str | None = None,
        full: bool | str = False,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.where = where
        self.target_size = target_size
        self.min_file_size = min_file_size
        self.max_deleted_rows_ratio = max_deleted_rows_ratio
        self.max_bytes = max_bytes
        self.full = full
        self.check_known()

    def options(self) -> dict[str, Any]:
        options = {
            "where": self.value_of("where"),
            "target_size_bytes": self.value_of("target_size"),
            "min_file_size_bytes": self.value_of("min_file_size"),
            "max_deleted_rows_ratio": self.value_of("max_deleted_rows_ratio"),
            "max_bytes": self.value_of("max_bytes"),
            "full": self.value_of("full") or None,
        }
        return {name: value for name, value in options.items() if value is not None}
