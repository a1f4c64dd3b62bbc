"""Random tables of other writers are rewritten with ``verify="full"``: none is refused, and readers find the same rows by filters."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from tests.support.repetition import repeated
from tests.support.runs.verified_rewrites import Recipe, Tally, check
from tests.support.tables.tables_of_writers import WRITERS

#: Spark's files are part of ``./dev campaign verify``.
_WRITERS = {writer: weight for writer, weight in WRITERS.items() if writer != "Spark"}


@pytest.mark.random_tables
def test_tables_of_all_writers_are_rewritten_and_verified(tmp_path: Path) -> None:
    seed, tally = random.randrange(1 << 30), Tally()
    for number in range(repeated(40)):
        check(Recipe.of(seed, number, _WRITERS), tmp_path, {}, tally)
    assert tally.failures == [], f"seed {seed}"
    assert tally.tables > repeated(30)
