"""One data file, as it is written: statistics from its own footer, dictionaries where they pay, row groups of bounded size."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples
from tests.support.runs.maintenance_runs import keys, run
from tests.support.tables.encoded_file import encoded_file
from tests.support.tables.rewritable_tables import COLUMNS, GeneratedTable
from tests.support.tables.written_log import add, write_log

from delta_log import Table
from delta_log.errors import InvalidRequest
from delta_log.stats.file_stats import StatsCollector, stats_columns
from delta_log.table_config.schema import PrimitiveType, StructType, arrow_schema, parse_schema
from delta_maintenance.rewrite.encode.encoded_part import PartEncoder
from delta_maintenance.rewrite.encode.writer_settings import CODEC_PROPERTY, WriterSettings
from parquet_parts.footer import BLOOM_FILTER, Footer

NAMES = tuple(COLUMNS)
ROWS = st.lists(st.fixed_dictionaries({name: st.none() | COLUMNS[name][1] for name in NAMES}), max_size=12)


def schema_of(names: tuple[str, ...]) -> StructType:
    return GeneratedTable(names, "none", False, False).schema


_TEXTS = pa.record_batch([pa.array(["x" * 1_000] * 100)], arrow_schema(schema_of(("text",))))


def written(
    batches: list[pa.RecordBatch],
    schema: StructType,
    row_group_bytes: int = 128 << 20,
    bloom_filters: frozenset[str] = frozenset(),
    codec: str = "snappy",
) -> tuple[pq.ParquetFile, str]:
    """What is in the file, and the statistics for the log."""
    settings = WriterSettings(codec, stats_columns(schema), row_group_bytes=row_group_bytes)
    content, stats = encoded_file(batches, arrow_schema(schema, physical=True), settings, bloom_filters)
    return pq.ParquetFile(io.BytesIO(content)), stats


def bloom_filters(content: bytes) -> dict[str, int | None]:
    """Bytes of the Bloom filters in the first row group, by leaf."""
    chunks = Footer.from_end(content).row_groups[0].chunks
    return {chunk.dotted_path: chunk.number(BLOOM_FILTER[1]) for chunk in chunks if chunk.has_bloom_filter}


@examples(60)
@given(rows=ROWS, cut=st.integers(1, 12))
def test_statistics_from_the_footer_are_those_of_the_values(rows: list[dict[str, Any]], cut: int) -> None:
    schema = schema_of(NAMES)
    table = pa.Table.from_pylist(rows, arrow_schema(schema, physical=True))
    collector = StatsCollector(stats_columns(schema))
    collector.update(table)
    file, stats = written(table.to_batches(max_chunksize=cut), schema, row_group_bytes=1)
    assert stats == collector.finish()
    assert file.metadata.num_rows == len(rows)


@pytest.mark.parametrize("text", ["x" * 4_000, "x" * 4_001, "y" + "é" * 2_500, "\U0010ffff" * 3_000])
def test_bounds_of_texts_that_a_footer_leaves_out_are_found_all_the_same(text: str) -> None:
    schema = schema_of(("text", "struct"))
    rows = [
        {"text": text, "struct": {"a": text, "b": None}},
        {"text": "m", "struct": None},
        {"text": None, "struct": {"a": None, "b": []}},
    ]
    table = pa.Table.from_pylist(rows, arrow_schema(schema, physical=True))
    collector = StatsCollector(stats_columns(schema))
    collector.update(table)
    _, stats = written(table.to_batches(max_chunksize=1), schema, row_group_bytes=1)
    assert stats == collector.finish()


def test_bytes_that_are_no_text_have_no_bounds() -> None:
    schema = schema_of(("text",))
    broken = pa.array([b"a", b"\xff\xfe", None]).cast(pa.string(), safe=False)
    _, stats = written([pa.record_batch([broken], arrow_schema(schema))], schema)
    assert json.loads(stats) == {
        "numRecords": 3,
        "minValues": {},
        "maxValues": {},
        "nullCount": {"text": 1},
    }


def test_columns_behind_nested_ones_get_their_own_bounds() -> None:
    schema = schema_of(("map", "list", "struct", "int"))
    row = {"map": [("k", 7)], "list": [0.5, None], "struct": {"a": "t", "b": [{"c": 9}]}, "int": 3}
    table = pa.Table.from_pylist([row, row | {"int": 5}], arrow_schema(schema))
    _, stats = written(table.to_batches(), schema)
    assert json.loads(stats)["minValues"] == {"struct": {"a": "t"}, "int": 3}
    assert json.loads(stats)["maxValues"] == {"struct": {"a": "t"}, "int": 5}


def test_only_leaves_whose_values_repeat_have_a_dictionary() -> None:
    schema = schema_of(("struct", "list", "map", "text"))
    rows = [
        {
            "struct": {"a": f"unique {number}", "b": [{"c": number % 3}]},
            "list": [number / 7],
            "map": [(f"k{number % 2}", number)],
            "text": "same",
        }
        for number in range(500)
    ]
    file, _ = written(pa.Table.from_pylist(rows, arrow_schema(schema)).to_batches(), schema)
    group = file.metadata.row_group(0)
    with_dictionary = {
        group.column(n).path_in_schema
        for n in range(group.num_columns)
        if group.column(n).has_dictionary_page
    }
    assert with_dictionary == {"struct.b.list.element.c", "map.key_value.key", "text"}


def test_every_column_has_an_index_of_its_pages() -> None:
    schema = schema_of(NAMES)
    table = pa.Table.from_pylist([dict.fromkeys(NAMES)] * 3, arrow_schema(schema, physical=True))
    file, _ = written(table.to_batches(), schema)
    columns = [file.metadata.row_group(0).column(n) for n in range(file.metadata.num_columns)]
    assert all(column.has_offset_index and column.has_column_index for column in columns)


def test_bloom_filters_are_kept(tmp_path: Path) -> None:
    adds = []
    for number in range(3):
        values = pa.table({"value": range(number, 9_000, 3), "other": range(number, 9_000, 3)})
        path = tmp_path / f"{number}.parquet"
        # The first source is read before the others, and has none.
        options = {"value": {"ndv": 3_000, "fpp": 0.01}} if number else None
        pq.write_table(values, path, bloom_filter_options=options)
        adds.append(add(path.name, path.stat().st_size))
    write_log(tmp_path, adds)
    assert run(tmp_path).status == "committed"
    (key,) = keys(tmp_path)
    filters = bloom_filters((tmp_path / key).read_bytes())
    assert filters.keys() == {"value"}
    assert (filters["value"] or 0) >= 3_000
    assert sorted(Table(str(tmp_path)).snapshot().to_arrow()["value"].to_pylist()) == list(range(9_000))


def test_a_bloom_filter_is_made_of_asked_leaves_alone() -> None:
    schema = schema_of(("text", "struct", "list"))
    wanted = frozenset({"struct.a", "list.list.element", "somewhere.else"})
    row = {"text": "t", "struct": {"a": "s", "b": None}, "list": [1.5]}
    batches = pa.Table.from_pylist([row] * 9, arrow_schema(schema, physical=True)).to_batches()
    physical, settings = arrow_schema(schema, physical=True), WriterSettings("snappy", stats_columns(schema))
    content, _ = encoded_file(batches, physical, settings, wanted)
    assert bloom_filters(content).keys() == {"struct.a", "list.list.element"}


@pytest.mark.parametrize(
    ("name", "codec"),
    [("SNAPPY", "SNAPPY"), ("lz4raw", "LZ4"), ("lz4_raw", "LZ4"), ("none", "UNCOMPRESSED"), (None, "ZSTD")],
)
def test_the_codec_is_that_of_the_table(name: str | None, codec: str) -> None:
    schema = schema_of(("text",))
    settings = WriterSettings.of({} if name is None else {CODEC_PROPERTY: name}, schema, [])
    file, _ = written([_TEXTS], schema, codec=settings.codec)
    assert file.metadata.row_group(0).column(0).compression == codec


def test_a_codec_that_cannot_be_written_is_refused_by_name() -> None:
    with pytest.raises(InvalidRequest, match="is 'lzo', and files cannot be written so"):
        WriterSettings.codec_of({CODEC_PROPERTY: "lzo"})


@pytest.mark.parametrize(
    ("batches", "sizes"),
    [(1, [100]), (4, [400]), (5, [300, 200]), (8, [300, 300, 200]), (10, [300, 300, 400])],
)
def test_a_row_group_ends_when_it_is_large_enough(batches: int, sizes: list[int]) -> None:
    schema = schema_of(("text",))
    file, _ = written([_TEXTS] * batches, schema, row_group_bytes=300_000)
    assert [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)] == sizes


def test_a_batch_of_several_row_groups_is_not_cut() -> None:
    large = pa.concat_batches([_TEXTS] * 10)
    file, _ = written([large, _TEXTS, large], schema_of(("text",)), row_group_bytes=300_000)
    sizes = [file.metadata.row_group(n).num_rows for n in range(file.num_row_groups)]
    assert sizes == [1_000, 1_100]


@pytest.mark.parametrize("kind", ["decimal(5,2)", "decimal(18,4)", "decimal(38,0)", "decimal(30,30)"])
def test_decimals_of_every_width_keep_their_digits(kind: str) -> None:
    struct = {"type": "struct", "fields": [{"name": "d", "type": kind, "nullable": True, "metadata": {}}]}
    schema = parse_schema(json.dumps(struct))
    precision, scale = PrimitiveType(kind).decimal or (0, 0)
    digits = "9" * precision
    values = [Decimal(f"-{digits}E-{scale}"), None, Decimal(f"{digits}E-{scale}"), Decimal(f"0E-{scale}")]
    table = pa.Table.from_pylist([{"d": value} for value in values], arrow_schema(schema))
    collector = StatsCollector(stats_columns(schema))
    collector.update(table)
    _, stats = written(table.to_batches(max_chunksize=2), schema, row_group_bytes=1)
    assert stats == collector.finish()
    assert digits in stats.replace(".", "")


FEW_TEXTS = st.lists(
    st.none() | st.sampled_from(["", "é" * 9, "z" * 30, "x" * 5_000]), min_size=4, max_size=12
)


@examples(60)
@given(texts=FEW_TEXTS, size=st.integers(20, 60), keep=st.integers(1, 7))
def test_texts_that_come_as_dictionaries_make_the_same_part(
    texts: list[str | None], size: int, keep: int
) -> None:
    # The first batch shows that a dictionary pays.
    column = pa.array(["z" * 30] * size + texts * 20, pa.string())
    # Rows that are left out leave values in the dictionary that no row has.
    kept = pa.array([number // size % 2 == 0 or number % keep == 0 for number in range(len(column))])
    compare_with_dictionaries(column, kept, size)


def test_a_dictionary_that_outgrows_its_page_is_given_up() -> None:
    column = pa.array(["few"] * 20_000 + [f"{number:0100}" for number in range(20_000)])
    compare_with_dictionaries(column, pa.array([True] * len(column)), 10_000)


def compare_with_dictionaries(column: pa.Array, kept: pa.Array, size: int) -> None:
    schema = schema_of(("text", "long"))
    table = pa.table([column, pa.array(range(len(column)))], arrow_schema(schema, physical=True))
    batches = table.to_batches(max_chunksize=size)

    def rows(encoder: PartEncoder, *, as_dictionaries: bool) -> Iterator[pa.RecordBatch]:
        for number, batch in enumerate(batches):
            if as_dictionaries and number:
                assert encoder.dictionaries() == {"text"}
                arrays = [batch.column(0).dictionary_encode(), batch.column(1)]
                batch = pa.record_batch(arrays, names=batch.schema.names)  # noqa: PLW2901 - the same rows
            yield batch.filter(kept.slice(number * size, batch.num_rows))

    plain, other = (
        PartEncoder(table.schema, WriterSettings("snappy", stats_columns(schema))) for _ in range(2)
    )
    expected = plain.encode(rows(plain, as_dictionaries=False))
    found = other.encode(rows(other, as_dictionaries=True))
    assert found.stats.finish() == expected.stats.finish()
    assert found.distrust == expected.distrust
    files = [
        pq.ParquetFile(pa.BufferReader(part.content.read(0, part.content.tell())))
        for part in (found, expected)
    ]
    assert files[0].read().equals(files[1].read())
    assert files[0].schema.equals(files[1].schema)
    assert facts(files[0]) == facts(files[1])


def facts(file: pq.ParquetFile) -> list[Any]:
    """What the footer says of values."""
    groups = [file.metadata.row_group(number) for number in range(file.metadata.num_row_groups)]
    chunks = [group.column(number) for group in groups for number in range(group.num_columns)]
    return [
        (chunk.path_in_schema, chunk.num_values, chunk.statistics and chunk.statistics.to_dict())
        for chunk in chunks
    ]
