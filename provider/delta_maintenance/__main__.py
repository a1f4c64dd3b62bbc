"""``python -m delta_maintenance``, and the program ``delta-maintenance``."""

from __future__ import annotations

from typing import NoReturn

from delta_maintenance.cli.main import main
from delta_maintenance.program_end import end_program


def run() -> NoReturn:
    """Run the command that the arguments of the process name, and end the process."""
    end_program(main())


if __name__ == "__main__":
    run()
