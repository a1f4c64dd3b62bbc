"""``python -m delta_maintenance``, and the program ``delta-maintenance``."""

from __future__ import annotations

import sys
from typing import NoReturn

from delta_maintenance.process.process_exit import run_and_exit
from delta_maintenance.process.requirements import missing_here


def run() -> NoReturn:
    """Run the command that the arguments of the process name, and end the process."""
    run_and_exit(_main)


def _main() -> int:
    if "msgspec" in missing_here():  # every command needs it, the others are for `doctor` to tell
        sys.exit(
            "delta-maintenance: this Python lacks msgspec. Install airflow-provider-delta with its dependencies into it."
        )
    from delta_maintenance.cli.main import main

    return main()


if __name__ == "__main__":
    run()
