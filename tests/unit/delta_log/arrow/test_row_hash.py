"""A hash of rows is the same for the same rows in any order and any batches, and another for other rows."""

from __future__ import annotations

import random
from functools import reduce
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples

from delta_log.arrow.row_hash import RowHash, hashes_of_texts

ACTIONS = pa.schema(
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


def hash_of_actions(rows: list[dict[str, Any]], batch_rows: int = 100) -> RowHash:
    batches = pa.Table.from_pylist(rows, ACTIONS).to_batches(batch_rows)
    return reduce(RowHash.plus, (RowHash.of(batch, ordered_maps=False) for batch in batches), RowHash())


@given(rows=st.lists(ROW, max_size=12), data=st.data())
def test_the_order_of_rows_and_of_the_entries_of_maps_means_nothing(
    rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    shuffled = data.draw(st.permutations(rows))
    assert hash_of_actions(shuffled, data.draw(st.integers(1, 5))) == hash_of_actions(rows)


@given(rows=st.lists(ROW, min_size=1, max_size=6), other=ROW, data=st.data())
def test_one_changed_value_is_found_out(
    rows: list[dict[str, Any]], other: dict[str, Any], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    name = data.draw(st.sampled_from(ACTIONS.names))
    changed = [dict(row) for row in rows]
    changed[at][name] = other[name]
    before, after = (dict(v) if isinstance(v, list) else v for v in (rows[at][name], other[name]))
    same = before == after
    assert (hash_of_actions(changed) == hash_of_actions(rows)) == same


def test_a_row_that_is_there_twice_counts_twice() -> None:
    row = {"text": "x"}
    assert hash_of_actions([row, row]) != hash_of_actions([row])
    assert hash_of_actions([row, row]) != hash_of_actions([])


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
    found = {hash_of_actions([{"text": text}]) for text in [*texts, None]}
    assert len(found) == len(texts) + 1
    assert hash_of_actions([{"text": "ab"}, {"text": "cd"}]) != hash_of_actions(
        [{"text": "abc"}, {"text": "d"}]
    )
    swapped = {"map": [("k", "v")]}, {"map": [("v", "k")]}
    assert hash_of_actions([swapped[0]]) != hash_of_actions([swapped[1]])
    assert hash_of_actions([{"map": []}]) != hash_of_actions([{"map": None}])
    assert hash_of_actions([{"struct": {"text": None, "number": None}}]) != hash_of_actions(
        [{"struct": None}]
    )


def test_a_slice_counts_for_itself_alone() -> None:
    rows = [{"text": f"row {n}" * n, "map": [("k", str(n))], "struct": {"text": str(n)}} for n in range(20)]
    whole = pa.Table.from_pylist(rows, ACTIONS).to_batches()[0]
    assert RowHash.of(whole.slice(7, 5), ordered_maps=False) == hash_of_actions(rows[7:12])
    assert RowHash.of(whole.slice(20)) == RowHash()


DATA = pa.schema(
    [
        ("flag", pa.bool_()),
        ("small", pa.int8()),
        ("long", pa.int64()),
        ("double", pa.float64()),
        ("float", pa.float32()),
        ("decimal", pa.decimal128(38, 3)),
        ("day", pa.date32()),
        ("moment", pa.timestamp("us", tz="UTC")),
        ("text", pa.string()),
        ("bytes", pa.binary()),
        ("list", pa.list_(pa.int32())),
        ("texts", pa.list_(pa.string())),
        ("map", pa.map_(pa.string(), pa.int64())),
        ("struct", pa.struct([("a", pa.int16()), ("b", pa.list_(pa.float64()))])),
    ]
)


def _or_null(values: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | values


ROWS = st.lists(
    st.fixed_dictionaries(
        {
            "flag": _or_null(st.booleans()),
            "small": _or_null(st.integers(-128, 127)),
            "long": _or_null(st.integers(-(2**63), 2**63 - 1)),
            "double": _or_null(st.floats()),
            "float": _or_null(st.floats(width=32)),
            "decimal": _or_null(st.decimals(-(10**34), 10**34, places=3)),
            "day": _or_null(st.dates()),
            "moment": _or_null(st.datetimes()),
            "text": _or_null(st.text(max_size=20)),
            "bytes": _or_null(st.binary(max_size=20)),
            "list": _or_null(st.lists(_or_null(st.integers(-9, 9)), max_size=4)),
            "texts": _or_null(st.lists(_or_null(st.text(max_size=4)), max_size=4)),
            "map": _or_null(st.dictionaries(st.text(max_size=3), _or_null(st.integers(0, 9)), max_size=3)),
            "struct": _or_null(
                st.fixed_dictionaries(
                    {"a": _or_null(st.integers(-9, 9)), "b": _or_null(st.lists(st.floats(), max_size=2))}
                )
            ),
        }
    ),
    max_size=12,
)


def batch(rows: list[dict[str, Any]]) -> pa.RecordBatch:
    arrays = [
        pa.array([list(row["map"].items()) if row["map"] is not None else None for row in rows], field.type)
        if field.name == "map"
        else pa.array([row[field.name] for row in rows], field.type)
        for field in DATA
    ]
    return pa.record_batch(arrays, schema=DATA)


@examples(40)
@given(ROWS, st.data())
def test_order_and_cuts_change_nothing(rows: list[dict[str, Any]], data: st.DataObject) -> None:
    whole = batch(rows)
    shuffled = batch(data.draw(st.permutations(rows)))
    cut = data.draw(st.integers(0, len(rows)))
    parts = RowHash.of(whole.slice(0, cut)).plus(RowHash.of(whole.slice(cut)))
    assert RowHash.of(whole) == RowHash.of(shuffled) == parts
    assert RowHash.of(whole).rows == len(rows)


@examples(40)
@given(ROWS.filter(bool), st.data())
def test_another_value_in_any_column_of_any_row_is_seen(
    rows: list[dict[str, Any]], data: st.DataObject
) -> None:
    at = data.draw(st.integers(0, len(rows) - 1))
    other = data.draw(ROWS.filter(bool))[0]
    name = data.draw(st.sampled_from(DATA.names))
    changed = [*rows[:at], {**rows[at], name: other[name]}, *rows[at + 1 :]]
    one, two = batch(rows), batch(changed)
    # Arrow's own notion of equality takes both zeros for one, and no NaN for another, nor for itself.
    if one.column(name).slice(at, 1) != two.column(name).slice(at, 1) and "nan" not in str(rows[at][name]):
        assert RowHash.of(one) != RowHash.of(two)


@pytest.mark.parametrize(
    ("one", "two", "kind"),
    [
        ([None], [0], pa.int64()),
        ([""], [None], pa.string()),
        (["ab", "c"], ["a", "bc"], pa.string()),
        (["\0"], ["\0\0"], pa.string()),
        ([[1], [2, 3]], [[1, 2], [3]], pa.list_(pa.int8())),
        ([[]], [None], pa.list_(pa.int8())),
        ([[1, 2]], [[2, 1]], pa.list_(pa.int8())),
        ([0.0], [-0.0], pa.float64()),
        ([[("a", 1), ("b", 2)]], [[("a", 2), ("b", 1)]], pa.map_(pa.string(), pa.int8())),
        ([{"a": None}], [None], pa.struct([("a", pa.int8())])),
        ([1, 1], [2, 2], pa.int64()),
    ],
)
def test_what_looks_alike_is_told_apart(one: list[Any], two: list[Any], kind: pa.DataType) -> None:
    def checksum(values: list[Any]) -> RowHash:
        return RowHash.of(pa.record_batch([pa.array(values, kind)], names=["c"]))

    assert checksum(one) != checksum(two)


def test_values_that_swap_their_columns_are_told_apart() -> None:
    one, two = pa.array([1, 2]), pa.array([2, 1])
    first = RowHash.of(pa.record_batch([one, two], names=["a", "b"]))
    assert first == RowHash.of(pa.record_batch([two, one], names=["a", "b"])), "the same rows"
    swapped = pa.record_batch([pa.array([1, 1]), pa.array([2, 2])], names=["a", "b"])
    assert first != RowHash.of(swapped)


def test_long_texts_are_hashed_piece_by_piece() -> None:
    rng = random.Random(5)
    texts = ["x" * rng.randrange(0, 3 << 20) for _ in range(12)]
    whole = pa.record_batch([pa.array(texts)], names=["t"])
    each = RowHash()
    for at in range(len(texts)):
        each = each.plus(RowHash.of(whole.slice(at, 1)))
    assert RowHash.of(whole) == each


def test_the_order_of_the_entries_of_a_map_counts_where_asked() -> None:
    kind = pa.map_(pa.string(), pa.int8())
    one, two = (
        pa.record_batch([pa.array([entries], kind)], names=["c"])
        for entries in ([("a", 1), ("b", 2)], [("b", 2), ("a", 1)])
    )
    assert RowHash.of(one) != RowHash.of(two)
    assert RowHash.of(one, ordered_maps=False) == RowHash.of(two, ordered_maps=False)


def test_a_long_text_is_told_from_one_with_another_byte_anywhere() -> None:
    text = bytearray(random.Random(3).randbytes(3 * 4096 + 5))
    changed = [bytes(text)]
    for at in (0, 4095, 4096, 2 * 4096, len(text) - 1):
        other = bytearray(text)
        other[at] ^= 1
        changed.append(bytes(other))
    changed += [bytes(text[:-1]), bytes(text[4096:] + text[:4096])]
    found = {RowHash.of(pa.record_batch([pa.array([b"short", one])], names=["c"])) for one in changed}
    assert len(found) == len(changed)


def test_the_hashes_of_texts_are_the_stored_ones() -> None:
    texts = ["", "a", "12345678", "123456789", "part-00000-d6e1.c000.snappy.parquet", "ä" * 50]
    assert hashes_of_texts(pa.array(texts)).tolist() == [
        0,
        6983165654182521903,
        9263063154187325744,
        10352911222694751493,
        4004333192533358582,
        2451253103758311277,
    ]
