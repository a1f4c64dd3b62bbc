"""CHECKPOINT: readers open a table from one file instead of from hundreds of commits."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_delta.operators import arguments
from airflow_delta.operators.arguments import Argument
from airflow_delta.operators.base import DeltaJobOperator


class DeltaCheckpointOperator(DeltaJobOperator):
    """Writes a checkpoint of a Delta table's newest version. It adds no version, and needs no Spark.

    The XCom is the job's report: ``status``, ``version``, ``plan`` with the reasons why it was due or not, and
    ``metrics`` named as the log names them (``size`` in actions, ``numOfAddFiles``, ``sizeInBytes``).

    :param policy: ``classic`` or ``v2``; ``None``: what the table's ``delta.checkpointPolicy`` says. (templated)
    :param if_due: only where the commits since the newest checkpoint are many, or heavy; after a bulk load one may want
        it in any case. (templated)

    Further parameters: :class:`~airflow_delta.operators.base.DeltaJobOperator`.
    """

    operation = "checkpoint"

    template_fields: Sequence[str] = (*DeltaJobOperator.template_fields, "policy", "if_due")
    arguments: ClassVar[Mapping[str, Argument]] = {
        **DeltaJobOperator.arguments,
        "policy": Argument("policy", arguments.read_checkpoint_policy),
        "if_due": Argument("if_due", arguments.read_switch, required=True),
    }

    def __init__(self, *, policy: str | None = None, if_due: bool | str = True, **kwargs: Any) -> None:
        kwargs.setdefault("engine", "local")
        super().__init__(**kwargs)
        self.policy = policy
        self.if_due = if_due
        self.check_known()

    def options(self) -> dict[str, Any]:
        options = {"policy": self.value_of("policy"), "if_due": self.value_of("if_due") or None}
        return {name: value for name, value in options.items() if value is not None}
