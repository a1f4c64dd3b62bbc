"""A filter never denies a key that it was made of, and seldom affirms another."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples

from delta_log.checkpoint.key_filter import KeyFilter, short_hashes


def keys_of(texts: list[str]) -> pa.Array:
    return pa.array(texts, pa.string())


@examples(60)
@given(st.lists(st.text(max_size=20), max_size=30), st.lists(st.text(max_size=20), max_size=30))
def test_a_filter_affirms_its_own_keys_and_survives_being_stored(own: list[str], asked: list[str]) -> None:
    stored = KeyFilter.of(keys_of(own)).encode()
    found = KeyFilter.decode(stored)
    assert found is not None
    assert found.may_hold(short_hashes(keys_of(own))).all()
    answers = found.may_hold(short_hashes(keys_of(asked)))
    assert answers.tolist() == [key in own for key in asked]  # at this size, a stranger would be a wonder


def test_chunks_are_one_column() -> None:
    texts = [f"part-{n:05}.parquet" for n in range(1000)]
    chunked = pa.chunked_array([texts[:300], [], texts[300:]], pa.string())
    assert KeyFilter.of(chunked).encode() == KeyFilter.of(keys_of(texts)).encode()


def test_a_full_filter_is_small_and_affirms_few_strangers() -> None:
    own = KeyFilter.of(keys_of([f"day=2024-01-01/part-{n:08}-c000.snappy.parquet" for n in range(50_000)]))
    assert len(own.encode()) < 2.5 * 50_000
    strangers = short_hashes(
        keys_of([f"day=2024-01-01/part-{n:08}-c001.snappy.parquet" for n in range(50_000)])
    )
    assert own.may_hold(strangers).sum() < 10


@pytest.mark.parametrize("damage", [lambda data: data[:5], lambda data: data[:-1] + b"x", lambda data: b""])
def test_damaged_bytes_are_no_filter(damage: object) -> None:
    stored = KeyFilter.of(keys_of(["a", "b", "c"])).encode()
    assert callable(damage)
    assert KeyFilter.decode(damage(stored)) is None


def test_hashes_are_the_same_in_every_process() -> None:
    assert short_hashes(keys_of(["", "a", "day=1/part-0.parquet"])).tolist() == [0, 1625894954, 610557435]
