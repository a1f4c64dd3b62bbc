from __future__ import annotations

from delta_maintenance.cli.main import COMMANDS
from delta_maintenance.job import RUN
from delta_maintenance.operations import OPERATIONS, READINGS
from delta_maintenance.text.report import RENDERERS


def test_every_operation_can_be_run_and_its_report_be_shown() -> None:
    assert (
        set(OPERATIONS)
        == set(RUN)
        == set(RENDERERS)
        == (set(COMMANDS) - {"inspect", "history", "changes", "doctor", *READINGS})
    )


def test_each_is_found_by_its_name() -> None:
    for operations in (OPERATIONS, READINGS):
        assert {name: operation.name for name, operation in operations.items()} == dict(
            zip(operations, operations, strict=True)
        )
    assert OPERATIONS.get("health") is None
