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
from tests.support.repetition import examples

from parquet_parts.footer import Footer
from parquet_parts.page import SNAPPY, UNCOMPRESSED, ZSTD, Page, decompressed, page_at
from parquet_parts.thrift_compact import CorruptThrift

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
