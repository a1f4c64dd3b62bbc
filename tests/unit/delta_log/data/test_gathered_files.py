"""Small files that are read together have the rows that each of them has alone, or have to be read alone."""

from __future__ import annotations

import io
import json
from collections.abc import Iterable, Sequence
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples

from delta_log.data.data_file import ColumnMemory, DataFile
from delta_log.data.gathered_files import GatheredFiles
from delta_log.table_config.schema import StructField, StructType, arrow_schema, parse_schema
from delta_log.testing import MemoryStorage
from parquet_parts.footer import Footer, footer_start

_TYPES: dict[str, Any] = {
    "id": "long",
    "text": "string",
    "x": "double",
    "list": {"type": "array", "elementType": "long", "containsNull": True},
    "deep": {
        "type": "array",
        "elementType": {"type": "array", "elementType": "string", "containsNull": True},
        "containsNull": True,
    },
    "pairs": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
    "point": {
        "type": "struct",
        "fields": [
            {"name": "a", "type": "long", "nullable": True, "metadata": {}},
            {"name": "list", "type": {"type": "array", "elementType": "long", "containsNull": True}}
            | {"nullable": True, "metadata": {}},
        ],
    },
}


def columns(*names: str, **types: Any) -> tuple[StructField, ...]:
    found = {name: _TYPES[name] for name in names or _TYPES} | types
    text = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in found.items()]
    return parse_schema(json.dumps({"type": "struct", "fields": text})).fields


_COLUMNS = columns()
_SCHEMA = arrow_schema(StructType(_COLUMNS))
_LONGS = st.none() | st.integers(-(1 << 63), (1 << 63) - 1)
_TEXTS = st.none() | st.text("ab", max_size=3)
_LISTS = st.none() | st.lists(_LONGS, max_size=3)
_ROWS = st.fixed_dictionaries(
    {
        "id": _LONGS,
        "text": _TEXTS,
        "x": st.none() | st.floats(allow_nan=False),
        "list": _LISTS,
        "deep": st.none() | st.lists(st.none() | st.lists(_TEXTS, max_size=2), max_size=2),
        "pairs": st.none()
        | st.dictionaries(st.text("ab", max_size=2), _LONGS, max_size=2).map(
            lambda pairs: list(pairs.items())
        ),
        "point": st.none() | st.fixed_dictionaries({"a": _LONGS, "list": _LISTS}),
    }
)


def file_of(rows: pa.Table, notes: dict[str, str] | None = None, **options: Any) -> bytes:
    sink = io.BytesIO()
    row_group_size = options.pop("row_group_size", None)
    with pq.ParquetWriter(sink, rows.schema, store_schema=False, **options) as writer:
        writer.write_table(rows, row_group_size=row_group_size)
        writer.add_key_value_metadata(notes or {})
    return sink.getvalue()


def stored(contents: Sequence[bytes]) -> tuple[MemoryStorage, list[tuple[DataFile, int]]]:
    storage = MemoryStorage()
    for number, content in enumerate(contents):
        storage.put(f"{number}.parquet", content)
    return storage, [(DataFile(storage, f"{n}.parquet"), len(content)) for n, content in enumerate(contents)]


def gathered(
    contents: Sequence[bytes],
    wanted: Sequence[StructField] = _COLUMNS,
    dictionaries: Sequence[str] = (),
    mode: str = "none",
) -> pa.Table | None:
    storage, files = stored(contents)
    return GatheredFiles(storage, mode).read(files, wanted, ColumnMemory(), dictionaries, 1 << 20)


def table_of(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.Table.from_pylist(rows, _SCHEMA)


@examples(200)
@given(
    st.lists(st.lists(_ROWS, max_size=9), min_size=2, max_size=4),
    st.sampled_from([1, 3, 100]),
    st.booleans(),
    st.booleans(),
)
def test_the_rows_are_those_of_each_file_in_turn(
    files: list[list[dict[str, Any]]], row_group: int, has_dictionaries: bool, closes: bool
) -> None:
    tables = [table_of(rows) for rows in files]
    storage, opened = stored(
        [file_of(rows, row_group_size=row_group, use_dictionary=has_dictionaries) for rows in tables]
    )
    for data_file, _ in opened if closes else ():
        data_file.close()

    found = GatheredFiles(storage, "none").read(opened, _COLUMNS, ColumnMemory(), ["text"], 1 << 20)

    if not any(files):
        assert found is None or found.num_rows == 0
        return
    assert found is not None
    assert pa.types.is_dictionary(found.schema.field("text").type)
    assert found.cast(_SCHEMA).equals(pa.concat_tables(tables))


@pytest.mark.parametrize("is_nullable", [True, False])
@pytest.mark.parametrize("has_dictionaries", [True, False])
def test_rows_stay_what_they_are_while_others_are_read(is_nullable: bool, has_dictionaries: bool) -> None:
    # The memory of the files' bytes is used again, and Arrow could return arrays that are slices of it.
    kinds: dict[str, tuple[Any, pa.DataType]] = {
        "long": ("long", pa.int64()),
        "double": ("double", pa.float64()),
        "float": ("float", pa.float32()),
        "flag": ("boolean", pa.bool_()),
        "text": ("string", pa.string()),
        "bytes": ("binary", pa.binary()),
        "day": ("date", pa.date32()),
        "large": ("decimal(30,2)", pa.decimal128(30, 2)),
        "list": (_TYPES["list"], pa.list_(pa.int64())),
    }
    schema = pa.schema([pa.field(name, kind, is_nullable) for name, (_, kind) in kinds.items()])

    def table(first: int) -> pa.Table:
        numbers = range(first, first + 500)
        days = pa.array(numbers, pa.int32()).cast(pa.date32())
        return pa.table(
            {
                "long": list(numbers),
                "double": [n / 2 for n in numbers],
                "float": [n / 4 for n in numbers],
                "flag": [n % 3 == 0 for n in numbers],
                "text": [str(n) for n in numbers],
                "bytes": [str(n).encode() for n in numbers],
                "day": days,
                "large": [Decimal(n) for n in numbers],
                "list": [[n, n + 1] for n in numbers],
            },
            schema,
        )

    options: dict[str, Any] = {"compression": "none", "use_dictionary": has_dictionaries}
    storage, files = stored([file_of(table(first), **options) for first in (0, 500, 10_000, 10_500)])
    wanted = columns("id", **{name: kind for name, (kind, _) in kinds.items()})[1:]
    together, memory = GatheredFiles(storage, "none"), ColumnMemory()
    first = together.read(files[:2], wanted, memory, (), 1 << 20)
    second = together.read(files[2:], wanted, memory, (), 1 << 20)

    assert first is not None
    assert second is not None
    assert first.to_pylist() == [*table(0).to_pylist(), *table(500).to_pylist()]
    assert second.column("long").to_pylist() == list(range(10_000, 11_000))


def test_the_asked_columns_are_read_in_the_asked_order() -> None:
    rows = table_of([{"id": 1, "list": [1, 2], "text": "a"}, {"id": 2, "list": None, "text": None}])

    found = gathered([file_of(rows), file_of(rows)], columns("list", "text", "id"))

    assert found is not None
    assert found.to_pylist() == pa.concat_tables([rows, rows]).select(["list", "text", "id"]).to_pylist()


_SMALL = table_of([{"id": 1, "text": "a"}])


@pytest.mark.parametrize(
    ("wanted", "content"),
    [
        (columns("id", more="long"), file_of(_SMALL)),
        (columns("text", id="double"), file_of(_SMALL)),
        ((), file_of(_SMALL)),
        (
            columns("id", moment="timestamp_ntz"),
            file_of(
                pa.table({"id": [1], "moment": pa.array([0], pa.timestamp("us"))}),
                use_deprecated_int96_timestamps=True,
            ),
        ),
        (
            columns("id", day="date"),
            file_of(
                pa.table({"id": [1], "day": pa.array([0], pa.date32())}),
                {"org.apache.spark.version": "3.5.0", "org.apache.spark.legacyDateTime": ""},
            ),
        ),
    ],
    ids=["a column that is missing", "another type", "no columns", "INT96", "an old calendar"],
)
def test_what_needs_more_than_decoding_is_read_alone(wanted: Sequence[StructField], content: bytes) -> None:
    assert gathered([content, content], wanted) is None


def test_after_three_refusals_no_other_files_are_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    storage, files = stored([file_of(_SMALL), file_of(_SMALL)])
    read, other = GatheredFiles(storage, "none").read, columns("id", more="long")

    def together(wanted: Sequence[StructField]) -> bool:
        return read(files, wanted, ColumnMemory(), (), 1 << 20) is not None

    assert not together(other)
    assert not together(other)
    assert together(_COLUMNS)
    assert not together(other)
    assert not together(other)
    assert not together(other)
    monkeypatch.setattr(DataFile, "copy_to", None)
    assert not together(_COLUMNS)


def test_a_file_of_another_length_is_read_alone() -> None:
    storage, files = stored([file_of(_SMALL), file_of(_SMALL)])
    read = GatheredFiles(storage, "none").read

    assert read(files, _COLUMNS, ColumnMemory(), (), 1 << 20) is not None
    for more in (-1, 1):
        others = [(data_file, size + more) for data_file, size in files]
        assert read(others, _COLUMNS, ColumnMemory(), (), 1 << 20) is None


def test_a_file_that_is_gone_is_read_alone() -> None:
    storage, files = stored([file_of(_SMALL), file_of(_SMALL)])
    files[1][0].close()
    storage.delete(["1.parquet"])

    assert GatheredFiles(storage, "none").read(files, _COLUMNS, ColumnMemory(), (), 1 << 20) is None


_FIRST, _SECOND = (
    table_of(
        [
            {
                "id": n,
                "text": "ab"[n % 2],
                "list": [n] * (n % 4),
                "pairs": [(str(m), m) for m in range(n % 3)],
            }
            for n in range(start, start + 20)
        ]
    ).select(["id", "text", "list", "pairs"])
    for start in (0, 101)
)
# Without statistics, headers are short, and the levels stand among the first bytes of a page.
_OPTIONS: dict[str, Any] = {"compression": "none", "use_dictionary": ["text"], "write_statistics": False}
_BROKEN, _WHOLE = file_of(_FIRST, **_OPTIONS), file_of(_SECOND, **_OPTIONS)
#: Numbers of leaves: all, those in a list or a map.
_LEAVES, _REPEATED = range(5), (2, 3, 4)


def _first_bytes_of_pages(leaves: Iterable[int]) -> list[int]:
    """Return the places of the first bytes of each page: its header and its levels."""
    metadata = pq.read_metadata(io.BytesIO(_BROKEN))
    chunks = [metadata.row_group(0).column(leaf) for leaf in leaves]
    starts = [chunk.dictionary_page_offset or chunk.data_page_offset for chunk in chunks]
    starts += [chunk.data_page_offset for chunk in chunks]
    return sorted({start + more for start in starts for more in range(56)})


def _check_whole_file(place: int, bit: int) -> None:
    """Read a whole file behind one with a flipped bit."""
    content = bytearray(_BROKEN)
    content[place] ^= 1 << bit
    found = gathered([bytes(content), _WHOLE], columns(*_SECOND.column_names), ["text"])
    if found is not None:
        assert found.num_rows == 40
        assert found.slice(20).to_pylist() == _SECOND.to_pylist()


@examples(1500)
@given(st.sampled_from(_first_bytes_of_pages(_LEAVES)), st.integers(0, 7))
def test_a_broken_page_reaches_no_row_of_another_file(place: int, bit: int) -> None:
    _check_whole_file(place, bit)


@pytest.mark.parametrize("leaf", _REPEATED)
def test_broken_levels_of_lists_and_maps_reach_no_row_of_another_file(leaf: int) -> None:
    for place in _first_bytes_of_pages([leaf]):
        for bit in range(8):
            _check_whole_file(place, bit)


def test_files_whose_footers_say_other_numbers_of_rows_are_read_alone() -> None:
    def claiming(rows: int) -> bytes:
        content = file_of(_FIRST, **_OPTIONS)
        footer = Footer.from_end(content)
        footer.fields.put_number(3, rows)
        return content[: footer_start(content)] + footer.to_end()

    wanted = columns("id", "text")
    assert gathered([claiming(20), claiming(20)], wanted) is not None
    assert gathered([claiming(21), claiming(19)], wanted) is None
