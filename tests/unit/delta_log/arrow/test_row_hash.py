"""A fingerprint is the same for the same rows in any order and any batches, and another for other rows."""

from __future__ import annotations

from functools import reduce
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from delta_log.arrow.row_hash import Fingerprint

SCHEMA = pa.schema(
    [
        ("text", pa.string()),
        ("number", pa.int64()),
        ("flag", pa.bool_()),
        ("map", pa.map_(pa.string(), pa.string())),
        ("struct", pa.struct([("text", pa.string()), ("number", pa.int32())])),
    ]
)
TEXT = st.text(st.characters(codec="utf-8"), max_size=40)
ROW = st.fixed_dictionaries(
    {
        "text": st.none() | TEXT,
        "number": st.none() | st.integers(-(2**63), 2**63 - 1),
        "flag": st.none() | st.booleans(),
        "map": st.none() | st.dictionaries(TEXT, st.none() | TEXT, max_size=3).map(lambda d: list(d.items())),
        "struct": st.none()
        | st.fixed_dictionaries(
            {"text": st.none() | TEXT, "number": st.none() | st.integers(-(2**31), 2**31 - 1)}
        ),
    }
)


def fingerprint_of(rows: list[dict[str, Any]], batch_rows: int = 100) -> Fingerprint:
    batches = pa.Table.from_pylist(rows, SCHEMA).to_batches(batch_rows)
    return reduce(Fingerprint.plus, map(Fingerprint.of, batches), Fingerprint())


@given(rows=st.lists(ROW, max_size=12), data=st.data())
def test_order_and_batches_mean_nothing(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    shuffled = data.draw(st.permutations(rows))
    assert fingerprint_of(shuffled, data.draw(st.integers(1, 5))) == fingerprint_of(rows)


@given(rows=st.lists(ROW, min_size=1, max_size=6), other=ROW, data=st.data())
def test_one_changed_value_is_found_out(
    rows: list[dict[str, Any]], other: dict[str, Any], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    name = data.draw(st.sampled_from(SCHEMA.names))
    changed = [dict(row) for row in rows]
    changed[at][name] = other[name]
    before, after = (dict(v) if isinstance(v, list) else v for v in (rows[at][name], other[name]))
    same = before == after
    assert (fingerprint_of(changed) == fingerprint_of(rows)) == same


def test_a_row_that_is_there_twice_counts_twice() -> None:
    row = {"text": "x"}
    assert fingerprint_of([row, row]) != fingerprint_of([row])
    assert fingerprint_of([row, row]) != fingerprint_of([])


def test_what_has_the_same_bytes_in_other_places_is_something_else() -> None:
    texts = [
        "",
        "\x00",
        "\x00" * 8,
        "\x00" * 9,
        "a",
        "a\x00",
        "a" * 8,
        "a" * 16,
        "a" * 8 + "b" * 8,
        "b" * 8 + "a" * 8,
    ]
    found = {fingerprint_of([{"text": text}]) for text in [*texts, None]}
    assert len(found) == len(texts) + 1
    assert fingerprint_of([{"text": "ab"}, {"text": "cd"}]) != fingerprint_of(
        [{"text": "abc"}, {"text": "d"}]
    )
    swapped = {"map": [("k", "v")]}, {"map": [("v", "k")]}
    assert fingerprint_of([swapped[0]]) != fingerprint_of([swapped[1]])
    assert fingerprint_of([{"map": []}]) != fingerprint_of([{"map": None}])
    assert fingerprint_of([{"struct": {"text": None, "number": None}}]) != fingerprint_of([{"struct": None}])


def test_a_slice_counts_for_itself_alone() -> None:
    rows = [{"text": f"row {n}" * n, "map": [("k", str(n))], "struct": {"text": str(n)}} for n in range(20)]
    whole = pa.Table.from_pylist(rows, SCHEMA).to_batches()[0]
    assert Fingerprint.of(whole.slice(7, 5)) == fingerprint_of(rows[7:12])
    assert Fingerprint.of(whole.slice(20)) == Fingerprint()
