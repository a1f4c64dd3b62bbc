"""Batches are of bearable size whatever an encoding makes of wide values, and no row is lost or moved."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from delta_log.data.data_file import DataFile
from delta_log.data.row_bitmap import RowBitmap
from delta_log.errors import UnsupportedFeature
from delta_log.table_config.schema import StructField, parse_schema
from delta_log.testing import MemoryStorage

WIDE_BYTES, WIDE_FILE_ROWS = 20_000, 8_000
#: The mean is half of it.
MOST_BYTES = 32 << 20
_STRING_MAP = {"type": "map", "keyType": "string", "valueType": "string", "valueContainsNull": True}
_STRING_STRUCT = {
    "type": "struct",
    "fields": [{"name": "m", "type": "string", "nullable": True, "metadata": {}}],
}
#: A type of the table, and how texts become an array of it.
OF_TEXTS: dict[str, tuple[Any, Any]] = {
    "flat": ("string", lambda texts: texts),
    "list": (
        {"type": "array", "elementType": "string", "containsNull": True},
        lambda texts: pa.ListArray.from_arrays(pa.array(range(len(texts) + 1), pa.int32()), texts),
    ),
    "struct": (_STRING_STRUCT, lambda texts: pa.StructArray.from_arrays([texts], ["m"])),
    "map value": (
        _STRING_MAP,
        lambda texts: pa.MapArray.from_arrays(
            pa.array(range(len(texts) + 1), pa.int32()), pa.array(["k"] * len(texts)), texts
        ),
    ),
}


def texts_of(array: pa.Array) -> pa.Array:
    """The texts of an array of any of these types."""
    if pa.types.is_struct(array.type):
        return array.field(0)
    if pa.types.is_map(array.type):
        first, *_, last = array.offsets.to_pylist()
        return array.items.slice(first, last - first)
    return array.flatten() if pa.types.is_list(array.type) else array


def wide_texts(indices: list[int], values: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(indices, pa.int32()), pa.array(values))


def file_of(array: pa.Array, **options: Any) -> MemoryStorage:
    """With the column ``x``."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": array}), sink, store_schema=False, **options)
    storage = MemoryStorage()
    storage.put("f.parquet", sink.getvalue())
    return storage


def column(kind: Any) -> tuple[StructField, ...]:
    field = {"name": "x", "type": kind, "nullable": True, "metadata": {}}
    return parse_schema(json.dumps({"type": "struct", "fields": [field]})).fields


def letters_and_largest_batch(
    storage: MemoryStorage, kind: Any, hidden: RowBitmap | None = None
) -> tuple[dict[int, str], int]:
    """The first letter of each row's text, by the row's position, and the bytes of the largest batch."""
    letters: dict[int, str] = {}
    largest = 0
    for rows in DataFile(storage, "f.parquet").read(column(kind), hidden, positions=True):
        assert rows.positions is not None
        (array,) = rows.arrays
        first = pc.utf8_slice_codeunits(texts_of(array), 0, 1).to_pylist()
        letters.update(zip(rows.positions.to_pylist(), first, strict=True))
        largest = max(largest, array.nbytes)
    assert list(letters) == sorted(letters)
    return letters, largest


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("shape", OF_TEXTS)
def test_batches_are_bounded_whatever_a_dictionary_holds(shape: str, late: bool) -> None:
    kind, nest = OF_TEXTS[shape]
    values = ["a" * WIDE_BYTES, "b" * WIDE_BYTES, "c"]
    narrow = WIDE_FILE_ROWS // 2 if late else 0
    indices = [2] * narrow + [row % 2 for row in range(WIDE_FILE_ROWS - narrow)]
    storage = file_of(nest(wide_texts(indices, values)), row_group_size=3000 if late else None)
    assert len(storage.read("f.parquet")) < WIDE_BYTES
    expected = {row: "abc"[index] for row, index in enumerate(indices)}
    letters, largest = letters_and_largest_batch(storage, kind)
    assert letters == expected
    assert largest <= MOST_BYTES
    hidden = range(0, WIDE_FILE_ROWS, 3)
    letters, largest = letters_and_largest_batch(storage, kind, RowBitmap(hidden))
    assert letters == {row: letter for row, letter in expected.items() if row not in hidden}
    assert largest <= MOST_BYTES


@pytest.mark.parametrize("shape", OF_TEXTS)
@pytest.mark.parametrize("encoding", ["PLAIN", "DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY"])
def test_batches_are_bounded_in_every_other_encoding(encoding: str, shape: str) -> None:
    kind, nest = OF_TEXTS[shape]
    expected = {row: "ab"[row % 2] for row in range(4_000)}
    texts = pa.array([letter * WIDE_BYTES for letter in expected.values()])
    storage = file_of(nest(texts), use_dictionary=False, column_encoding=encoding, compression="zstd")
    letters, largest = letters_and_largest_batch(storage, kind)
    assert letters == expected
    assert largest <= MOST_BYTES


def rare_and_wide(rows: int) -> list[str]:
    """Many short texts, and then some of one wide text: what a dictionary's mean says nothing of."""
    return [f"{row:08}" if row < rows * 3 // 4 else "w" * WIDE_BYTES for row in range(rows)]


@pytest.mark.parametrize("shape", ["list", "struct", "map value"])
def test_where_arrow_cannot_hold_a_batch_the_rows_go_on_in_smaller_ones(
    shape: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    kind, nest = OF_TEXTS[shape]
    texts, most_bytes = rare_and_wide(4_000), 4 << 20
    real = pq.ParquetFile.iter_batches

    def limited(file: pq.ParquetFile, *args: Any, **options: Any) -> Iterator[pa.RecordBatch]:
        for batch in real(file, *args, **options):
            # As Arrow says it of more than 2 GiB.
            if batch.nbytes > most_bytes:
                raise pa.ArrowNotImplementedError(
                    "Nested data conversions not implemented for chunked arrays"
                )
            yield batch

    monkeypatch.setattr(pq.ParquetFile, "iter_batches", limited)
    storage = file_of(nest(pa.array(texts)))
    letters, largest = letters_and_largest_batch(storage, kind)
    assert letters == {row: text[0] for row, text in enumerate(texts)}
    assert largest <= most_bytes
    # A single row that is too large stays what it is.
    most_bytes = WIDE_BYTES
    with pytest.raises(UnsupportedFeature, match="not implemented"):
        letters_and_largest_batch(storage, kind)


def test_after_a_batch_that_was_wider_than_expected_the_next_are_short() -> None:
    texts = rare_and_wide(24_000)
    storage = file_of(pa.array(texts))
    batches = [(rows.count, rows.arrays[0]) for rows in DataFile(storage, "f.parquet").read(column("string"))]
    assert [text for _, array in batches for text in array.to_pylist()] == texts
    assert sum(array.nbytes > MOST_BYTES for _, array in batches) == 1
    assert batches[0][0] == 4096, "the wide text is not known yet"
