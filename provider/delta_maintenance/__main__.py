"""``python -m delta_maintenance``: the command line, where its program is not on the PATH."""

from __future__ import annotations

import sys

from delta_maintenance.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
