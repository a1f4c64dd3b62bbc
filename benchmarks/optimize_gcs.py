"""OPTIMIZE on Google Cloud Storage: the cases of :mod:`optimize_s3` on the tests' server. ``./dev bench optimize_gcs`` prints the ratios."""

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
