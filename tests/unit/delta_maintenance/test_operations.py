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
        == (set(COMMANDS) - {"inspect", "history", "doctor", *READINGS})
    )
