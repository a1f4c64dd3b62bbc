"""The mixed fleets at length: `python -m tests.campaigns.mixed_writers [--commits 200] [FLEET …]`.

Each writer makes at least so many commits, our compactions are of these; then every version is read by everybody and compared
with the log, and the bins that our compactions lost with what they may lose (tests/support/mixed_writers/scenarios.py). Prints the
counts; exit code 1 where something did not hold. The short form is tests/integration/test_mixed_writers.py.
"""

from __future__ import annotations

import argparse
import functools
import sys
import tempfile
import time
import traceback
from contextlib import ExitStack
from pathlib import Path

from tests.support.mixed_writers.scenarios import SCENARIOS, Site
from tests.support.servers.dynamodb import DynamoDBServer, running_dynamodb
from tests.support.servers.s3 import MINIO, S3Server, running_minio

_SECONDS_PER_COMMIT = 60.0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--commits", type=int, default=200, help="of each writer, at least (default 200)")
    parser.add_argument("--keep", type=Path, help="a new directory for the writers' journals and logs")
    parser.add_argument("fleets", nargs="*", metavar="FLEET", help=f"of {', '.join(SCENARIOS)}; default: all")
    options = parser.parse_args()
    unknown = set(options.fleets) - set(SCENARIOS)
    if unknown:
        parser.error(f"no such fleet: {', '.join(sorted(unknown))}")
    failed = 0
    with ExitStack() as stack:
        scratch = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        scratch.mkdir(parents=True, exist_ok=True)

        @functools.cache
        def s3() -> S3Server:
            program = MINIO.find(lambda line: print(line, flush=True))
            return stack.enter_context(running_minio(program, scratch / "minio"))

        @functools.cache
        def dynamodb() -> DynamoDBServer:
            (scratch / "dynamodb").mkdir()
            return stack.enter_context(running_dynamodb(scratch / "dynamodb"))

        for name in options.fleets or SCENARIOS:
            started = time.monotonic()
            site = Site(scratch / name, s3, dynamodb)
            site.directory.mkdir()
            try:
                lines = SCENARIOS[name](site, options.commits, _SECONDS_PER_COMMIT * options.commits).lines()
            except AssertionError:
                failed += 1
                lines = ["FAILED", traceback.format_exc()]
            print(f"{name} ({time.monotonic() - started:.0f} s)", *lines, sep="\n  ", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
