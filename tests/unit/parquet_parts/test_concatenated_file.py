"""Files behind each other as one: the rows of all, in their order, and no damage of one file in the rows of another."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples

from parquet_parts.concatenated_file import CannotGather, FileGatherer
from parquet_parts.footer import Encoded, FileEnd, Footer
from parquet_parts.page import has_values
from parquet_parts.thrift import LIST, STRUCT, CorruptThrift, Fields, encoded_integer

_SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "text": pa.string(),
        "x": pa.float64(),
        "flag": pa.bool_(),
        "point": pa.struct({"a": pa.int64(), "b": pa.string()}),
    }
)


def rows(first: int, count: int) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": list(numbers),
            "text": [None if n % 5 == 0 else f"text {n % 7}" for n in numbers],
            "x": [None if n % 3 == 0 else n / 4 for n in numbers],
            "flag": [n % 2 == 0 for n in numbers],
            "point": [None if n % 11 == 0 else {"a": n, "b": str(n)} for n in numbers],
        },
        _SCHEMA,
    )


def file_of(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def gathered(contents: list[bytes]) -> pq.ParquetFile:
    content = b"".join(contents)
    end = FileGatherer().end_of(memoryview(content), list(map(len, contents)), 1 << 20)
    metadata = pq.read_metadata(io.BytesIO(b"PAR1" + end.content))
    return pq.ParquetFile(pa.BufferReader(content), metadata=metadata)


def test_an_end_that_was_read_before_counts_only_while_the_file_has_it() -> None:
    contents = [file_of(rows(first, 4)) for first in (0, 10)]
    content, sizes = memoryview(b"".join(contents)), list(map(len, contents))
    fresh = FileGatherer().end_of(content, sizes, 1 << 20).content
    ends = [FileEnd.of(content) for content in contents]
    misled = FileEnd(ends[1].footer.of_row_groups(()), ends[1].content)
    other = FileEnd.of(file_of(rows(50, 9)))
    for known in (ends, [None, ends[1]], [other, None]):
        assert FileGatherer().end_of(content, sizes, 1 << 20, known).content == fresh
    assert FileGatherer().end_of(content, sizes, 1 << 20, [None, misled]).content != fresh


_OPTIONS = st.fixed_dictionaries(
    {
        "compression": st.sampled_from(["none", "snappy", "zstd"]),
        "use_dictionary": st.booleans(),
        "data_page_size": st.sampled_from([64, 1 << 20]),
        "write_batch_size": st.sampled_from([5, 1024]),
        "row_group_size": st.sampled_from([7, 1000]),
        "write_page_checksum": st.booleans(),
        "write_page_index": st.booleans(),
        "write_statistics": st.booleans(),
    }
)


@examples(200)
@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40), _OPTIONS), min_size=1, max_size=4))
def test_the_rows_of_all_files_come_in_their_order(files: list[tuple[int, int, dict[str, Any]]]) -> None:
    tables = [rows(first, count) for first, count, _ in files]
    contents = [file_of(table, **options) for table, (_, _, options) in zip(tables, files, strict=True)]

    found = gathered(contents)

    assert found.read().equals(pa.concat_tables(tables))
    starts = [found.metadata.row_group(n).num_rows for n in range(found.metadata.num_row_groups)]
    assert sum(starts) == found.metadata.num_rows == sum(count for _, count, _ in files)


def test_the_footer_names_no_index_and_no_statistics() -> None:
    found = gathered([file_of(rows(0, 9), write_page_index=True), file_of(rows(9, 9), write_page_index=True)])

    chunks = [found.metadata.row_group(n).column(leaf) for n in range(2) for leaf in range(6)]
    assert not any(chunk.has_offset_index or chunk.has_column_index or chunk.is_stats_set for chunk in chunks)


@pytest.mark.parametrize(
    "other",
    [
        file_of(rows(0, 5).rename_columns(["id", "text", "x", "flag", "p"])),
        file_of(rows(0, 5).select(["id", "text", "x", "flag"])),
        file_of(rows(0, 5).replace_schema_metadata({"org.apache.spark.legacyDateTime": ""})),
        file_of(rows(0, 5), version="1.0"),
    ],
    ids=["name", "columns", "notes", "version"],
)
def test_other_footers_are_not_gathered(other: bytes) -> None:
    with pytest.raises(CannotGather, match="another schema or other notes"):
        gathered([file_of(rows(0, 5)), other])


def test_pages_of_the_second_version_are_not_gathered() -> None:
    with pytest.raises(CannotGather, match="values"):
        gathered([file_of(rows(0, 5), data_page_version="2.0")])


@pytest.mark.parametrize(
    ("table", "options"),
    [
        (pa.table({"text": ["a" * 9000, "b" * 9000] * 100}), {}),
        (pa.table({"id": [1] * 150_000}), {}),
        (pa.table({"list": [[1] * 150_000]}), {}),
    ],
    ids=["wide texts", "many rows", "long lists"],
)
def test_files_whose_values_may_be_large_are_not_gathered(table: pa.Table, options: dict[str, Any]) -> None:
    content = file_of(table, **options)

    assert len(content) < 20_000
    with pytest.raises(CannotGather, match="more than 1048576 bytes"):
        gathered([content])


def test_no_files_make_no_footer() -> None:
    with pytest.raises(CannotGather, match="no files"):
        FileGatherer().end_of(memoryview(b""), [], 1)


def test_a_chunk_that_ends_in_the_next_file_is_not_read() -> None:
    content = bytearray(file_of(rows(0, 50), compression="none", use_dictionary=False))
    data_page = pq.read_metadata(io.BytesIO(content)).row_group(0).column(0).data_page_offset
    moved = encoded_integer(len(content) + data_page)
    footer = Footer.from_end(bytes(content))
    footer.row_groups[0].chunks[0].values[footer.row_groups[0].chunks[0].form.places[(3, 9)]] = moved
    broken = bytes(content[: -8 - int.from_bytes(content[-8:-4], "little")]) + footer.to_end()

    with pytest.raises(CannotGather, match="chunk ends at"):
        gathered([broken, file_of(rows(0, 50), compression="none", use_dictionary=False)])


def test_a_file_with_an_encrypted_column_is_not_gathered() -> None:
    content = file_of(rows(0, 50))
    footer = Footer.from_end(content)
    chunks = list(footer.row_groups[0].chunks)
    encrypted = Fields.from_bytes(chunks[1].to_bytes(), {})
    encrypted[8] = (STRUCT, Fields())
    footer.row_groups[0].fields[1] = (LIST, [chunks[0], Encoded(encrypted.to_bytes()), *chunks[2:]])
    odd = content[: -8 - int.from_bytes(content[-8:-4], "little")] + footer.to_end()

    with pytest.raises(CannotGather, match="encrypted"):
        gathered([odd, content])


def headers_of(content: bytes) -> list[int]:
    """Return the places of all bytes that are near the beginning of a page."""
    metadata = pq.read_metadata(io.BytesIO(content))
    starts = []
    for leaf in range(metadata.num_columns):
        chunk = metadata.row_group(0).column(leaf)
        starts += [chunk.dictionary_page_offset or chunk.data_page_offset, chunk.data_page_offset]
    return sorted({start + more for start in starts for more in range(24)})


_FIRST, _SECOND = rows(0, 40), rows(100, 40)
_BROKEN = {
    encoding: file_of(_FIRST, use_dictionary=encoding == "dictionary", compression="none")
    for encoding in ("plain", "dictionary")
}


@examples(1500)
@given(st.sampled_from(sorted(_BROKEN)), st.data())
def test_a_broken_page_header_reaches_no_row_of_another_file(encoding: str, data: st.DataObject) -> None:
    content = bytearray(_BROKEN[encoding])
    place = data.draw(st.sampled_from(headers_of(bytes(content))))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    other = file_of(_SECOND, use_dictionary=encoding == "dictionary", compression="none")
    try:
        found = gathered([bytes(content), other]).read()
    except (CannotGather, CorruptThrift, pa.ArrowException, OSError):
        return

    assert found.num_rows == 80
    assert found.slice(40).equals(_SECOND)


def test_the_values_of_pages_are_counted() -> None:
    options = {"data_page_size": 8, "write_batch_size": 5, "use_dictionary": ["id"]}
    content = file_of(rows(0, 40), **options)
    chunks = Footer.from_end(content).row_groups[0].chunks
    for chunk in chunks:
        start, size = chunk.place
        assert has_values(memoryview(content), start, start + size, 40)
        for count in (39, 41):
            assert not has_values(memoryview(content), start, start + size, count)
    start, size = chunks[2].place
    assert not has_values(memoryview(content), start, start + size // 2, 40)
