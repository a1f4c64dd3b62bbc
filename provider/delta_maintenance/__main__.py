"""``python -m delta_maintenance``, and the program ``delta-maintenance``."""

from __future__ import annotations

import sys
from typing import NoReturn

from delta_maintenance.program_end import end_program
from delta_maintenance.requirements import missing_here


def run() -> NoReturn:
    """Run the command that the arguments of the process name, and end the process."""
    if "msgspec" in missing_here():  # every command needs it, the others are for `doctor` to tell
        sys.exit(
            "delta-maintenance: this Python lacks msgspec. Install airflow-provider-delta with its dependencies into it."
        )
    from delta_maintenance.cli.main import main

    end_program(main())


if __name__ == "__main__":
    run()
