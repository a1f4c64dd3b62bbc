"""DROP FEATURE: older readers can read a table again."""

from __future__ import annotations

from typing import Any

from airflow_delta.operators.arguments import by_attribute
from airflow_delta.operators.base import JOB_ARGUMENTS, DeltaJobOperator
from delta_maintenance.drop_feature.options import DROP_FEATURE


class DeltaDropFeatureOperator(DeltaJobOperator):
    """Takes a table feature out of the protocol of a Delta table. Rows stay as they are. A retry goes on where the try before stopped.

    The XCom is the job's report: ``status``, ``version``, and ``plan`` with the steps and the protocol that is left. The operator also takes
    the arguments of :class:`~airflow_delta.operators.base.DeltaJobOperator`.

    :param feature: table feature to drop, as the protocol spells it, such as ``deletionVectors``. (templated)
    """

    operation = DROP_FEATURE
    arguments = by_attribute(*JOB_ARGUMENTS, *DROP_FEATURE.options)
    template_fields = (*DeltaJobOperator.template_fields, "feature")

    def __init__(self, *, feature: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.feature = feature
        self.check_known()
