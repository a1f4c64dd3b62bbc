"""Files of several writers put behind each other: the same pages, indexes and Bloom filters, and the same rows for each reader."""

from __future__ import annotations

import io
import math
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.checks import parquet_structs as parquet
from tests.support.repetition import examples

from parquet_parts import chunk_template as form
from parquet_parts.assembled_file import AssembledFile, OmittedClaims, Sink
from parquet_parts.float_bounds import has_nan_bound, widen_zeros
from parquet_parts.footer import BLOOM_FILTER, Footer
from parquet_parts.thrift import CorruptThrift

_COLUMNS = ("n", "text", "x")


class BufferSource:
    """A file in memory."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self.copied: list[tuple[int, int]] = []

    def read(self, start: int, length: int) -> bytes:
        return self._content[start : start + length]

    def copy_to(self, sink: Sink, start: int, length: int) -> None:
        if start + length > len(self._content):
            raise CorruptThrift(start, f"{length} bytes are to follow, and the file ends before")
        self.copied.append((start, start + length))
        sink.write(self._content[start : start + length])


def _rows(first: int) -> pa.Table:
    numbers = list(range(first, first + 300))
    return pa.table(
        {
            "n": pa.array([None if n % 7 == 0 else n for n in numbers], pa.int64()),
            "text": [None if n % 5 == 0 else f"{'é' * (n % 3)}{n % 40:05d}" for n in numbers],
            "x": [n / 2 for n in numbers],
        }
    )


def _by_arrow(rows: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(rows, sink, row_group_size=120, store_schema=False, **options)
    return sink.getvalue()


def _by_duckdb(rows: pa.Table, path: Path) -> bytes:
    connection = duckdb.connect()
    connection.register("rows", rows)
    connection.execute(f"COPY (SELECT * FROM rows) TO '{path / 'f'}' (FORMAT parquet, ROW_GROUP_SIZE 2048)")
    return (path / "f").read_bytes()


def _by_delta_rs(rows: pa.Table, path: Path) -> bytes:
    deltalake.write_deltalake(str(path / f"{rows[2][0]}"), rows)
    return next((path / f"{rows[2][0]}").glob("*.parquet")).read_bytes()


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[bytes, pa.Table]]:
    path = tmp_path_factory.mktemp("files")
    writers: list[Callable[[pa.Table], bytes]] = [
        lambda rows: _by_arrow(rows, write_page_index=True, data_page_size=64, write_batch_size=16),
        lambda rows: _by_arrow(rows, compression="zstd", use_dictionary=False, data_page_version="2.0"),
        lambda rows: _by_arrow(
            rows, write_page_index=True, bloom_filter_options={"text": {"ndv": 100}, "n": {"ndv": 100}}
        ),
        lambda rows: _by_arrow(rows, write_statistics=False),
        lambda rows: _by_duckdb(rows, path),
        lambda rows: _by_delta_rs(rows, path),
    ]
    return [(write(_rows(1000 * n)), _rows(1000 * n)) for n, write in enumerate(writers)]


def _assembled(contents: list[bytes], distrust: OmittedClaims | None = None) -> bytes:
    sink = io.BytesIO()
    target = AssembledFile(sink)
    for content in contents:
        footer = Footer.from_end(content)
        leave_out = [distrust] * len(footer.row_groups) if distrust else []
        target.append(BufferSource(content), footer, leave_out.copy)
    target.finish({"writer": "a test", "é": "\0"})
    assert target.size_bytes == len(sink.getvalue())
    return sink.getvalue()


def _parts(content: bytes) -> Iterator[tuple[Any, ...]]:
    """Yield what a reader finds by the footer: the bytes of each chunk's pages, of its indexes and of its Bloom filter."""
    _, footer = parquet.split_footer(content)
    groups = Footer.from_end(content).row_groups
    for number, leaf, chunk in parquet.column_chunks(footer):
        ours = groups[number].chunks[leaf]
        start, size = ours.place
        pages = content[start : start + size]
        found = []
        for offset, length in (
            (parquet.OFFSET_INDEX, parquet.OFFSET_INDEX_LENGTH),
            (parquet.COLUMN_INDEX, parquet.COLUMN_INDEX_LENGTH),
        ):
            part = None
            if offset in chunk.fields:
                at = parquet.number_of(chunk, offset)
                part = content[at : at + parquet.number_of(chunk, length)]
            found.append(part)
        locations = [
            (page.offset - start, page.size_bytes, page.first_row)
            for page in (parquet.offset_index(found[0]) if found[0] else ())
        ]
        bloom = ours.number(BLOOM_FILTER[0])
        length = ours.number(BLOOM_FILTER[1]) or 32
        yield pages, locations, found[1], None if bloom is None else content[bloom : bloom + length]


@examples(25)
@given(chosen=st.lists(st.integers(0, 5), min_size=1, max_size=6))
def test_every_part_is_found_at_its_new_place(files: list[tuple[bytes, pa.Table]], chosen: list[int]) -> None:
    contents = [files[number][0] for number in chosen]
    target = _assembled(contents)
    assert list(_parts(target)) == [part for content in contents for part in _parts(content)]
    found = pq.ParquetFile(io.BytesIO(target))
    assert found.read().equals(
        pa.concat_tables([files[number][1] for number in chosen]).cast(found.schema_arrow)
    )
    assert found.metadata.metadata == {b"writer": b"a test", "é".encode(): b"\0"}
    # A copy can be copied.
    again = _assembled([target, contents[0]])
    assert list(_parts(again)) == [*_parts(target), *_parts(contents[0])]


_FILTERS = [
    ("n", 1044),
    ("n", 2001),
    ("n", -1),
    ("text", "00017"),
    ("text", "é00007"),
    ("text", "none"),
    ("x", 600.5),
]


@pytest.mark.parametrize("order", [[0, 1, 2, 3, 4, 5], [5, 4, 2, 0], [2, 2]])
def test_readers_find_the_rows(files: list[tuple[bytes, pa.Table]], order: list[int], tmp_path: Path) -> None:
    path, rows = tmp_path / "f.parquet", pa.concat_tables([files[number][1] for number in order])
    path.write_bytes(_assembled([files[number][0] for number in order]))
    table = tmp_path / "t"
    # delta-rs reads it as a table's file.
    deltalake.convert_to_deltalake(str(_moved(path, table)))
    read = deltalake.DeltaTable(str(table))
    assert read.to_pyarrow_table().cast(rows.schema).equals(rows)
    connection = duckdb.connect()
    for column, value in _FILTERS:
        expected = rows.filter(ds.field(column) == value)
        assert ds.dataset(table / "f.parquet").to_table(filter=ds.field(column) == value).num_rows == len(
            expected
        )
        sql = f"SELECT count(*) FROM read_parquet('{table / 'f.parquet'}') WHERE {column} = ?"
        assert connection.execute(sql, [value]).fetchone() == (len(expected),)
        with_filter = read.to_pyarrow_dataset().to_table(filter=ds.field(column) == value)
        assert with_filter.num_rows == len(expected)


def _moved(path: Path, table: Path) -> Path:
    table.mkdir()
    path.rename(table / path.name)
    return table


def test_what_is_distrusted_is_left_out(files: list[tuple[bytes, pa.Table]]) -> None:
    content = _assembled([files[2][0], files[5][0]], OmittedClaims(bounds={2}, membership={0, 2}))
    metadata = pq.ParquetFile(io.BytesIO(content)).metadata
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        assert [group.column(leaf).statistics.has_min_max for leaf in range(3)] == [True, True, False]
        assert not group.column(2).has_column_index
    filters = [
        [chunk.has_bloom_filter for chunk in group.chunks] for group in Footer.from_end(content).row_groups
    ]
    assert not any(chunks[0] for chunks in filters)
    assert filters[0][1]


@pytest.mark.parametrize("kind", [pa.float32(), pa.float64()])
@pytest.mark.parametrize("value", [0.0, -0.0, 1.5])
def test_bounds_of_another_writer_hold_zeros_of_both_signs(kind: pa.DataType, value: float) -> None:
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": pa.array([value], kind)}), sink)
    content = sink.getvalue()
    chunk = Footer.from_end(content).row_groups[0].chunks[0]
    width = "<f" if kind == pa.float32() else "<d"
    raw = struct.pack(width, value)
    # Arrow widens zeros itself; parquet-java leaves those that it met.
    for path in (form.LOW, form.HIGH):
        chunk.values[chunk.form.places[path]] = bytes((len(raw),)) + raw
    assert not has_nan_bound(chunk)
    widen_zeros(chunk)
    assert chunk.bounds is not None
    low, high = (struct.unpack(width, bound)[0] for bound in chunk.bounds)
    assert (low, high) == (value, value)
    assert (math.copysign(1, low), math.copysign(1, high)) == ((1, 1) if value else (-1, 1))
    # parquet-java sorts a NaN above all numbers.
    chunk.values[chunk.form.places[form.HIGH]] = bytes((len(raw),)) + struct.pack(width, math.nan)
    assert has_nan_bound(chunk)


def test_row_groups_may_be_chosen(files: list[tuple[bytes, pa.Table]]) -> None:
    sink, footer = io.BytesIO(), Footer.from_end(files[0][0])
    target = AssembledFile(sink)
    target.append(BufferSource(files[0][0]), footer, row_groups=range(1, 2))
    target.finish({})
    assert pq.read_table(sink).equals(files[0][1].slice(120, 120))


def test_row_groups_behind_each_other_are_one_range_and_what_lies_between_others_is_not_copied(
    files: list[tuple[bytes, pa.Table]],
) -> None:
    # Behind the row groups of each half stand their Bloom filters.
    content = _assembled([files[2][0], files[2][0]])
    source, footer = BufferSource(content), Footer.from_end(content)
    AssembledFile(io.BytesIO()).append(source, footer)
    extents = [group.extent for group in footer.row_groups]
    half = len(extents) // 2
    assert half > 1
    assert source.copied == [(extents[0][0], extents[half - 1][1]), (extents[half][0], extents[-1][1])]
    assert extents[half - 1][1] < extents[half][0]


@examples(80)
@given(data=st.data())
def test_a_broken_footer_gives_one_error_or_a_file(
    files: list[tuple[bytes, pa.Table]], data: st.DataObject
) -> None:
    content, _ = data.draw(st.sampled_from(files))
    length = int.from_bytes(content[-8:-4], "little")
    changed = bytearray(content)
    for _ in range(data.draw(st.integers(1, 3))):
        changed[data.draw(st.integers(len(content) - 8 - length, len(content) - 1))] = data.draw(
            st.integers(0, 255)
        )
    if data.draw(st.booleans()):
        del changed[data.draw(st.integers(0, len(changed) - 1)) :]
    try:
        target = _assembled([bytes(changed)])
    except CorruptThrift:
        return
    assert target[:4] == target[-4:] == b"PAR1"
