"""CHECKPOINT: readers open a table from one file instead of from hundreds of commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_delta.operators import arguments
from airflow_delta.operators.arguments import Argument
from airflow_delta.operators.base import DeltaJobOperator
from delta_maintenance.contract import CHECKPOINT_POLICIES, CHECKPOINT_TOP_FORMATS


class DeltaCheckpointOperator(DeltaJobOperator):
    """Writes a checkpoint of a Delta table's newest version. It adds no version, and needs no Spark.

    The XCom is the job's report: ``status``, ``version``, ``plan`` with the reasons why it was due or not, and
    ``metrics`` named as the log names them (``size`` in actions, ``numOfAddFiles``, ``sizeInBytes``).

    :param policy: ``classic`` or ``v2``; ``None``: what the table's ``delta.checkpointPolicy`` says. (templated)
    :param top_format: of a V2 checkpoint's first file: ``json`` (the default) or ``parquet``. (templated)
    :param full: write all sidecars of a V2 checkpoint anew, rather than name again those that did not change.
        (templated)
    :param if_due: only where the commits since the newest checkpoint are many, or heavy; after a bulk load one may want
        it in any case. (templated)
    :param compact_log: where no checkpoint is due, put many commits into one log compaction. (templated)
    :param cleanup_log: afterwards, delete files of the log that no version in ``delta.logRetentionDuration`` needs.
        (templated)
    :param repair_checksum: put the version's checksum file right, where it can be proved what is right. (templated)

    Further parameters: :class:`~airflow_delta.operators.base.DeltaJobOperator`.
    """

    operation = "checkpoint"

    template_fields: Sequence[str] = (
        *DeltaJobOperator.template_fields,
        "policy",
        "top_format",
        "full",
        "if_due",
        "compact_log",
        "cleanup_log",
        "repair_checksum",
    )
    arguments: ClassVar[Mapping[str, Argument]] = {
        **DeltaJobOperator.arguments,
        "policy": Argument("policy", arguments.read_one_of(CHECKPOINT_POLICIES)),
        "top_format": Argument("top_format", arguments.read_one_of(CHECKPOINT_TOP_FORMATS)),
        "full": Argument("full", arguments.read_switch, required=True),
        "if_due": Argument("if_due", arguments.read_switch, required=True),
        "compact_log": Argument("compact_log", arguments.read_switch, required=True),
        "cleanup_log": Argument("cleanup_log", arguments.read_switch, required=True),
        "repair_checksum": Argument("repair_checksum", arguments.read_switch, required=True),
    }

    def __init__(
        self,
        *,
        policy: str | None = None,
        top_format: str | None = None,
        full: bool | str = False,
        if_due: bool | str = True,
        compact_log: bool | str = False,
        cleanup_log: bool | str = False,
        repair_checksum: bool | str = False,
        **kwargs: Any,
    ) -> None:
        kwargs.setdefault("engine", "local")
        super().__init__(**kwargs)
        self.policy = policy
        self.top_format = top_format
        self.full = full
        self.if_due = if_due
        self.compact_log = compact_log
        self.cleanup_log = cleanup_log
        self.repair_checksum = repair_checksum
        self.check_known()

    def options(self) -> dict[str, Any]:
        switches = ("full", "if_due", "compact_log", "cleanup_log", "repair_checksum")
        options = {
            "policy": self.value_of("policy"),
            "top_format": self.value_of("top_format"),
            **{name: self.value_of(name) or None for name in switches},
        }
        return {name: value for name, value in options.items() if value is not None}
