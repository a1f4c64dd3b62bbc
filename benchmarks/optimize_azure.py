"""OPTIMIZE on Azure: the cases of :mod:`optimize_s3` on Azurite. ``./dev bench optimize_azure`` prints the ratios."""

from __future__ import annotations

import sys
from pathlib import Path

import optimize_s3

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.servers.azure import AZURITE, running_azurite


def main(arguments: list[str] | None = None) -> None:
    optimize_s3.compare(
        lambda home: running_azurite(AZURITE.find(lambda line: print(line, flush=True)), home),
        lambda server: f"az://{server.make_container()}",
        arguments,
    )


if __name__ == "__main__":
    main()
