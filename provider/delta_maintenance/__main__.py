"""``python -m delta_maintenance``, and the program ``delta-maintenance``."""

from __future__ import annotations

import sys

from delta_maintenance.lean_arrow import collect_rarely


def run() -> int:
    """Run the command that the arguments of the process name; returns the exit code."""
    collect_rarely()
    # Imported here, since loading it makes very many objects.
    from delta_maintenance.cli.main import main

    return main()


if __name__ == "__main__":
    sys.exit(run())
