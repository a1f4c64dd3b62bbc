"""Chunks of several files as one: the rows of all, in their order, and what the footer and the page index say of them."""

from __future__ import annotations

import io
from collections.abc import Sequence
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import ColumnProperties, WriterProperties, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.checks.parquet_claims import claims
from tests.support.repetition import examples

from delta_log.parquet.assembled_group import AssembledGroup
from delta_log.parquet.footer import ColumnChunk, Footer
from delta_log.parquet.joined_chunk import JoinedChunk
from delta_log.parquet.part_file import PartFile
from delta_log.parquet.schema_elements import leaves_of
from delta_log.parquet.thrift_compact import CorruptThrift

_WHOLE = st.integers(-(1 << 31), (1 << 31) - 1)
#: The values of each type of a column.
VALUES: dict[str, tuple[pa.DataType, st.SearchStrategy[Any]]] = {
    "int": (pa.int32(), _WHOLE),
    "long": (pa.int64(), st.integers(-(1 << 63), (1 << 63) - 1)),
    "short": (pa.int16(), st.integers(-(1 << 15), (1 << 15) - 1)),
    "float": (pa.float32(), st.floats(width=32, allow_nan=False)),
    "double": (pa.float64(), st.floats(allow_nan=False)),
    "boolean": (pa.bool_(), st.booleans()),
    "string": (pa.string(), st.text(max_size=4)),
    "binary": (pa.binary(), st.binary(max_size=4)),
    "day": (pa.date32(), st.dates()),
    "moment": (
        pa.timestamp("us", "UTC"),
        st.datetimes(datetime(1, 1, 2), datetime(9999, 12, 30), timezones=st.just(timezone.utc)),
    ),
    "small": (pa.decimal128(9, 2), _WHOLE.map(lambda n: Decimal(n % 10**9) / 100 - 5_000_000)),
    "large": (pa.decimal128(30, 4), st.integers(-(10**29), 10**29).map(lambda n: Decimal(n).scaleb(-4))),
}


def file_of(rows: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    options = {"use_dictionary": False, "store_schema": False, "store_decimal_as_integer": True} | options
    pq.write_table(rows, sink, **options)
    return sink.getvalue()


def joined(contents: Sequence[bytes]) -> bytes:
    """Return one file of the rows of all."""
    footers = [Footer.from_end(content) for content in contents]
    content_of_all = PartFile()
    file = AssembledGroup(content_of_all, footers[0])
    rows = 0
    for number, leaf in enumerate(leaves_of(footers[0].schema)):
        chunk = JoinedChunk(leaf)
        for content, footer in zip(contents, footers, strict=True):
            for group in footer.row_groups:
                group.chunks[number].widen_zeros()
                chunk.add(memoryview(content), group.chunks[number])
        file.join(chunk)
        rows = chunk.num_values
    file.finish(rows)
    return content_of_all.read(0, content_of_all.tell())


@st.composite
def files(draw: st.DrawFn) -> tuple[list[bytes], pa.Table]:
    """Some files of one schema, and their rows. With dictionaries, all values of a column and a file differ."""
    names = draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, max_size=4, unique=True))
    has_dictionaries = draw(st.booleans())
    codec = draw(st.sampled_from(["none", "snappy"] if has_dictionaries else ["none", "snappy", "zstd"]))
    contents, tables = [], []
    for _ in range(draw(st.integers(1, 4))):
        count = draw(st.integers(1, 40))
        columns = {}
        for name in names:
            kind, values = VALUES[name]
            if has_dictionaries and name != "boolean":
                found = draw(st.lists(values, min_size=count, max_size=count, unique=True))
                # Each row group begins with a value.
                found = [None if n % 2 and draw(st.booleans()) else value for n, value in enumerate(found)]
            else:
                nullable = draw(st.sampled_from([values, st.none() | values, st.none()]))
                found = draw(st.lists(nullable, min_size=count, max_size=count))
            columns[name] = pa.array(found, kind)
        tables.append(pa.table(columns))
        contents.append(
            file_of(
                tables[-1],
                compression=codec,
                use_dictionary=has_dictionaries,
                write_page_index=draw(st.booleans()),
                write_page_checksum=draw(st.booleans()),
                row_group_size=draw(st.sampled_from([8, 1000])),
                data_page_size=draw(st.sampled_from([16, 1 << 20])),
                write_batch_size=draw(st.sampled_from([3, 1024])),
            )
        )
    return contents, pa.concat_tables(tables)


@examples(60)
@given(given_files=files())
def test_every_reader_finds_all_rows_in_their_order(given_files: tuple[list[bytes], pa.Table]) -> None:
    contents, rows = given_files
    content = joined(contents)
    found = pq.read_table(io.BytesIO(content))
    assert found.equals(rows)
    assert pq.ParquetFile(io.BytesIO(content)).metadata.num_row_groups == 1
    with TemporaryDirectory() as directory:
        path = Path(directory) / "joined.parquet"
        path.write_bytes(content)
        connection = duckdb.connect()
        connection.execute("SET TimeZone = 'UTC'")
        by_duckdb = connection.sql(f"SELECT * FROM '{path}'").to_arrow_table()
        assert by_duckdb.cast(rows.schema, safe=False).equals(rows)
        assert pl.read_parquet(path).equals(pl.DataFrame(pl.from_arrow(rows)))


def _ordered(values: pa.ChunkedArray) -> list[Any]:
    return [value for value in values.to_pylist() if value is not None]


@examples(60)
@given(given_files=files())
def test_bounds_and_counts_hold_for_the_values(given_files: tuple[list[bytes], pa.Table]) -> None:
    contents, rows = given_files
    content = joined(contents)
    metadata = pq.ParquetFile(io.BytesIO(content)).metadata
    assert metadata.num_rows == rows.num_rows
    assert sum(
        metadata.row_group(0).column(n).total_compressed_size for n in range(metadata.num_columns)
    ) < len(content)
    for number, name in enumerate(rows.column_names):
        chunk, values = metadata.row_group(0).column(number), rows[name]
        statistics = chunk.statistics
        assert statistics.null_count == values.null_count
        present = _ordered(values)
        assert statistics.has_min_max == bool(present)
        (claim,) = claims(content, name)
        assert claim.pages is not None
        assert claim.first_rows[0] == 0
        if not present:
            assert set(claim.pages) == {None}
        else:
            expected = pc.min_max(values)
            assert [statistics.min, statistics.max] == [expected["min"].as_py(), expected["max"].as_py()]


@examples(60)
@given(given_files=files())
def test_the_page_index_finds_each_value(given_files: tuple[list[bytes], pa.Table]) -> None:
    contents, rows = given_files
    content = joined(contents)
    for name in {"int", "long", "string", "binary"} & set(rows.column_names):
        (claim,) = claims(content, name)
        assert claim.pages is not None
        stops = (*claim.first_rows[1:], rows.num_rows)
        for bounds, start, stop in zip(claim.pages, claim.first_rows, stops, strict=True):
            for value in _ordered(rows[name][start:stop]):
                raw = _encoded(value, name)
                assert bounds is not None
                assert _key(bounds[0], name) <= _key(raw, name) <= _key(bounds[1], name)


def _encoded(value: Any, name: str) -> bytes:
    if name in ("int", "long"):
        encoded: bytes = int(value).to_bytes(4 if name == "int" else 8, "little", signed=True)
        return encoded
    return value.encode() if isinstance(value, str) else bytes(value)


def _key(raw: bytes, name: str) -> Any:
    return int.from_bytes(raw, "little", signed=True) if name in ("int", "long") else raw


def test_a_chunk_whose_dictionary_holds_fewer_values_is_refused() -> None:
    with pytest.raises(CorruptThrift, match="2 of 3 values are in the dictionary"):
        joined([file_of(pa.table({"n": [1, 2, 1]}), use_dictionary=True)])


def test_numbers_of_later_chunks_may_repeat_here_and_there() -> None:
    def column(first: int, repeats: bool) -> list[int | None]:
        numbers: list[int | None] = list(range(first, first + 40))
        return [*numbers, None, first if repeats else None]

    columns = [column(100 * n, n in (1, 2, 3)) for n in range(5)]
    contents = [
        file_of(pa.table({"n": found}), use_dictionary=True, compression="snappy") for found in columns
    ]
    content = joined(contents)
    assert pq.read_table(io.BytesIO(content))["n"].to_pylist() == [n for found in columns for n in found]
    with pytest.raises(CorruptThrift, match="40 of 41 values"):
        joined([contents[1], contents[0]])
    with pytest.raises(CorruptThrift, match="40 of 41 values"):
        joined([contents[0], *contents[1:4] * 2])
    texts = [pa.table({"n": pa.array(map(str, found[:-2] + found[-1:]))}) for found in columns[:2]]
    with pytest.raises(CorruptThrift, match="40 of 41 values"):
        joined([file_of(found, use_dictionary=True) for found in texts])


@pytest.mark.parametrize("has_dictionary", [True, False])
def test_a_nan_that_bounds_may_not_tell_is_refused(has_dictionary: bool) -> None:
    def chunk_of(values: list[float]) -> tuple[memoryview, JoinedChunk, ColumnChunk]:
        content = file_of(pa.table({"x": values}), use_dictionary=has_dictionary)
        footer = Footer.from_end(content)
        return memoryview(content), JoinedChunk(leaves_of(footer.schema)[0]), footer.row_groups[0].chunks[0]

    content, whole, chunk = chunk_of([1.0, float("nan"), 2.0])
    with pytest.raises(CorruptThrift, match="NaN"):
        whole.add(content, chunk, trusts_floats=False)
    content, whole, chunk = chunk_of([1.0, 2.0])
    whole.add(content, chunk, trusts_floats=False)
    assert whole.num_values == 2


def test_chunks_of_two_codecs_are_refused() -> None:
    rows = pa.table({"n": [1, 2, 3]})
    with pytest.raises(CorruptThrift, match="another codec"):
        joined([file_of(rows, compression="snappy"), file_of(rows, compression="zstd")])


def test_a_chunk_without_statistics_is_refused() -> None:
    with pytest.raises(CorruptThrift, match="count of nulls"):
        joined([file_of(pa.table({"n": [1, 2, 3]}), write_statistics=False)])


def test_a_zero_is_a_bound_of_both_signs() -> None:
    content = joined([file_of(pa.table({"x": [0.0, 1.0]})), file_of(pa.table({"x": pa.array([-1.0, -0.0])}))])
    (claim,) = claims(content, "x")
    assert claim.pages is not None
    (low, _), (_, high) = (page for page in claim.pages if page is not None)
    assert (low, high) == (bytes(7) + b"\x80", bytes(8))


def by_delta_rs(path: Path, text: str) -> bytes:
    columns = ColumnProperties(dictionary_enabled=False, statistics_enabled="PAGE")
    properties = WriterProperties(statistics_truncate_length=8, default_column_properties=columns)
    write_deltalake(str(path), pa.table({"text": [text]}), writer_properties=properties)
    return next(path.glob("*.parquet")).read_bytes()


def test_bounds_that_are_cut_do_not_count_as_values(tmp_path: Path) -> None:
    short, long = (by_delta_rs(tmp_path / text[0], text) for text in ("short", "long" * 9))
    exactness = {
        name: Footer.from_end(joined(contents)).row_groups[0].chunks[0].form.are_bounds_exact
        for name, contents in {"short": [short, short], "mixed": [short, long]}.items()
    }
    assert exactness == {"short": (True, True), "mixed": (False, False)}
    assert claims(joined([short, long]), "text")[0].bounds == (b"longlong", b"short")


def test_where_one_file_does_not_say_whether_bounds_are_cut_the_new_one_does_not() -> None:
    content = file_of(pa.table({"text": ["a"]}))
    footer = Footer.from_end(content)
    (chunk,) = footer.row_groups[0].chunks
    unsaid = ColumnChunk(replace(chunk.form, are_bounds_exact=(None, True)), chunk.values)
    whole = JoinedChunk(leaves_of(footer.schema)[0])
    for source in (chunk, unsaid):
        whole.add(memoryview(content), source)
    assert whole.describe(4)[0].form.are_bounds_exact == (None, True)


def test_dates_of_a_joined_file_are_those_of_the_sources() -> None:
    days = [date(1, 1, 1), date(9999, 12, 31)]
    content = joined([file_of(pa.table({"day": [day]})) for day in days])
    statistics = pq.ParquetFile(io.BytesIO(content)).metadata.row_group(0).column(0).statistics
    assert [statistics.min, statistics.max] == days
