"""A plain page in the place of a dictionary and the pages that use it: the same rows, or a refusal, whoever wrote them."""

from __future__ import annotations

import io
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import ColumnProperties, WriterProperties, write_deltalake
from hypothesis import given
from hypothesis import strategies as st
from tests.support.checks.naive_runs import naively
from tests.support.repetition import examples

from delta_log.parquet.chunk_form import COMPRESSED_BYTES, DATA_PAGE, DICTIONARIES, DICTIONARY_PAGE
from delta_log.parquet.footer import ColumnChunk, Footer
from delta_log.parquet.page import PLAIN, Page, dictionary_at, pages_of
from delta_log.parquet.plain_page import PlainPages, plain_pages, stored_pages
from delta_log.parquet.rle_hybrid import decoded, packed_run, run_of
from delta_log.parquet.schema_elements import Leaf, leaves_of
from delta_log.parquet.thrift_compact import CorruptThrift

_LENGTH = 4


def written(rows: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, **{"compression": "none", "store_schema": False} | options)
    return sink.getvalue()


def chunk_in(content: bytes, number: int = 0) -> tuple[ColumnChunk, Leaf]:
    footer = Footer.from_end(content)
    return footer.row_groups[0].chunks[number], leaves_of(footer.schema)[number]


def turned(content: bytes, *, may_repeat: bool = False, number: int = 0) -> PlainPages:
    chunk, leaf = chunk_in(content, number)
    return plain_pages(memoryview(content), chunk, leaf, may_repeat=may_repeat)


def by_arrow(table: pa.Table, path: Path) -> bytes:
    return written(table, compression="snappy")


def by_arrow_in_small_pages(table: pa.Table, path: Path) -> bytes:
    return written(
        table, compression="snappy", data_page_size=512, write_batch_size=100, write_page_checksum=True
    )


def by_polars(table: pa.Table, path: Path) -> bytes:
    pl.DataFrame(pl.from_arrow(table)).write_parquet(path / "f.parquet", compression="snappy")
    return (path / "f.parquet").read_bytes()


def by_delta_rs(table: pa.Table, path: Path) -> bytes:
    properties = WriterProperties(
        compression="SNAPPY", default_column_properties=ColumnProperties(dictionary_enabled=True)
    )
    write_deltalake(str(path), table, writer_properties=properties)
    return next(path.glob("*.parquet")).read_bytes()


_WRITERS: list[Callable[[pa.Table, Path], bytes]] = [
    by_arrow,
    by_arrow_in_small_pages,
    by_polars,
    by_delta_rs,
]
_COUNT = 3_000
_COLUMNS: dict[str, list[Any]] = {
    "numbers": list(range(_COUNT)),
    "numbers and nulls": [None if n % 7 == 3 else n for n in range(_COUNT)],
    "doubles": [n / 4 for n in range(_COUNT)],
    "texts": [f"text {n}" for n in range(_COUNT)],
    "texts and nulls": [None if n % 1_500 > 1_000 else f"text {n}" for n in range(_COUNT)],
    "a struct": [None if n % 5 == 0 else {"a": None if n % 11 == 0 else n} for n in range(_COUNT)],
}


@pytest.mark.parametrize("values", _COLUMNS.values(), ids=_COLUMNS)
@pytest.mark.parametrize("write", _WRITERS)
def test_writers_whose_dictionaries_hold_the_values_in_the_order_of_the_rows(
    tmp_path: Path, write: Callable[[pa.Table, Path], bytes], values: list[Any]
) -> None:
    content = write(pa.table({"c": values}), tmp_path)
    chunk, leaf = chunk_in(content)
    if write is by_polars:
        # It writes dictionaries only where values repeat.
        assert DICTIONARIES.isdisjoint(chunk.form.encodings) or values == _COLUMNS["texts and nulls"]
        return
    found = plain_pages(memoryview(content), chunk, leaf, may_repeat=False)
    assert not found.repeats
    assert {page.encoding for page in found.pages} == {PLAIN}
    assert sum(page.num_values for page in found.pages) == _COUNT
    assert _read(content, chunk, found) == values


def _read(content: bytes, chunk: ColumnChunk, found: PlainPages) -> list[Any]:
    """Let Arrow read the column from a file with these pages in the place of those of its only chunk."""
    footer = Footer.from_end(content)
    pages = b"".join(page.header() + page.before + bytes(page.content) for page in found.pages)
    form, numbers = chunk.form.edited("pages only", chunk.values)
    moved = ColumnChunk(form, list(numbers))
    moved.put_number(DATA_PAGE, 4)
    if DICTIONARY_PAGE in form.places:
        moved.put_number(DICTIONARY_PAGE, 0)
    moved.put_number(COMPRESSED_BYTES, len(pages))
    group = footer.row_groups[0].moved(4, [moved])
    file = b"PAR1" + pages + footer.of_row_groups([group]).to_end()
    values: list[Any] = pq.read_table(io.BytesIO(file)).column(0).to_pylist()
    return values


def test_the_content_of_the_dictionary_is_not_compressed_again() -> None:
    content = written(pa.table({"n": [f"text {n}" for n in range(1_000)]}), compression="snappy")
    (page,) = turned(content).pages
    dictionary = dictionary_at(memoryview(content), chunk_in(content)[0].place[0])
    assert dictionary is not None
    assert bytes(dictionary.content).endswith(bytes(page.content))
    assert len(dictionary.content) - len(page.content) <= 2


def test_a_column_that_cannot_be_null_has_no_levels() -> None:
    schema = pa.schema([pa.field("n", pa.int64(), nullable=False)])
    numbers = list(range(1_000, 2_000))
    for codec in ("none", "snappy"):
        content = written(pa.table({"n": numbers}, schema), compression=codec)
        found = turned(content)
        assert found.pages[0].uncompressed_bytes == 8_000
        assert _read(content, chunk_in(content)[0], found) == numbers


def test_pages_behind_those_with_the_dictionary_are_plain_already() -> None:
    numbers = list(range(3_000))
    content = written(
        pa.table({"n": numbers}), dictionary_pagesize_limit=8_000, data_page_size=2_000, write_batch_size=500
    )
    found = turned(content)
    assert len(found.pages) > 2
    assert _read(content, chunk_in(content)[0], found) == numbers


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_numbers_that_repeat_are_looked_up(codec: str) -> None:
    numbers = [5, *range(1_000), None, 7, 999]
    content = written(pa.table({"n": numbers}), compression=codec)
    with pytest.raises(CorruptThrift, match="1000 of 1003 values"):
        turned(content)
    found = turned(content, may_repeat=True)
    assert found.repeats
    assert _read(content, chunk_in(content)[0], found) == numbers


@pytest.mark.parametrize(
    ("values", "may_repeat", "options", "message"),
    [
        ([1, 2, 3, 1], True, {}, "3 of 4 values"),
        ([*map(str, range(100)), "7"], True, {}, "100 of 101 values"),
        ([None, None], False, {}, "0 of 2 values"),
        ([1, 2], False, {"compression": "zstd"}, "no dictionary that is read here"),
        ([1, 2], False, {"use_dictionary": False}, "no dictionary that is read here"),
        ([1, 2], False, {"data_page_version": "2.0"}, "no data page of the first version"),
    ],
)
def test_what_is_not_turned(
    values: list[Any], may_repeat: bool, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(CorruptThrift, match=message):
        turned(written(pa.table({"c": values}), **options), may_repeat=may_repeat)


def _with_dictionary_of(other: bytes, content: bytes) -> PlainPages:
    """Turn a chunk in whose place of the dictionary that of another chunk stands."""
    start, size = chunk_in(content)[0].place
    theirs, mine = (dictionary_at(memoryview(file), chunk_in(file)[0].place[0]) for file in (other, content))
    assert theirs is not None
    assert mine is not None
    pages = other[theirs.start : theirs.stop] + content[mine.stop : start + size]
    chunk, leaf = chunk_in(content)
    form, numbers = chunk.form.edited("pages only", chunk.values)
    chunk = ColumnChunk(form, list(numbers))
    chunk.put_number(DICTIONARY_PAGE, 4)
    chunk.put_number(DATA_PAGE, 4 + theirs.stop - theirs.start)
    chunk.put_number(COMPRESSED_BYTES, len(pages))
    return plain_pages(memoryview(b"PAR1" + pages), chunk, leaf, may_repeat=True)


@pytest.mark.parametrize("codec", ["none", "snappy"])
def test_places_behind_the_end_of_the_dictionary_are_found(codec: str) -> None:
    few, many = (written(pa.table({"n": list(range(count))}), compression=codec) for count in (1_500, 1_600))
    with pytest.raises(CorruptThrift, match="not in the dictionary"):
        _with_dictionary_of(few, many)
    assert not _with_dictionary_of(many, many).repeats


def test_a_page_behind_those_with_the_dictionary_that_has_too_few_values_is_found() -> None:
    content = bytearray(
        written(
            pa.table({"n": list(range(3_000))}),
            dictionary_pagesize_limit=8_000,
            data_page_size=2_000,
            write_batch_size=500,
        )
    )
    chunk, leaf = chunk_in(bytes(content))
    start, size = chunk.place
    dictionary = dictionary_at(memoryview(content), start)
    assert dictionary is not None
    last = list(pages_of(memoryview(bytes(content)), dictionary.stop, start + size))[-1]
    # More levels than values: those of no value are gone.
    at = last.stop - len(last.content)
    content[at : at + _LENGTH] = (len(last.content) - _LENGTH - 8).to_bytes(_LENGTH, "little")
    content[at + _LENGTH : at + _LENGTH + 3] = run_of(1, 1, last.num_values)
    with pytest.raises(CorruptThrift, match="bytes of its values"):
        plain_pages(memoryview(bytes(content)), chunk, leaf, may_repeat=False)


@pytest.mark.parametrize("use_dictionary", [True, False])
@pytest.mark.parametrize(
    ("values", "is_proven"),
    [
        ([f"{n:0>32}" for n in range(500)], True),
        ([None if n % 3 else f"{n:0>4}" for n in range(500)], True),
        ([f"text {n}" for n in range(500)], False),
        (["ab", "", "abcdefgh"], False),
        ([Decimal(n).scaleb(-4) for n in range(500)], True),
    ],
)
def test_texts_of_one_length_need_not_be_decoded(
    use_dictionary: bool, values: list[Any], is_proven: bool
) -> None:
    kind = pa.decimal128(30, 4) if isinstance(values[0], Decimal) else pa.string()
    for has_checksum in (False, True):
        content = written(
            pa.table({"c": pa.array(values, kind)}),
            use_dictionary=use_dictionary,
            write_page_checksum=has_checksum,
        )
        chunk, leaf = chunk_in(content)
        file = memoryview(content)
        found = (
            plain_pages(file, chunk, leaf, may_repeat=False)
            if use_dictionary
            else stored_pages(list(pages_of(file, chunk.place[0], sum(chunk.place))), chunk, leaf)
        )
        assert found.are_proven == (is_proven or has_checksum)


def test_levels_above_the_highest_are_found() -> None:
    rows = pa.table({"s": [{"a": None if n % 3 == 1 else n} for n in range(40)]})
    content = bytearray(written(rows))
    page, _ = _only_page(bytes(content))
    at = page.stop - len(page.content) + _LENGTH
    width = 2
    levels = decoded(page.content[_LENGTH:], width, 40)
    assert sorted(set(levels.tolist())) == [1, 2]
    packed = packed_run(np.where(levels == 1, 3, levels).astype(np.uint8), width)
    size = int.from_bytes(page.content[:_LENGTH], "little")
    assert len(packed) <= size
    content[at : at + len(packed)] = packed
    with pytest.raises(CorruptThrift, match="a level is above 2"):
        turned(bytes(content))


def test_a_dictionary_that_is_not_plain_is_refused() -> None:
    content = written(pa.table({"n": list(range(1_000))}))
    start, _ = chunk_in(content)[0].place
    dictionary = dictionary_at(memoryview(content), start)
    assert dictionary is not None
    head = content[start : dictionary.stop - len(dictionary.content)]
    assert head.endswith(b"\x15\x00\x12\x00\x00")
    for encoding, is_plain in ((0, True), (2, True), (5, False), (8, False)):
        other = head[:-4] + bytes((encoding << 1,)) + head[-3:]
        found = dictionary_at(memoryview(content.replace(head, other)), start)
        assert (found is not None) == is_plain


def test_a_chunk_of_very_many_pages_or_runs_is_refused() -> None:
    numbers = [None if n % 2 else n for n in range(3_000)]
    content = written(pa.table({"n": numbers}), data_page_size=1, write_batch_size=2)
    with pytest.raises(CorruptThrift, match="the pages do not have 3000 values"):
        turned(content)
    with pytest.raises(CorruptThrift, match="more than 8192 runs"):
        decoded(memoryview(run_of(1, 1, 1) * 10_000), 1, 10_000)


def test_a_wrong_checksum_is_found() -> None:
    content = bytearray(written(pa.table({"n": list(range(1_000))}), write_page_checksum=True))
    start, size = chunk_in(bytes(content))[0].place
    for place in (start + 60, start + size - 1):
        broken = bytearray(content)
        broken[place] ^= 1
        with pytest.raises(CorruptThrift, match="another checksum"):
            turned(bytes(broken))


_ROWS = 700
_PLACES = written(pa.table({"n": list(range(_ROWS))}))


def _only_page(content: bytes) -> tuple[Page, int]:
    """The page that uses the dictionary, and the offset of its places behind the levels and their width."""
    start, size = chunk_in(content)[0].place
    dictionary = dictionary_at(memoryview(content), start)
    assert dictionary is not None
    (page,) = pages_of(memoryview(content), dictionary.stop, start + size)
    levels = int.from_bytes(page.content[:_LENGTH], "little")
    return page, page.stop - len(page.content) + _LENGTH + levels


@examples(300)
@given(st.integers(0, 2_000), st.integers(1, 255), st.booleans())
def test_other_places_in_the_dictionary_are_found(at: int, flip: int, may_repeat: bool) -> None:
    page, start = _only_page(_PLACES)
    content = bytearray(_PLACES)
    content[start + at % (page.stop - start)] ^= flip
    width, places = content[start], bytes(content[start + 1 : page.stop])
    expected = naively(places, width, _ROWS) if width <= 32 else None
    try:
        found = turned(bytes(content), may_repeat=may_repeat)
    except CorruptThrift:
        # Without a flip that matters, it is not refused.
        assert expected is None or max(expected) >= _ROWS
        return
    assert expected is not None
    assert memoryview(found.values[0]).cast("q").tolist() == expected


@examples(200)
@given(st.data())
def test_broken_bytes_are_refused_or_give_as_many_values(data: st.DataObject) -> None:
    numbers = data.draw(st.lists(st.none() | st.integers(0, 1 << 40), min_size=1, max_size=60, unique=True))
    content = bytearray(
        written(
            pa.table({"n": pa.array(numbers, pa.int64())}),
            compression=data.draw(st.sampled_from(["none", "snappy"])),
            data_page_size=data.draw(st.sampled_from([16, 1 << 20])),
            write_batch_size=8,
        )
    )
    chunk, leaf = chunk_in(bytes(content))
    start, size = chunk.place
    for _ in range(data.draw(st.integers(1, 3))):
        content[data.draw(st.integers(start, start + size - 1))] ^= 1 << data.draw(st.integers(0, 7))
    try:
        found = plain_pages(memoryview(bytes(content)), chunk, leaf, may_repeat=data.draw(st.booleans()))
    except CorruptThrift:
        return
    assert len(found.values[0]) == 8 * (len(numbers) - numbers.count(None))
