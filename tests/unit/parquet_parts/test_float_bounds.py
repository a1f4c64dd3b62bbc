"""Whether a NaN is found in the pages of floats, whatever the pages look like."""

from __future__ import annotations

import io
import math
from typing import Any

import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples

from parquet_parts import float_bounds
from parquet_parts.chunk_template import COMPRESSED_BYTES, DATA_PAGE, DICTIONARY_PAGE, NUM_VALUES
from parquet_parts.float_bounds import lacks_nan
from parquet_parts.footer import Footer
from parquet_parts.schema_elements import leaves_of

CODECS = ["none", "snappy", "zstd"]
NAN = math.nan


class Bytes:
    """A file in memory that counts what is read of it."""

    def __init__(self, content: bytes) -> None:
        self.content, self.most_bytes = content, 0

    def read(self, start: int, length: int) -> bytes:
        self.most_bytes = max(self.most_bytes, length)
        return self.content[start : start + length]


def answers(content: bytes) -> list[list[bool]]:
    """What is said of each leaf of each row group."""
    footer, file = Footer.from_end(content), Bytes(content)
    leaves = leaves_of(footer.schema)
    return [
        [lacks_nan(file, chunk, leaf) for chunk, leaf in zip(group.chunks, leaves, strict=True)]
        for group in footer.row_groups
    ]


def written(rows: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **{"store_schema": False, "compression": "snappy"} | options)
    return sink.getvalue()


floats = st.one_of(st.none(), st.floats(width=32), st.sampled_from([0.0, -0.0, math.inf, -math.inf, 1.5]))


@examples(150)
@given(
    values=st.lists(floats, min_size=1, max_size=60),
    kind=st.sampled_from([pa.float32(), pa.float64()]),
    codec=st.sampled_from(CODECS),
    dictionary=st.booleans(),
    checksum=st.booleans(),
    nullable=st.booleans(),
    page_bytes=st.integers(1, 400),
    piece_bytes=st.integers(1, 600),
)
def test_a_nan_is_found_exactly_where_one_is(
    values: list[float | None],
    kind: pa.DataType,
    codec: str,
    dictionary: bool,
    checksum: bool,
    nullable: bool,
    page_bytes: int,
    piece_bytes: int,
) -> None:
    if not nullable:
        values = [value or 0.0 for value in values]
    column = pa.array(values, kind)
    inner = pa.StructArray.from_arrays([column], ["in"])
    schema = pa.schema([pa.field("x", kind, nullable), pa.field("s", inner.type)])
    content = written(
        pa.table([column, inner], schema=schema),
        compression=codec,
        use_dictionary=dictionary,
        dictionary_pagesize_limit=40,
        data_page_size=page_bytes,
        write_batch_size=8,
        write_page_checksum=checksum,
    )
    expected = not any(value is not None and math.isnan(value) for value in values)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(float_bounds, "_PIECE_BYTES", piece_bytes)
        assert answers(content) == [[expected, expected]]


@pytest.mark.parametrize("value", [NAN, 1.0])
def test_pages_of_other_kinds_are_not_read(value: float) -> None:
    rows = pa.table({"x": [0.5, value] * 50})
    assert answers(written(rows, data_page_version="2.0")) == [[False]]
    assert answers(written(rows, use_dictionary=False, column_encoding="BYTE_STREAM_SPLIT")) == [[False]]
    assert answers(written(rows, compression="gzip")) == [[False]]


@pytest.mark.parametrize("value", [NAN, 1.0])
def test_pages_of_another_writer(value: float) -> None:
    sink = io.BytesIO()
    numbers = [float(n) for n in range(5_000)] + [value, None]
    pl.DataFrame({"x": numbers}).write_parquet(sink, compression="snappy", data_page_size=1_000)
    assert {answer for (answer,) in answers(sink.getvalue())} == {not math.isnan(value)}


@pytest.mark.parametrize("value", [NAN, 1.0])
def test_a_page_may_have_very_many_runs_of_nulls(value: float) -> None:
    numbers = [None if n // 8 % 2 else n / 7 for n in range(160_000)] + [value]
    content = written(
        pa.table({"x": numbers}),
        use_dictionary=False,
        data_page_size=1 << 30,
        write_batch_size=1 << 20,
        max_rows_per_page=1 << 30,
    )
    assert answers(content) == [[not math.isnan(value)]]


def test_a_long_chunk_is_read_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    content = written(
        pa.table({"x": [n / 7 for n in range(50_000)]}), use_dictionary=False, data_page_size=4_000
    )
    monkeypatch.setattr(float_bounds, "_PIECE_BYTES", 20_000)
    footer, file = Footer.from_end(content), Bytes(content)
    assert lacks_nan(file, footer.row_groups[0].chunks[0], leaves_of(footer.schema)[0])
    assert file.most_bytes == 20_000


@examples(200)
@given(data=st.data(), codec=st.sampled_from(CODECS), dictionary=st.booleans())
def test_broken_pages_are_no_error(data: st.DataObject, codec: str, dictionary: bool) -> None:
    rows = pa.table({"x": [NAN, *(n % 5 + 0.5 for n in range(200))]})
    content = bytearray(written(rows, compression=codec, use_dictionary=dictionary, data_page_size=300))
    start, size = Footer.from_end(bytes(content)).row_groups[0].chunks[0].place
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(start, start + size - 1))] ^= 1 << data.draw(st.integers(0, 7))
    answers(bytes(content))


def test_a_file_that_was_cut_has_no_answer() -> None:
    content = written(pa.table({"x": [n / 7 for n in range(500)]}))
    footer = Footer.from_end(content)
    (chunk,), leaves = footer.row_groups[0].chunks, leaves_of(footer.schema)
    start, size = chunk.place
    assert lacks_nan(Bytes(content), chunk, leaves[0])
    for end in range(start, start + size, 7):
        assert not lacks_nan(Bytes(content[:end]), chunk, leaves[0])


def test_a_page_that_is_longer_than_a_piece_is_read_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = pa.table({"x": [n / 7 for n in range(50_000)]})
    content = written(
        rows, compression="none", use_dictionary=False, data_page_size=80_000, write_batch_size=64
    )
    monkeypatch.setattr(float_bounds, "_PIECE_BYTES", 20_000)
    footer, file = Footer.from_end(content), Bytes(content)
    assert lacks_nan(file, footer.row_groups[0].chunks[0], leaves_of(footer.schema)[0])
    assert 80_000 <= file.most_bytes < 90_000


@pytest.mark.parametrize("difference", [-1, 1])
def test_pages_with_another_number_of_values_have_no_answer(difference: int) -> None:
    content = written(pa.table({"x": [n / 7 for n in range(500)]}))
    footer = Footer.from_end(content)
    (chunk,), leaves = footer.row_groups[0].chunks, leaves_of(footer.schema)
    chunk.put_number(NUM_VALUES, 500 + difference)
    assert not lacks_nan(Bytes(content), chunk, leaves[0])


def test_indexes_without_a_dictionary_have_no_answer() -> None:
    content = written(pa.table({"x": [n / 7 for n in range(500)]}))
    footer = Footer.from_end(content)
    (chunk,), leaves = footer.row_groups[0].chunks, leaves_of(footer.schema)
    dictionary, data = chunk.required_number(DICTIONARY_PAGE), chunk.required_number(DATA_PAGE)
    chunk.put_number(COMPRESSED_BYTES, chunk.required_number(COMPRESSED_BYTES) - (data - dictionary))
    chunk.put_number(DICTIONARY_PAGE, data)
    assert not lacks_nan(Bytes(content), chunk, leaves[0])
