"""The texts of statistics as typed columns, against a reader that takes one text at a time."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_log.stats.file_stats import StatsColumn
from delta_log.stats.stats_columns import parse_stats_column, stats_type
from delta_log.table_config.schema import PrimitiveType

COLUMNS = (
    StatsColumn(("id",), PrimitiveType("long")),
    StatsColumn(("share",), PrimitiveType("double")),
    StatsColumn(("name",), PrimitiveType("string")),
    StatsColumn(("day",), PrimitiveType("date")),
    StatsColumn(("at",), PrimitiveType("timestamp")),
    StatsColumn(("price",), PrimitiveType("decimal(12,2)")),
    StatsColumn(("flag",), PrimitiveType("boolean")),
    StatsColumn(("inner", "deep"), PrimitiveType("integer")),
)
BOUNDS = {
    "id": 7,
    "share": -0.25,
    "name": "Ünï, {x: 1}",
    "day": "2024-02-29",
    "at": "2024-01-01T00:00:00.125Z",
    "price": 12.5,
    "inner": {"deep": -3},
}
COUNTS = {"id": 0, "share": 1, "name": 2, "day": 3, "at": 4, "price": 5, "flag": 6, "inner": {"deep": 7}}
STATS = {
    "numRecords": 10,
    "minValues": BOUNDS,
    "maxValues": BOUNDS,
    "nullCount": COUNTS,
    "tightBounds": True,
}
TYPED_BOUNDS = {
    **BOUNDS,
    "day": date(2024, 2, 29),
    "at": datetime(2024, 1, 1, 0, 0, 0, 125_000, timezone.utc),
    "price": Decimal("12.50"),
}
TYPED = {**STATS, "minValues": TYPED_BOUNDS, "maxValues": TYPED_BOUNDS}


def parsed(texts: Sequence[str | None]) -> list[Any]:
    column = pa.array(["not looked at", *texts], pa.string()).slice(1)
    found = parse_stats_column(column, COLUMNS)
    assert found.type == stats_type(COLUMNS)
    found.validate(full=True)
    return found.to_pylist()  # type: ignore[no-any-return]


def changed(**members: Any) -> str:
    return json.dumps({**STATS, **members}, ensure_ascii=False)


def one_by_one(texts: Sequence[str | None]) -> list[Any]:
    """Parse each text without neighbours."""
    return [parsed([text])[0] for text in texts]


@pytest.mark.parametrize("separators", [None, (",", ":"), (" ,\t", " : ")])
def test_every_type_is_read_from_its_text(separators: tuple[str, str] | None) -> None:
    text = json.dumps(STATS, separators=separators, ensure_ascii=False)
    assert parsed([text] * 3) == [TYPED] * 3


def test_values_of_any_length_are_read() -> None:
    names = ["", "x", "y" * 5000, "ÿ" * 3, "}", "a,b:c"]
    texts = [
        changed(numRecords=10**power, minValues={**BOUNDS, "name": name}) for power, name in enumerate(names)
    ]
    assert parsed(texts) == [
        {**TYPED, "numRecords": 10**power, "minValues": {**TYPED_BOUNDS, "name": name}}
        for power, name in enumerate(names)
    ]


def test_texts_with_different_keys_keep_their_order() -> None:
    texts = [
        *[changed(numRecords=number) for number in range(4)],
        None,
        "{}",
        '{"numRecords": 3}',
        '{"numRecords": 4, "minValues": {}}',
        changed(tightBounds=False),
        json.dumps({"tightBounds": False, "numRecords": 5}),
        changed(minValues={**BOUNDS, "name": 'quoted "so" \\ and\nso'}),
        changed(minValues={"id": None, "inner": {}}),
    ] * 3
    found = parsed(texts)
    assert found == one_by_one(texts)
    assert [row["numRecords"] for row in found[:10]] == [0, 1, 2, 3, None, None, 3, 4, 10, 5]
    assert found[5] == dict.fromkeys(TYPED)
    assert found[7]["minValues"] is not None
    assert found[6]["minValues"] is None
    assert found[10]["minValues"]["name"] == 'quoted "so" \\ and\nso'
    assert found[8]["tightBounds"] is False


@pytest.mark.parametrize(
    "bad",
    [
        "",
        "null",
        "[]",
        "no statistics",
        changed(numRecords="10"),
        changed(numRecords=1.5),
        changed(numRecords=[1, 2]),
        changed(numRecords={"a": 1}),
        changed(minValues=3),
        changed(minValues={**BOUNDS, "name": 4}),
        changed(minValues={**BOUNDS, "day": "yesterday"}),
        changed(minValues={**BOUNDS, "at": "2024"}),
        changed(minValues={**BOUNDS, "share": float("nan")}),
        changed(minValues={**BOUNDS, "share": float("-inf")}),
        changed(minValues={**BOUNDS, "price": 1.005}),
        changed(minValues={**BOUNDS, "inner": 1}),
        changed(tightBounds="true"),
        changed(tightBounds=1),
        changed().replace('"numRecords": 10', '"numRecords": 0x10'),
        changed().replace('"numRecords": 10', '"numRecords": 1, 2'),
        changed().replace('"nullCount"', '"nullcount"'),
        changed().replace("}}", "}]"),
        changed()[:-1],
        changed() + "}",
    ],
)
def test_a_broken_text_leaves_its_neighbours_alone(bad: str) -> None:
    good = changed()
    for texts in ([good, bad, good, good], [bad, bad, good], [bad, bad]):
        found = parsed(texts)
        assert repr(found) == repr(one_by_one(texts))  # NaN is not equal to itself
        assert [row for row, text in zip(found, texts, strict=True) if text == good] == [TYPED] * texts.count(
            good
        )
    (alone,) = parsed([bad])
    assert alone is None or alone["numRecords"] in (10, None)


def test_a_text_longer_than_a_block_among_short_texts() -> None:
    long, short = json.dumps({"k" * 3_000_000: 1}), '{"numRecords": 2}'
    for texts in ([short] * 2000 + [long], [long, long, short]):
        assert [row["numRecords"] for row in parsed(texts)] == [
            2 if text == short else None for text in texts
        ]


def test_more_texts_than_are_read_in_one_step() -> None:
    counts = range(40_000)
    texts = [f'{{"numRecords": {count}}}' if count % 7 else None for count in counts]
    assert [row["numRecords"] for row in parsed(texts)] == [count if count % 7 else None for count in counts]


def test_no_texts_and_no_columns() -> None:
    assert parsed([]) == []
    assert parse_stats_column(pa.array([changed()]), ()).to_pylist() == [
        {"numRecords": 10, "minValues": None, "maxValues": None, "nullCount": None, "tightBounds": True}
    ]


members = st.fixed_dictionaries(
    {},
    optional={
        "id": st.none() | st.integers(-(2**63), 2**63 - 1),
        "share": st.none() | st.floats(allow_nan=False, allow_infinity=False),
        "name": st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "inner": st.none() | st.fixed_dictionaries({}, optional={"deep": st.integers(-9, 9)}),
        "other": st.integers() | st.lists(st.integers(), max_size=2) | st.text("ab{}[],:", max_size=3),
    },
)
statistics = st.fixed_dictionaries(
    {"numRecords": st.integers(0, 10**12)},
    optional={"minValues": st.none() | members, "tightBounds": st.booleans()},
)


@given(st.lists(statistics, min_size=1, max_size=5), st.lists(st.integers(0, 4), max_size=30), st.booleans())
def test_many_texts_read_as_each_does(stats: list[Any], picks: list[int], ascii_only: bool) -> None:
    rows = [stats[pick % len(stats)] for pick in picks]
    found = parsed([json.dumps(row, ensure_ascii=ascii_only) for row in rows])
    for row, typed in zip(rows, found, strict=True):
        bounds = row.get("minValues")
        assert (typed["numRecords"], typed["tightBounds"]) == (row["numRecords"], row.get("tightBounds"))
        assert (typed["minValues"] is None) == (bounds is None)
        if bounds is not None:
            assert [typed["minValues"][name] for name in ("id", "share", "name")] == [
                bounds.get(name) for name in ("id", "share", "name")
            ]
            inner = bounds.get("inner")
            assert typed["minValues"]["inner"] == (None if inner is None else {"deep": inner.get("deep")})
