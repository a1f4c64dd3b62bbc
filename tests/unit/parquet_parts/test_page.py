"""The headers of pages that Arrow writes, and broken ones."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.checks.thrift_struct import ThriftStruct, Typed
from tests.support.repetition import examples

from parquet_parts.footer import Footer
from parquet_parts.page import (
    SNAPPY,
    UNCOMPRESSED,
    ZSTD,
    Dictionary,
    Page,
    decompressed,
    dictionary_of_header,
    page_at,
)
from parquet_parts.thrift import BOOLEAN, I32, STRUCT, CorruptThrift

_ROWS = pa.table({"n": pa.array([None if n % 7 == 0 else n * 7919 for n in range(3_000)], pa.int64())})
_PLAIN, _DICTIONARY = 0, 8
CODECS = {"none": UNCOMPRESSED, "snappy": SNAPPY, "zstd": ZSTD}


def written(**options: Any) -> tuple[bytes, int, int]:
    """Return a file of one column, and where the pages of its only chunk begin and end."""
    sink = io.BytesIO()
    pq.write_table(_ROWS, sink, data_page_size=512, write_batch_size=64, store_schema=False, **options)
    content = sink.getvalue()
    start, size = Footer.from_end(content).row_groups[0].chunks[0].place
    return content, start, start + size


def pages_of(file: memoryview, start: int, stop: int) -> Iterator[Page]:
    while start < stop:
        page = page_at(file, start)
        yield page
        start = page.stop


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
def test_pages_are_those_of_the_offset_index(statistics: bool, checksum: bool, codec: str) -> None:
    content, start, stop = written(
        use_dictionary=False,
        # Arrow puts statistics into the headers if it writes no page index.
        write_page_index=not statistics,
        write_page_checksum=checksum,
        compression=codec,
    )
    pages = list(pages_of(memoryview(content), start, stop))
    assert len(pages) > 10
    assert sum(page.num_values for page in pages) == 3_000
    assert sum(page.stop - page.start for page in pages) == stop - start
    assert {page.encoding for page in pages} == {_PLAIN}
    assert all(len(decompressed(page, CODECS[codec])) == page.uncompressed_bytes for page in pages)


@pytest.mark.parametrize("codec", ["snappy", "zstd"])
def test_a_page_that_cannot_be_decompressed_is_refused(codec: str) -> None:
    content, start, stop = written(use_dictionary=False, compression=codec)
    page = next(pages_of(memoryview(content), start, stop))
    broken = bytearray(content)
    broken[page.stop - len(page.content) + 4 : page.stop] = b"\xff" * (len(page.content) - 4)
    with pytest.raises(CorruptThrift, match="cannot be decompressed"):
        decompressed(next(pages_of(memoryview(broken), start, stop)), CODECS[codec])


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("more", [-1, 1])
def test_a_wrong_length_is_found(codec: str, more: int) -> None:
    content, start, stop = written(use_dictionary=False, compression=codec)
    page = next(pages_of(memoryview(content), start, stop))
    wrong = replace(page, uncompressed_bytes=page.uncompressed_bytes + more)
    with pytest.raises(CorruptThrift, match="another length|cannot be decompressed"):
        decompressed(wrong, CODECS[codec])


def test_a_page_of_the_second_version_is_refused() -> None:
    content, start, stop = written(use_dictionary=False, data_page_version="2.0")
    with pytest.raises(CorruptThrift, match="no data page of the first version"):
        list(pages_of(memoryview(content), start, stop))


def test_a_dictionary_is_no_data_page() -> None:
    content, start, stop = written()
    with pytest.raises(CorruptThrift, match="no data page"):
        list(pages_of(memoryview(content), start, stop))
    chunk = Footer.from_end(content).row_groups[0].chunks[0]
    first = chunk.required_number((3, 9))
    pages = list(pages_of(memoryview(content), first, stop))
    assert {page.encoding for page in pages} == {_DICTIONARY}
    assert sum(page.num_values for page in pages) == 3_000


@examples(300)
@given(data=st.data(), index=st.booleans())
def test_broken_headers_are_refused_or_those_of_pages_with_values(data: st.DataObject, index: bool) -> None:
    content, start, stop = written(use_dictionary=False, write_page_index=index)
    broken = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        broken[data.draw(st.integers(start, start + 60))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(broken), stop, start + 5, start]))
    view = memoryview(bytes(broken[:cut]))
    try:
        pages = list(pages_of(view, start, stop))
        for page in pages:
            decompressed(page, CODECS["snappy"])
    except (CorruptThrift, IndexError):
        return
    assert all(page.num_values > 0 for page in pages)


@given(
    kind=st.sampled_from([0, 2, 3]),
    num_bytes=st.integers(-5, 2**31 - 1) | st.integers(0, 1 << 20),
    compressed=st.integers(-5, 2**31 - 1),
    checksum=st.none() | st.integers(-(2**31), 2**31 - 1),
    num_values=st.integers(-5, 2**31 - 1) | st.integers(0, 1 << 17),
    is_sorted=st.none() | st.booleans(),
    later=st.booleans(),
    behind=st.binary(max_size=8),
)
def test_any_header_of_a_page_tells_its_dictionary(
    kind: int,
    num_bytes: int,
    compressed: int,
    checksum: int | None,
    num_values: int,
    is_sorted: bool | None,
    later: bool,
    behind: bytes,
) -> None:
    values = {1: Typed(I32, num_values), 2: Typed(I32, 0)}
    if is_sorted is not None:
        values[3] = Typed(BOOLEAN, is_sorted)
    fields = {1: Typed(I32, kind), 2: Typed(I32, num_bytes), 3: Typed(I32, compressed)}
    if checksum is not None:
        fields[4] = Typed(I32, checksum)
    fields[7] = Typed(STRUCT, ThriftStruct(values))
    if later:
        fields[9] = Typed(I32, 5)
    dictionary = dictionary_of_header(ThriftStruct(fields).to_bytes() + behind)
    if kind != 2:
        assert dictionary is None
    else:
        assert dictionary is not None
        assert (dictionary.num_values, dictionary.num_bytes) == (max(1, num_values), max(0, num_bytes))


@given(st.lists(st.binary(max_size=9), min_size=1, max_size=5, unique=True), st.data())
def test_texts_have_no_more_bytes_than_the_widest_may_have(texts: list[bytes], data: st.DataObject) -> None:
    dictionary = Dictionary(len(texts), sum(4 + len(text) for text in texts))
    rows = [*texts, *data.draw(st.lists(st.sampled_from(texts), max_size=9))]

    assert sum(map(len, rows)) <= dictionary.most_bytes(len(rows))
    assert max(map(len, texts)) <= dictionary.widest_bytes
