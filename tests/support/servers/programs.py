"""Makes the servers of the tests that are not there yet: ``python -m tests.support.servers.programs``.

``./dev test`` runs it beside the first tests, so that the later ones find their servers. A test that needs one sooner waits for it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from tests.support.environment.delta_spark import delta_spark_jars
from tests.support.servers.azure import AZURITE
from tests.support.servers.gcs import FAKE_GCS
from tests.support.servers.postgres import POSTGRES
from tests.support.servers.s3 import MINIO


def _say(line: str) -> None:
    print(line, flush=True)


def main() -> None:
    """In the order in which ``./dev test`` needs them."""
    makes: Sequence[Callable[[], object]] = (
        lambda: POSTGRES.find(_say),
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
