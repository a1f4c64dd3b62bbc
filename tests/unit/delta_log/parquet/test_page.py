"""The headers of pages that Arrow writes, and broken ones."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.repetition import examples

from delta_log.parquet.footer import Footer
from delta_log.parquet.page import SNAPPY, UNCOMPRESSED, ZSTD, pages_of
from delta_log.parquet.thrift_compact import CorruptThrift

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
    assert {page.checksum is not None for page in pages} == {checksum}
    for page in pages:
        page.check(CODECS[codec])


def test_a_change_of_a_page_with_a_checksum_is_found_wherever_it_is() -> None:
    content, start, stop = written(use_dictionary=False, write_page_checksum=True, compression="none")
    page = next(pages_of(memoryview(content), start, stop))
    for place in range(page.stop - len(page.content), page.stop):
        broken = bytearray(content)
        broken[place] ^= 1
        with pytest.raises(CorruptThrift, match="checksum"):
            next(pages_of(memoryview(broken), start, stop)).check(0)


@pytest.mark.parametrize("codec", ["snappy", "zstd"])
def test_a_page_without_a_checksum_is_decompressed(codec: str) -> None:
    content, start, stop = written(use_dictionary=False, compression=codec)
    page = next(pages_of(memoryview(content), start, stop))
    page.check(CODECS[codec])
    broken = bytearray(content)
    broken[page.stop - len(page.content) + 4 : page.stop] = b"\xff" * (len(page.content) - 4)
    with pytest.raises(CorruptThrift, match="cannot be decompressed"):
        next(pages_of(memoryview(broken), start, stop)).check(CODECS[codec])


@pytest.mark.parametrize("codec", ["none", "snappy", "zstd"])
@pytest.mark.parametrize("checksum", [True, False])
@pytest.mark.parametrize("more", [-1, 1])
def test_a_wrong_length_is_found(codec: str, checksum: bool, more: int) -> None:
    content, start, stop = written(use_dictionary=False, compression=codec, write_page_checksum=checksum)
    page = next(pages_of(memoryview(content), start, stop))
    wrong = replace(page, uncompressed_bytes=page.uncompressed_bytes + more)
    with pytest.raises(CorruptThrift, match="another length|cannot be decompressed"):
        wrong.check(CODECS[codec])


@pytest.mark.parametrize("statistics", [True, False])
@pytest.mark.parametrize("checksum", [True, False])
def test_a_new_header_says_the_same_but_for_statistics(statistics: bool, checksum: bool) -> None:
    content, start, stop = written(
        use_dictionary=False, write_page_index=not statistics, write_page_checksum=checksum
    )
    pages = list(pages_of(memoryview(content), start, stop))
    anew = memoryview(b"".join(piece for page in pages for piece in (page.header(), page.content)))
    if not statistics:
        assert anew == content[start:stop]
    again = list(pages_of(anew, 0, len(anew)))
    assert [replace(page, start=0, stop=0) for page in again] == [
        replace(page, start=0, stop=0) for page in pages
    ]


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


def test_pages_that_reach_beyond_their_chunk_are_refused() -> None:
    content, start, stop = written(use_dictionary=False)
    with pytest.raises(CorruptThrift, match="behind its column chunk"):
        list(pages_of(memoryview(content), start, stop - 1))


@examples(300)
@given(data=st.data(), index=st.booleans())
def test_broken_headers_are_refused_or_have_pages_within_their_chunk(
    data: st.DataObject, index: bool
) -> None:
    content, start, stop = written(use_dictionary=False, write_page_index=index)
    broken = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        broken[data.draw(st.integers(start, start + 60))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.sampled_from([len(broken), stop, start + 5, start]))
    view = memoryview(bytes(broken[:cut]))
    try:
        pages = list(pages_of(view, start, stop))
        for page in pages:
            page.check(CODECS["snappy"])
    except CorruptThrift:
        return
    assert all(page.num_values >= 0 for page in pages)
    assert sum(page.stop - page.start for page in pages) == stop - start
