"""OPTIMIZE on Azure: the cases of :mod:`optimize_s3` on Azurite. ``./dev bench optimize_azure`` prints the ratios.

2026-11-28, 2 cores that others used too, deltalake 1.6.6; two or three rounds:

======================  =========  =========  ======
case                    ours       delta-rs   ratio
======================  =========  =========  ======
a, 0 ms                 4.7 s      6.5 s      1.4
a, 20 ms                4.4 s      7.8 s      1.8
a, 60 ms                5.2 s      16.8 s     3.3
b, 0 ms                 1.2 s      1.6 s      1.3
b, 20 ms                2.0 s      12.7 s     6.4
b, 60 ms                3.6 s      34.2 s     9.5
======================  =========  =========  ======

Without latency the server itself takes most of the time, and the ratio was between 0.9 and 1.4. Requests: 202 to read in a. where delta-rs
makes 616, and 304 in b. where it makes 912.
"""

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
