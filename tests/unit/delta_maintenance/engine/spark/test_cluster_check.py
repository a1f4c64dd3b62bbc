from __future__ import annotations

import pytest
from tests.support import ROOT

from delta_maintenance.engine.spark.cluster_check import lacking
from delta_maintenance.process.requirements import OLDEST, REQUIRED

HERE = dict.fromkeys(REQUIRED, "9999.1") | {"python": "3.12.4"}


def test_the_oldest_releases_are_those_of_the_project() -> None:
    tomllib = pytest.importorskip("tomllib", reason="Python 3.10 has no tomllib")
    dependencies = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    named = {}
    for requirement in dependencies:
        name, oldest = requirement.split(">=")
        numbers = tuple(int(part) for part in oldest.split("."))
        named[name] = numbers[:1] if numbers[1:] == (0,) else numbers
    # Executors never parse a predicate.
    assert {name: oldest for name, oldest in named.items() if name != "sqlglot"} == OLDEST


@pytest.mark.parametrize(
    ("found", "lacks"),
    [
        ({"pyarrow": "14.0.2"}, ["pyarrow 24 or later"]),
        ({"fsspec": "2023.12.1", "numpy": "1.24.4"}, ["numpy 1.26 or later", "fsspec 2024.6 or later"]),
        ({"python": "3.9.18"}, ["Python 3.10 or later"]),
        ({"pyroaring": "missing: No module named 'pyroaring'"}, ["pyroaring"]),
        ({"pyarrow": "24.0.0", "numpy": "1.26.0rc1", "python": "3.10.0", "pyroaring": "?"}, []),
    ],
)
def test_a_release_that_is_too_old_is_named_with_those_that_fit(
    found: dict[str, str], lacks: list[str]
) -> None:
    assert lacking({**HERE, **found}) == lacks
