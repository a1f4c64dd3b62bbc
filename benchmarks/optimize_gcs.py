"""OPTIMIZE on Google Cloud Storage: the cases of :mod:`optimize_s3`. ``./dev bench optimize_gcs`` prints the ratios.

The server is the tests' own: fake-gcs-server, and before it a translator of the XML API in Python, which takes half a millisecond to two for a
request. 2026-11-28, 2 cores that others used too, deltalake 1.6.6, two rounds:

======================  =========  =========  ======
case                    ours       delta-rs   ratio
======================  =========  =========  ======
a, 0 ms                 4.5 s      4.2 s      0.94
a, 20 ms                4.7 s      7.4 s      1.6
b, 0 ms                 0.97 s     0.97 s     1.0
b, 20 ms                1.7 s      12.1 s     7.3
======================  =========  =========  ======
"""

from __future__ import annotations

import sys
from pathlib import Path

import optimize_s3

sys.path.insert(0, str(Path(__file__).parent.parent))

from tests.support.servers.gcs import FAKE_GCS, running_fake_gcs


def main(arguments: list[str] | None = None) -> None:
    optimize_s3.compare(
        lambda home: running_fake_gcs(FAKE_GCS.find(lambda line: print(line, flush=True)), home),
        lambda server: f"gs://{server.make_bucket()}",
        arguments,
    )


if __name__ == "__main__":
    main()
