"""The same rows in the same order have the same digest, and no other rows have it."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples

from delta_log.arrow.content_digest import ContentDigest
from delta_log.log.file_columns import ADD_SCHEMA

_TEXT = st.none() | st.text(max_size=4)
_MAP = st.none() | st.dictionaries(st.text(max_size=2), _TEXT, max_size=2).map(
    lambda found: list(found.items())
)
_NUMBER = st.none() | st.integers(0, 3)
_VECTOR = st.none() | st.fixed_dictionaries({"storageType": _TEXT, "offset": _NUMBER, "cardinality": _NUMBER})
ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "path": _TEXT,
            "partition_values": _MAP,
            "size": _NUMBER,
            "stats": _TEXT,
            "deletion_vector": _VECTOR,
            "base_row_id": _NUMBER,
        }
    ),
    max_size=6,
)


def batch_of(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pylist(rows, ADD_SCHEMA)


@examples(60)
@given(ROWS, st.data())
def test_how_rows_are_cut_into_batches_means_nothing(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    whole = batch_of(rows)
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=3)))
    bounds = [0, *cuts, len(rows)]
    parts = [whole.slice(a, b - a) for a, b in itertools.pairwise(bounds)]
    fresh = [batch_of(rows[a:b]) for a, b in itertools.pairwise(bounds)]
    digest = ContentDigest.of([whole])
    assert ContentDigest.of(parts) == ContentDigest.of(fresh) == digest
    assert ContentDigest.of(parts).text() == digest.text()


@examples(60)
@given(ROWS, ROWS)
def test_other_rows_have_another_digest(one: list[dict[str, Any]], other: list[dict[str, Any]]) -> None:
    first, second = batch_of(one), batch_of(other)
    same = first.to_pylist() == second.to_pylist()
    assert (ContentDigest.of([first]) == ContentDigest.of([second])) == same


def test_a_digest_is_the_same_in_every_process() -> None:
    row = {"path": "a", "partition_values": [("p", "1")], "size": 7, "stats": '{"numRecords":1}'}
    assert ContentDigest.of([batch_of([row])]).text() == "dda042e730de3564682606c12742e560"
