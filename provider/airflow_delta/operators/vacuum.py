"""VACUUM: files that no version in retention needs any more leave the store."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

from airflow_delta.operators import arguments
from airflow_delta.operators.arguments import Argument
from airflow_delta.operators.base import DeltaJobOperator

_APPROVED = ("cutoffMs", "numFilesToDelete", "sizeOfDataToDelete")


def read_hours(name: str, value: Any) -> float:
    try:
        hours = -1.0 if isinstance(value, bool) else float(value)
    except (TypeError, ValueError, OverflowError):
        hours = -1.0
    if not 0 <= hours <= 876_600:
        raise ValueError(f"{name}={arguments.quoted(value)} is not a number of hours, such as 168.")
    return hours


def read_plan(name: str, value: Any) -> dict[str, int]:
    """A plan, or the report that holds it, as a dictionary or as the text of one."""
    found = arguments.plan_within(value)
    if not isinstance(found, Mapping) or not all(isinstance(found.get(member), int) for member in _APPROVED):
        raise ValueError(
            f"{name} is not the plan of a vacuum. Give the output of a DeltaVacuumOperator with dry_run=True."
        )
    return {member: found[member] for member in _APPROVED}


class DeltaVacuumOperator(DeltaJobOperator):
    """Deletes files below a Delta table's root that no version in retention needs. No row changes.

    The XCom is the job's report: ``status``, ``version``, ``metrics`` with files and bytes, and ``plan`` with the reasons.

    :param retain_hours: keep what was needed so recently; ``None``: the table's own retention. (templated)
    :param retention_check: refuse less than the table's own retention. (templated)
    :param lite: delete only what the log says was removed; list nothing, find no orphans. (templated)
    :param inventory: URI of a listing to use, such as an S3 Inventory's ``manifest.json``. (templated)
    :param where: predicate on partition columns, such as ``day < '2026-01-01'``: only these partitions. (templated)
    :param require_proof: refuse where the log cannot prove what has to stay. (templated)
    :param output: URI of a new file for every path, one JSON object a line. (templated)
    :param approved_plan: output of a dry run that somebody has agreed to: nothing that expired after it is deleted, and
        nothing at all if the plan has grown. (templated)
    :param quarantine: keep what goes in a hidden directory of the table, from where ``delta-maintenance restore-quarantine``
        brings it back. On an object store every file is copied. (templated)
    :param purge_quarantine_hours: delete what has been in quarantine for so long; ``None``: nothing of it. (templated)

    Further parameters: :class:`~airflow_delta.operators.base.DeltaJobOperator`.
    """

    operation = "vacuum"

    template_fields: Sequence[str] = (
        *DeltaJobOperator.template_fields,
        "retain_hours",
        "retention_check",
        "lite",
        "inventory",
        "where",
        "require_proof",
        "output_uri",
        "approved_plan",
        "quarantine",
        "purge_quarantine_hours",
    )
    template_fields_renderers: ClassVar[dict[str, str]] = {
        **DeltaJobOperator.template_fields_renderers,
        "where": "sql",
        "approved_plan": "json",
    }
    arguments: ClassVar[Mapping[str, Argument]] = {
        **DeltaJobOperator.arguments,
        "retain_hours": Argument(
            "retain_hours",
            read_hours,
            absence="the retention of the table's own properties counts, which may be shorter",
        ),
        "retention_check": Argument("retention_check", arguments.read_safety_switch, required=True),
        "lite": Argument("lite", arguments.read_switch, required=True),
        "inventory": Argument("inventory", arguments.read_address),
        "where": arguments.WHERE,
        "require_proof": Argument("require_proof", arguments.read_safety_switch, required=True),
        "output_uri": Argument("output", arguments.read_address),
        "approved_plan": Argument("approved_plan", read_plan, absence=arguments.NO_APPROVAL),
        "quarantine": Argument("quarantine", arguments.read_safety_switch, required=True),
        "purge_quarantine_hours": Argument("purge_quarantine_hours", read_hours),
    }

    def __init__(  # noqa: PLR0913 - each is an option of its own, by keyword
        self,
        *,
        retain_hours: float | str | None = None,
        retention_check: bool | str = True,
        lite: bool | str = False,
        inventory: str | None = None,
        where: str | None = None,
        require_proof: bool | str = False,
        output: str | None = None,
        approved_plan: Any = None,
        quarantine: bool | str = False,
        purge_quarantine_hours: float | str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.retain_hours = retain_hours
        self.retention_check = retention_check
        self.lite = lite
        self.inventory = inventory
        self.where = where
        self.require_proof = require_proof
        # An operator's `output` is the reference to its XCom.
        self.output_uri = output
        self.approved_plan = approved_plan
        self.quarantine = quarantine
        self.purge_quarantine_hours = purge_quarantine_hours
        self.check_known()

    def options(self) -> dict[str, Any]:
        options = {
            "retain_hours": self.value_of("retain_hours"),
            "retention_check": self.value_of("retention_check"),
            "lite": self.value_of("lite") or None,
            "inventory": self.value_of("inventory"),
            "where": self.value_of("where"),
            "require_proof": self.value_of("require_proof") or None,
            "output": self.value_of("output_uri"),
            "approved": self.value_of("approved_plan"),
            "quarantine": self.value_of("quarantine") or None,
            "purge_quarantine_hours": self.value_of("purge_quarantine_hours"),
        }
        return {name: value for name, value in options.items() if value is not None}
