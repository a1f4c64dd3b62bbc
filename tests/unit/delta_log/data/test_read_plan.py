"""How many rows are decoded at once: few where values may be wide, and tens of thousands where they cannot be."""

from __future__ import annotations

import io
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from delta_log.data.read_plan import BATCH_ROWS, Leaves, ReadStep, plan_reads
from parquet_parts.chunk_template import DATA_PAGE, DICTIONARY_PAGE
from parquet_parts.footer import Footer, read_end

BATCH_BYTES = 16 << 20
WIDE_BYTES = 36_000


def found(
    table: pa.Table,
    row_group_size: int = 1 << 20,
    names: list[str] | None = None,
    far: bool = False,
    **options: Any,
) -> list[ReadStep]:
    """
    :param far: to look into the file would cost a request.
    """
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size, store_schema=False, **options)
    source = pa.BufferReader(sink.getvalue())
    file = pq.ParquetFile(source)
    leaves = Leaves.of(file.schema, set(names or table.column_names))
    groups = Footer.from_end(read_end(source)).row_groups
    return list(plan_reads(groups, leaves, BATCH_ROWS, None if far else source.read_at, range(len(groups))))


def repeated(values: list[str], rows: int) -> pa.Array:
    """Values by turns."""
    indices = pa.array([row % len(values) for row in range(rows)], pa.int32())
    return pa.DictionaryArray.from_arrays(indices, pa.array(values))


def test_an_ordinary_small_file_is_one_batch() -> None:
    rows = 4_000
    table = pa.table(
        {
            "number": range(rows),
            "unique": [f"{number:036}" for number in range(rows)],
            "few": repeated(["a", "b", "c"], rows),
            "list": [["x"] * (number % 3) for number in range(rows)],
        }
    )
    (one,) = found(table)
    assert (one.row_groups, one.num_rows) == ((0,), rows)
    assert min(one.first_rows, one.most_rows) >= rows


def test_a_small_file_of_few_short_values_is_one_batch() -> None:
    (one,) = found(pa.table({"few": repeated([f"{number:010}" for number in range(100)], 22_000)}))
    assert one.first_rows >= 22_000


def test_a_large_file_of_few_short_values_is_read_by_the_largest_batches() -> None:
    (one,) = found(pa.table({"few": repeated(["red", "green", "a rare colour"], 200_000)}))
    assert (one.first_rows, one.most_rows) == (BATCH_ROWS, BATCH_ROWS)


def test_a_large_dictionary_of_short_values_is_read_by_tens_of_thousands() -> None:
    values = [f"{number:07}" for number in range(90_000)]
    (one,) = found(pa.table({"text": repeated(values, 300_000)}))
    assert one.first_rows >= 4_000
    assert one.most_rows >= 16_000


NESTED = {
    "flat": lambda texts: texts,
    "list": lambda texts: pa.ListArray.from_arrays(pa.array(range(len(texts) + 1), pa.int32()), texts),
    "struct": lambda texts: pa.StructArray.from_arrays([texts], ["member"]),
    "map value": lambda texts: pa.MapArray.from_arrays(
        pa.array(range(len(texts) + 1), pa.int32()), pa.array(["key"] * len(texts)), texts
    ),
}


@pytest.mark.parametrize("kind", NESTED)
@pytest.mark.parametrize(
    "options",
    [
        {"compression": "none"},
        {"compression": "zstd", "data_page_version": "2.0"},
        {"compression": "snappy", "write_page_checksum": True},
    ],
    ids=str,
)
def test_wide_values_in_a_dictionary_are_told_by_its_page(kind: str, options: dict[str, Any]) -> None:
    texts = repeated(["a" * WIDE_BYTES, "b" * WIDE_BYTES], 60_000)
    table = pa.table({"text": NESTED[kind](texts)})
    (one,) = found(table, **options)
    assert BATCH_BYTES * 0.99 < one.most_rows * WIDE_BYTES <= BATCH_BYTES
    assert one.first_rows == one.most_rows
    # Pages of a far file are not looked at, so few rows are tried first.
    (one,) = found(table, far=True, **options)
    assert one.first_rows == 256


def test_a_dictionary_is_found_where_its_offset_is_not_written() -> None:
    """As of Spark before 3.2: the offset of the first data page is the dictionary's."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"text": repeated(["a" * WIDE_BYTES], 60_000)}), sink)
    source = pa.BufferReader(sink.getvalue())
    group = Footer.from_end(read_end(source)).row_groups[0]
    (chunk,) = group.chunks
    chunk.put_number(DATA_PAGE, chunk.required_number(DICTIONARY_PAGE))
    chunk.put_number(DICTIONARY_PAGE, 0)
    (one,) = plan_reads([group], Leaves((0,), (0,), ()), BATCH_ROWS, source.read_at, range(1))
    assert BATCH_BYTES * 0.99 < one.most_rows * WIDE_BYTES <= BATCH_BYTES
    assert one.first_rows == one.most_rows


def test_what_values_have_in_common_with_those_before_them_is_no_measure() -> None:
    table = pa.table({"text": ["a" * WIDE_BYTES] * 1000})
    (one,) = found(table, use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY"})
    assert one.first_rows == 256


def test_pages_without_a_dictionary_are_believed() -> None:
    table = pa.table({"text": ["a" * 1000] * 30_000})
    (one,) = found(table, use_dictionary=False)
    assert one.first_rows == one.most_rows
    assert BATCH_BYTES * 0.95 < one.most_rows * 1000 <= BATCH_BYTES


def test_runs_of_numbers_count_as_so_many_numbers() -> None:
    table = pa.table({"list": pa.array([[0] * 1000] * 10_000, pa.list_(pa.int64()))})
    (one,) = found(table)
    assert BATCH_BYTES * 0.95 < one.most_rows * 1000 * 8 <= BATCH_BYTES


def test_row_groups_are_read_together_until_they_are_large() -> None:
    narrow, wide = ["x"] * 3000, ["y" * 20_000] * 3000
    table = pa.table({"text": [*narrow, *wide, *narrow]})
    first, *middle, last = found(table, row_group_size=1000, use_dictionary=False)
    assert [step.row_groups for step in (first, *middle, last)] == [
        (0, 1, 2),
        (3,),
        (4,),
        (5,),
        (6, 7, 8),
    ]
    assert first.most_rows == last.most_rows == BATCH_ROWS
    assert all(step.most_rows * 20_000 <= BATCH_BYTES for step in middle)
    # The width of a column that is not read does not count.
    both = table.append_column("number", pa.array(range(9000)))
    (one,) = found(both, row_group_size=1000, names=["number"], use_dictionary=False)
    assert (one.row_groups, one.num_rows, one.most_rows) == (tuple(range(9)), 9000, BATCH_ROWS)


def test_many_small_row_groups_of_wide_values_are_not_taken_for_small() -> None:
    table = pa.table({"text": repeated(["a" * WIDE_BYTES, "b" * WIDE_BYTES], 40_000)})
    parts = found(table, row_group_size=100)
    assert [number for part in parts for number in part.row_groups] == list(range(400))
    assert all(part.most_rows * WIDE_BYTES <= BATCH_BYTES for part in parts)
    assert len(parts) < 200, "some of them are read together all the same"
    narrow = pa.table({"text": repeated(["a", "b" * 40], 40_000), "number": range(40_000)})
    (one,) = found(narrow, row_group_size=100)
    assert one.first_rows == BATCH_ROWS


def test_a_file_without_rows_has_nothing_to_read() -> None:
    assert sum(step.num_rows for step in found(pa.table({"text": pa.array([], pa.string())}))) == 0


def test_leaves_are_those_of_the_asked_columns_and_names_may_have_dots() -> None:
    struct = pa.array([{"b": "x", "c": [1]}])
    table = pa.table({"a": struct, "a.b": pa.array([1]), "ab": ["x"], "d.e": struct})
    sink = io.BytesIO()
    pq.write_table(table, sink)
    schema = pq.ParquetFile(sink).schema
    assert Leaves.of(schema, {"ab"}) == Leaves((3,), (3,), ())
    assert Leaves.of(schema, {"d.e"}) == Leaves((4, 5), (4,), (5,))
    assert Leaves.of(schema, set()) == Leaves((), (), ())


def test_the_next_batch_has_fewer_rows_after_a_wide_one_and_slowly_more_after_narrow_ones() -> None:
    step = ReadStep((0,), 1 << 20, 256, 5000)

    def after(*rows_and_bytes: tuple[int, int]) -> int:
        texts = [text for rows, width in rows_and_bytes for text in ["x" * width] * rows]
        return step.rows_after(pa.record_batch({"text": texts}))

    assert after((256, 1)) == 1024
    assert after((4000, 1)) == 5000
    assert 400 < after((1000, 40_000)) < 420
    assert after((2, 20 << 20)) == 1
    # Sorted rows: those that come are like the last.
    assert 400 < after((3000, 1), (64, 40_000)) < 420
