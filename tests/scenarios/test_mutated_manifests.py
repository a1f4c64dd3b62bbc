"""Manifests of a run, mutated: whatever its next try meets, it commits its plan or nothing. The long form is a campaign."""

from __future__ import annotations

import random
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.support.repetition import examples
from tests.support.runs.mutated_manifests import Outcome, Place, run, template


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    with template() as made:
        yield made


@examples(150)
@given(st.randoms(use_true_random=False))
def test_what_is_read_of_a_changed_file_is_a_manifest_or_nothing(place: Place, rng: random.Random) -> None:
    place.reading(rng)


@examples(50, suppress_health_check=[HealthCheck.too_slow])
@given(st.randoms(use_true_random=False))
def test_whatever_a_manifest_says_the_run_commits_its_plan_or_nothing(
    place: Place, rng: random.Random
) -> None:
    place.example(rng, Outcome())


def test_the_examples_of_a_seed_reach_every_kind_of_change() -> None:
    outcome = run(20, seed=1)
    assert outcome.examples == 20
    assert set(outcome.committed) | set(outcome.refused) == {"bytes", "foreign", "signed", "result"}
    assert outcome.refused.keys() <= {"signed", "result"}, "what this run did not write refuses nothing"
