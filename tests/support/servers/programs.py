"""Makes what the tests need once and is not there yet: servers and JARs, and an archive of Spark's classes.

``./dev test`` runs ``python -m tests.support.servers.programs`` beside the first tests, so that the later ones find it. A test that
needs a server sooner waits for it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tests.support.environment.delta_spark import delta_spark_jars
from tests.support.environment.fast_java import make_archive
from tests.support.servers.azure import AZURITE
from tests.support.servers.gcs import FAKE_GCS
from tests.support.servers.postgres import POSTGRES
from tests.support.servers.s3 import MINIO


def _say(line: str) -> None:
    print(line, flush=True)  # noqa: T201 - a program of its own


def main() -> None:
    """In the order in which ``./dev test`` needs them."""
    makes: Sequence[Callable[[], object]] = (
        lambda: POSTGRES.find(_say),
        lambda: make_archive(Path(os.environ["JAVA_HOME"])),
        delta_spark_jars,
        lambda: MINIO.find(_say),
        lambda: FAKE_GCS.find(_say),
        lambda: AZURITE.find(_say),
    )
    for make in makes:
        try:
            make()
        except (pytest.skip.Exception, pytest.fail.Exception) as missing:
            # The tests that need it say so, too.
            _say(str(missing))


if __name__ == "__main__":
    main()
