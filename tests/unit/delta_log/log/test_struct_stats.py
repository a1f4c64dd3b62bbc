"""Statistics in struct form become the texts that the same file would have got."""

from __future__ import annotations

import json
import math
from datetime import date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from delta_log.log.struct_stats import stats_of_struct

BOUNDS = pa.struct(
    [
        ("i", pa.int64()),
        ("f", pa.float32()),
        ("d", pa.decimal128(10, 2)),
        ('s"', pa.string()),
        ("day", pa.date32()),
        ("t", pa.timestamp("us", "UTC")),
        ("n", pa.timestamp("us")),
        ("inner", pa.struct([("x", pa.int32()), ("bin", pa.binary())])),
    ]
)
STATS = pa.struct(
    [("numRecords", pa.int64()), ("minValues", BOUNDS), ("maxValues", BOUNDS), ("tightBounds", pa.bool_())]
)


def texts(rows: list[Any], kind: pa.DataType = STATS) -> list[str | None]:
    return stats_of_struct(pa.array(rows, kind)).to_pylist()  # type: ignore[no-any-return]


def test_every_type_has_its_text() -> None:
    bounds = {
        "i": 1,
        "f": 0.1,
        "d": Decimal("1.00"),
        's"': 'a"\n',
        "day": date(1, 2, 3),
        "t": datetime(1969, 12, 31, 23, 59, 59, 999_999),
        "n": datetime(2024, 1, 1, 0, 0, 0, 1),
        "inner": {"x": None, "bin": b"x"},
    }
    (text,) = texts([{"numRecords": 3, "minValues": bounds, "maxValues": bounds, "tightBounds": False}])
    common = '"i":1,"f":0.10000000149011612,"d":1.00,"s\\"":"a\\"\\n","day":"0001-02-03"'
    assert text == (
        f'{{"numRecords":3,"minValues":{{{common},"t":"1969-12-31T23:59:59.999Z",'
        f'"n":"2024-01-01T00:00:00.000","inner":{{}}}},"maxValues":{{{common},"t":"1970-01-01T00:00:00.000Z",'
        f'"n":"2024-01-01T00:00:00.001","inner":{{}}}},"tightBounds":false}}'
    )


def test_what_is_null_is_left_out_at_every_depth() -> None:
    assert texts(
        [None, {}, {"numRecords": None, "maxValues": {}}, {"numRecords": 1, "minValues": {"i": 2}}]
    ) == [
        None,
        "{}",
        '{"maxValues":{}}',
        '{"numRecords":1,"minValues":{"i":2}}',
    ]
    assert texts([], STATS) == []
    assert texts([{}, None], pa.struct([])) == ["{}", None]


def test_bounds_that_json_or_readers_lack_are_left_out() -> None:
    for number in (math.nan, math.inf, -math.inf):
        assert texts([{"minValues": {"f": number}}]) == ['{"minValues":{}}']
    late = pa.array([2**62, 0]).cast(pa.timestamp("us", "UTC"))
    struct = pa.StructArray.from_arrays([pa.StructArray.from_arrays([late], ["t"])], ["maxValues"])
    assert stats_of_struct(struct).to_pylist() == [
        '{"maxValues":{}}',
        '{"maxValues":{"t":"1970-01-01T00:00:00.000Z"}}',
    ]


def test_timestamps_that_were_int96_get_their_zone_back() -> None:
    for unit, expected in (("ms", "Z"), ("ns", "Z"), ("us", "")):
        kind = pa.struct([("minValues", pa.struct([("t", pa.timestamp(unit))]))])
        (text,) = texts([{"minValues": {"t": datetime(2024, 1, 1)}}], kind)
        assert text == f'{{"minValues":{{"t":"2024-01-01T00:00:00.000{expected}"}}}}'


bounds = st.fixed_dictionaries(
    {},
    optional={
        "i": st.none() | st.integers(-(2**63), 2**63 - 1),
        "f": st.floats(width=32, allow_nan=False, allow_infinity=False),
        's"': st.none() | st.text(st.characters(exclude_categories=["Cs"])),
        "inner": st.none() | st.fixed_dictionaries({"x": st.none() | st.integers(-5, 5)}),
    },
)
rows = st.none() | st.fixed_dictionaries(
    {"numRecords": st.none() | st.integers(0, 9), "minValues": st.none() | bounds}
)


@given(st.lists(rows, max_size=6))
def test_every_struct_survives_its_text(structs: list[Any]) -> None:
    array = pa.array(structs, STATS)
    found = [None if text is None else json.loads(text) for text in stats_of_struct(array).to_pylist()]
    assert found == [_without_nulls(struct) for struct in structs]
    assert stats_of_struct(array.slice(1)).to_pylist() == stats_of_struct(array).to_pylist()[1:]


def _without_nulls(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _without_nulls(member) for name, member in value.items() if member is not None}
    return value


def test_the_structs_of_the_corpus_are_the_texts_beside_them(corpus: Path) -> None:
    compared = 0
    for path in sorted(corpus.glob("*/_delta_log/*.checkpoint*.parquet")):
        if path.parts[-3] == "krs-parsed-stats" or b"stats_parsed" not in path.read_bytes():
            continue  # its bounds were written without the zone that its schema has
        adds = (
            pq.read_table(path, columns=["add"], coerce_int96_timestamp_unit="ms")
            .column("add")
            .combine_chunks()
        )
        if not {"stats", "stats_parsed"} <= {field.name for field in adds.type}:
            continue
        found = stats_of_struct(pc.struct_field(adds, "stats_parsed")).to_pylist()
        for ours, theirs in zip(found, pc.struct_field(adds, "stats").to_pylist(), strict=True):
            if ours is not None and theirs is not None:
                assert json.loads(ours) == json.loads(theirs)
                compared += 1
    assert compared >= 5
