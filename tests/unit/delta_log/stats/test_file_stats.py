"""Statistics bound every value of a file, and say no more than they know."""

from __future__ import annotations

import copy
import json
import math
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from delta_log.errors import CorruptLog, InvalidProperty
from delta_log.stats.file_stats import (
    StatsCollector,
    StatsColumn,
    parse_stats,
    stats_columns,
    string_prefix_length,
    truncate_max,
    truncate_min,
)
from delta_log.table_config.schema import (
    ArrayType,
    MapType,
    PrimitiveType,
    StructField,
    StructType,
    parse_schema,
    to_arrow_type,
)

DEL, MAX = "\x7f", "\U0010ffff"
UTC = timezone.utc
text = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(["a", DEL, "\ufffd", MAX, "🚀"]))


def collect(values: list[Any], name: str) -> str:
    """The statistics of one column ``c``, gathered batch by batch."""
    data_type = PrimitiveType(name)
    collector = StatsCollector([StatsColumn(("c",), data_type)])
    for half in (values[: len(values) // 2], values[len(values) // 2 :]):
        collector.update(pa.table({"c": pa.array(half, to_arrow_type(data_type))}))
    return collector.finish()


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "byte": st.integers(-(2**7), 2**7 - 1),
    "short": st.integers(-(2**15), 2**15 - 1),
    "integer": st.integers(-(2**31), 2**31 - 1),
    "long": st.integers(-(2**63), 2**63 - 1),
    "float": st.floats(width=32),
    "double": st.floats(),
    "decimal(38,18)": st.decimals(-(10**15), 10**15, places=18),
    "decimal(4,0)": st.integers(-9999, 9999).map(Decimal),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(UTC), max_value=datetime(9999, 12, 31, 23, 59, 59, 999_000)),
    "timestamp_ntz": st.datetimes(max_value=datetime(9999, 12, 31, 23, 59, 59, 999_000)),
    "string": text,
}


@pytest.mark.parametrize("name", VALUES)
def test_bounds_contain_every_value_and_are_tight_but_for_cuts(name: str) -> None:
    columns = [StatsColumn(("c",), PrimitiveType(name))]

    @given(st.lists(st.none() | VALUES[name], max_size=8))
    def check(values: list[Any]) -> None:
        text = collect(values, name)
        parsed = parse_stats(text, columns)
        present = [value for value in values if value is not None]
        assert parsed.num_records == len(values)
        assert parsed.null_count[("c",)] == len(values) - len(present)
        low: Any = parsed.min_values.get(("c",))
        high: Any = parsed.max_values.get(("c",))
        if not present:
            assert low is None
            assert high is None
            return
        if isinstance(present[0], float):
            if not all(math.isfinite(value) for value in present):
                assert low is None
                assert high is None
                return
            doubles = json.loads(text)
            assert doubles["minValues"]["c"] == min(present)
            assert doubles["maxValues"]["c"] == max(present)
        if name == "string":
            assert low is not None
            assert low.encode() <= min(value.encode() for value in present)
            assert high is None or high.encode() >= max(value.encode() for value in present)
            return
        if name.startswith("timestamp"):
            assert low <= min(present) <= low + timedelta(milliseconds=1)
            assert high - timedelta(milliseconds=1) <= max(present) <= high
        else:
            assert (low, high) == (min(present), max(present))

    check()


@given(text, st.integers(0, 40))
def test_a_cut_string_bounds_the_whole_one(value: str, limit: int) -> None:
    low, high = truncate_min(value, limit), truncate_max(value, limit)
    assert (low is None) == (limit == 0)
    if low is not None:
        assert value.startswith(low)
        assert len(low) <= limit
    if high is not None:
        assert high.encode() >= value.encode()
        assert len(high.encode("utf-16-le")) // 2 <= max(2 * limit + 3, limit)


@pytest.mark.parametrize(
    ("value", "limit", "expected"),
    [
        ("abcd", 0, None),
        (f"a{MAX}d", 2, f"a{MAX}{DEL}"),
        ("abcd", 6, "abcd"),
        ("abcdef", 6, "abcdef"),
        ("abcde\ufffd", 6, "abcde\ufffd"),
        ("abcd\ufffdabcd", 6, f"abcd\ufffda{DEL}"),
        ("abcdef\ufffd", 6, f"abcdef{MAX}"),
        ("abcdef-abcdef\ufffd", 6, f"abcdef{DEL}"),
        ("漢字仮名한글தமி", 6, f"漢字仮名한글{MAX}"),
        ("漢字仮名한글", 6, "漢字仮名한글"),
        ("abcdef🚀", 6, f"abcdef{MAX}"),
        (MAX * 4, 1, None),
        (MAX * 4, 4, MAX * 4),
        ("\ufffd\ufffd\ufffd\ufffd", 2, f"\ufffd\ufffd{MAX}"),
        ("abcdefghijklm💞😉💕\n🥀🌹💐🌺🌷🌼🌻🌷🥀", 32, f"abcdefghijklm💞😉💕\n🥀🌹💐🌺🌷🌼{MAX}"),
    ],
)
def test_a_maximum_is_cut_as_spark_cuts_it(value: str, limit: int, expected: str | None) -> None:
    assert truncate_max(value, limit) == expected


def test_the_text_is_exact() -> None:
    schema = StructType(
        (
            StructField("i", PrimitiveType("long")),
            StructField("d", PrimitiveType("decimal(38,18)")),
            StructField("f", PrimitiveType("double")),
            StructField('q"', PrimitiveType("string")),
            StructField("t", PrimitiveType("timestamp")),
            StructField("n", PrimitiveType("timestamp_ntz")),
            StructField("day", PrimitiveType("date")),
            StructField("b", PrimitiveType("boolean")),
        )
    )
    collector = StatsCollector(stats_columns(schema), tight_bounds=True)
    moment = datetime(2024, 1, 1, 0, 0, 0, 1)
    row = {
        "i": 2**53 + 1,
        "d": Decimal("0.000000000000000001"),
        "f": 0.0,
        'q"': 'ü"\\\n',
        "b": True,
        "t": moment.replace(tzinfo=UTC),
        "n": moment,
        "day": date(1, 2, 3),
    }
    arrow = pa.schema([(field.name, to_arrow_type(field.type)) for field in schema])
    collector.update(pa.Table.from_pylist([row, dict.fromkeys(row)], arrow))
    assert collector.finish() == (
        '{"numRecords":2,'
        '"minValues":{"i":9007199254740993,"d":0.000000000000000001,"f":-0.0,"q\\"":"ü\\"\\\\\\n",'
        '"t":"2024-01-01T00:00:00.000Z","n":"2024-01-01T00:00:00.000","day":"0001-02-03"},'
        '"maxValues":{"i":9007199254740993,"d":0.000000000000000001,"f":0.0,"q\\"":"ü\\"\\\\\\n",'
        '"t":"2024-01-01T00:00:00.001Z","n":"2024-01-01T00:00:00.001","day":"0001-02-03"},'
        '"nullCount":{"i":1,"d":1,"f":1,"q\\"":1,"t":1,"n":1,"day":1,"b":1},"tightBounds":true}'
    )


def test_no_rows_and_no_columns_are_statistics_too() -> None:
    assert StatsCollector([]).finish() == '{"numRecords":0,"minValues":{},"maxValues":{},"nullCount":{}}'
    collector = StatsCollector([StatsColumn(("c",), PrimitiveType("long"))])
    collector.update(pa.table({"c": pa.array([], pa.int64())}))
    assert collector.finish() == '{"numRecords":0,"minValues":{},"maxValues":{},"nullCount":{"c":0}}'


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ["float", "double"])
def test_a_number_that_json_lacks_takes_the_bounds_away_for_good(name: str, bad: float) -> None:
    for values in ([1.0, bad, 2.0, 3.0], [bad], [None, bad, 1.0], [1.0, 2.0, bad]):
        stats = json.loads(collect(values, name))
        assert stats["minValues"] == stats["maxValues"] == {}


@pytest.mark.parametrize("zeros", [[0.0], [-0.0], [0.0, -0.0], [-0.0, 0.0]])
def test_zero_is_bounded_from_both_sides(zeros: list[float]) -> None:
    collector = StatsCollector([StatsColumn(("c",), PrimitiveType("float"))])
    collector.update(pa.table({"c": pa.array(zeros, pa.float32())}))
    assert '"minValues":{"c":-0.0},"maxValues":{"c":0.0}' in collector.finish()


@st.composite
def float_chunks(draw: st.DrawFn, kind: Any) -> pa.Array:
    """Part of an array whose nulls have anything in their places."""
    width: Literal[32, 64] = 32 if kind == pa.float32() else 64
    values = draw(st.lists(st.floats(width=width, allow_nan=False, allow_infinity=False), max_size=20))
    nulls = [draw(st.booleans()) for _ in values]
    hidden = st.sampled_from([math.nan, math.inf, -math.inf, 0.0, 1e30])
    filled = [draw(hidden) if null else value for value, null in zip(values, nulls, strict=True)]
    whole = pa.array(filled, kind)
    validity = pa.array([not null for null in nulls]).buffers()[1] if values else None
    array = pa.Array.from_buffers(kind, len(values), [validity if any(nulls) else None, whole.buffers()[1]])
    return array.slice(draw(st.integers(0, 3)))


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@given(st.data())
def test_numbers_are_bounded_whatever_lies_in_the_places_of_nulls(kind: Any, data: st.DataObject) -> None:
    chunks = data.draw(st.lists(float_chunks(kind), max_size=4))
    column = StatsColumn(("c",), PrimitiveType("float" if kind == pa.float32() else "double"))
    collector = StatsCollector([column])
    values = pa.chunked_array(chunks, kind)
    collector.update(pa.table({"c": values}))
    known = [value for value in values.to_pylist() if value is not None]
    stats = parse_stats(collector.finish(), [column])
    assert stats.null_count == {column.path: len(values) - len(known)}
    if known:
        assert (stats.min_values, stats.max_values) == ({column.path: min(known)}, {column.path: max(known)})
    else:
        assert (stats.min_values, stats.max_values) == ({}, {})


def test_years_that_readers_lack_have_no_bounds() -> None:
    for name, arrow, count in (
        ("date", pa.int32(), 2932897),
        ("date", pa.int32(), -719163),
        ("timestamp", pa.int64(), 253402300800000000 - 1),
        ("timestamp", pa.int64(), -62135596800000001),
        ("timestamp_ntz", pa.int64(), 2**63 - 1),
    ):
        values = pa.array([0, count], arrow).cast(to_arrow_type(PrimitiveType(name)))
        collector = StatsCollector([StatsColumn(("c",), PrimitiveType(name))])
        collector.update(pa.table({"c": values}))
        stats = json.loads(collector.finish())
        assert stats["minValues"] == stats["maxValues"] == {}
        assert stats["nullCount"] == {"c": 0}


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_timestamps_of_any_unit_are_rounded_outwards(unit: str) -> None:
    moments = pa.array([-1, 1], pa.timestamp(unit, "UTC"))
    collector = StatsCollector([StatsColumn(("c",), PrimitiveType("timestamp"))])
    collector.update(pa.table({"c": moments}))
    step = timedelta(seconds=1) if unit == "s" else timedelta(milliseconds=1)
    stats = parse_stats(collector.finish(), collector.columns)
    epoch = datetime(1970, 1, 1, tzinfo=UTC)
    assert stats.min_values == {("c",): epoch - step}
    assert stats.max_values == {("c",): epoch + step}


def test_strings_that_are_not_utf8_have_no_bounds() -> None:
    values = pa.array([b"\xff", b"a"]).view(pa.string())
    collector = StatsCollector([StatsColumn(("c",), PrimitiveType("string"))])
    collector.update(pa.table({"c": values}))
    assert json.loads(collector.finish())["maxValues"] == {}


@example([None])
@given(st.lists(st.none() | text, max_size=8))
def test_encoded_strings_have_the_statistics_of_plain_ones(values: list[str | None]) -> None:
    plain = pa.array(values, pa.string())
    unused = pa.DictionaryArray.from_arrays(
        plain.dictionary_encode().indices,
        pa.concat_arrays([plain.dictionary_encode().dictionary, pa.array([MAX])]),
    )
    null_inside = pa.DictionaryArray.from_arrays(
        pa.array(range(len(values)), pa.int8()), pa.array(values, pa.string())
    )
    texts = set()
    for array in (plain, unused, null_inside, plain.cast(pa.large_string()), plain.cast(pa.string_view())):
        collector = StatsCollector([StatsColumn(("c",), PrimitiveType("string"))])
        collector.update(pa.table({"c": array}))
        texts.add(collector.finish())
    assert len(texts) == 1


NESTED = StructType(
    (
        StructField("a", PrimitiveType("integer"), metadata={"delta.columnMapping.physicalName": "col-1"}),
        StructField(
            "S",
            StructType(
                (
                    StructField("x", PrimitiveType("string")),
                    StructField("deep", StructType((StructField("y.z", PrimitiveType("long")),))),
                    StructField("list", ArrayType(PrimitiveType("long"))),
                )
            ),
            metadata={"delta.columnMapping.physicalName": "col-2"},
        ),
        StructField("m", MapType(PrimitiveType("string"), PrimitiveType("long"))),
        StructField("bin", PrimitiveType("binary")),
        StructField("part", PrimitiveType("date")),
        StructField("last", PrimitiveType("date")),
    )
)


def test_a_null_struct_makes_its_members_null() -> None:
    rows = [
        {"col-1": 1, "col-2": {"x": "b", "deep": {"y.z": 5}, "list": [1]}, "m": [("k", 1)], "bin": b"x"},
        {"col-1": 2, "col-2": {"x": "a", "deep": None, "list": None}, "m": None, "bin": None},
        {"col-1": None, "col-2": None, "m": None, "bin": None},
    ]
    struct = pa.struct(
        [("x", pa.string()), ("deep", pa.struct([("y.z", pa.int64())])), ("list", pa.list_(pa.int64()))]
    )
    table = pa.Table.from_pylist(
        rows,
        pa.schema(
            [
                ("col-1", pa.int32()),
                ("col-2", struct),
                ("m", pa.map_(pa.string(), pa.int64())),
                ("bin", pa.binary()),
            ]
        ),
    )
    collector = StatsCollector(stats_columns(NESTED, partition_columns=["part"]))
    collector.update(table.to_batches()[0])
    collector.update(table)
    assert json.loads(collector.finish()) == {
        "numRecords": 6,
        "minValues": {"col-1": 1, "col-2": {"x": "a", "deep": {"y.z": 5}}},
        "maxValues": {"col-1": 2, "col-2": {"x": "b", "deep": {"y.z": 5}}},
        # "last" is in the schema and not in the file.
        "nullCount": {
            "col-1": 2,
            "col-2": {"x": 2, "deep": {"y.z": 4}, "list": 4},
            "m": 4,
            "bin": 4,
            "last": 6,
        },
    }


A, X, Y, LIST, M, BIN, LAST = (
    *(("col-1",), ("col-2", "x"), ("col-2", "deep", "y.z"), ("col-2", "list")),
    *(("m",), ("bin",), ("last",)),
)


@pytest.mark.parametrize(
    ("properties", "clustering", "expected"),
    [
        ({}, [], [A, X, Y, LIST, M, BIN, LAST]),
        ({"delta.dataSkippingNumIndexedCols": "3"}, [], [A, X, Y]),
        ({"delta.dataSkippingNumIndexedCols": "0"}, [], []),
        ({"delta.dataSkippingNumIndexedCols": "-1"}, [], [A, X, Y, LIST, M, BIN, LAST]),
        ({"delta.dataSkippingNumIndexedCols": "1"}, [["last"], ["col-2", "deep", "y.z"]], [A, Y, LAST]),
        ({"delta.dataSkippingStatsColumns": "LAST, s.DEEP.`y.z`"}, [], [Y, LAST]),
        (
            {"delta.dataSkippingStatsColumns": "s,absent", "delta.dataSkippingNumIndexedCols": "1"},
            [],
            [X, Y, LIST],
        ),
        ({"delta.dataSkippingStatsColumns": "part"}, [["col-1"]], [A]),
        ({"delta.dataSkippingStatsColumns": ""}, [], []),
    ],
)
def test_properties_and_clustering_choose_the_columns(
    properties: dict[str, str | None], clustering: list[list[str]], expected: list[tuple[str, ...]]
) -> None:
    chosen = stats_columns(
        NESTED, partition_columns=["part"], properties=properties, clustering_columns=clustering
    )
    assert [column.path for column in chosen] == expected


def test_thirty_two_leaves_are_the_default() -> None:
    wide = StructType(tuple(StructField(f"c{i}", PrimitiveType("long")) for i in range(40)))
    assert len(stats_columns(wide)) == 32
    assert string_prefix_length({}) == 32
    assert string_prefix_length({"delta.dataSkippingStringPrefixLength": "7"}) == 7


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.dataSkippingNumIndexedCols": "many"},
        {"delta.dataSkippingStatsColumns": "a,,b"},
        {"delta.dataSkippingStatsColumns": "a."},
        {"delta.dataSkippingStatsColumns": "`a"},
        {"delta.dataSkippingStatsColumns": "`a`b"},
    ],
)
def test_a_property_that_does_not_parse_is_refused(properties: dict[str, str | None]) -> None:
    with pytest.raises(InvalidProperty, match="dataSkipping"):
        stats_columns(NESTED, properties=properties)


@pytest.mark.parametrize(
    "bad", ["", "[]", "1", '{"numRecords":"x"}', '{"minValues":{"c":"x"}}', '{"nullCount":{"c":"x"}}', "{"]
)
def test_statistics_that_are_none_are_refused(bad: str) -> None:
    with pytest.raises(CorruptLog):
        parse_stats(bad, [StatsColumn(("c",), PrimitiveType("long"))])


def test_absent_statistics_are_absent() -> None:
    columns = [StatsColumn(("c", "d"), PrimitiveType("string")), StatsColumn(("e",), PrimitiveType("binary"))]
    stats = parse_stats(
        '{"minValues":{"c":null,"e":"x"},"maxValues":{"c":{"d":""}},"tightBounds":false}', columns
    )
    assert stats.num_records is None
    assert stats.min_values == stats.null_count == {}
    assert stats.max_values == {("c", "d"): ""}
    assert not stats.tight_bounds


@pytest.mark.parametrize("name", ["krs-stats-writing-all-types", "golden-table-with-columnmapping-mode-name"])
def test_our_statistics_of_a_file_that_spark_wrote_are_those_of_spark(corpus: Path, name: str) -> None:
    actions = [
        json.loads(line)
        for commit in sorted((corpus / name / "_delta_log").glob("*.json"))
        for line in commit.read_text().splitlines()
    ]
    schema = next(parse_schema(a["metaData"]["schemaString"]) for a in actions if "metaData" in a)
    columns = stats_columns(schema)
    adds = [action["add"] for action in actions if "add" in action]
    for add in adds:
        collector = StatsCollector(columns)
        with pq.ParquetFile(corpus / name / add["path"]) as file:
            for group in range(file.num_row_groups):
                collector.update(file.read_row_group(group))
        ours, sparks = (parse_stats(stats, columns) for stats in (collector.finish(), add["stats"]))
        assert ours.num_records == sparks.num_records
        assert ours.null_count == sparks.null_count
        assert ours.min_values == sparks.min_values
        assert ours.max_values.keys() == sparks.max_values.keys()
        for path, high in ours.max_values.items():
            # Spark cuts off what we round up.
            slack = timedelta(milliseconds=1) if isinstance(high, datetime) else None
            assert high == sparks.max_values[path] or (slack and high - slack <= sparks.max_values[path])
    assert adds


def test_statistics_of_some_columns_are_taken_from_collectors_of_the_same_rows() -> None:
    columns = [StatsColumn((name,), PrimitiveType("long")) for name in "abc"]
    rows = pa.table({"a": [1, None, 3], "b": [4, 5, 6], "c": [None, None, None]})
    whole, parts = StatsCollector(columns), StatsCollector(columns)
    whole.update(rows)
    for some in (columns[1:2], [columns[2], columns[0]]):
        part = StatsCollector(some)
        part.update(rows)
        parts.take(part)
    assert parts.finish() == whole.finish()


def test_a_copy_of_a_collector_has_what_it_gathered() -> None:
    collector = StatsCollector([StatsColumn(("c",), PrimitiveType("double"))])
    collector.update(pa.table({"c": [1.5, None]}))
    assert copy.deepcopy(collector).finish() == collector.finish()
