from __future__ import annotations

import io
import struct
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from msgspec.structs import replace
from tests.support.checks import parquet_structs as parquet
from tests.support.checks.parquet_edits import edited, footer_bytes
from tests.support.checks.thrift_struct import ThriftStruct

from delta_log.arrow.int96 import Int96Check
from delta_log.data.data_file import DataFile
from delta_log.errors import UnsupportedFeature
from delta_log.storage.local.local_storage import LocalStorage
from delta_log.table_config.schema import parse_schema

SCHEMA = (
    '{"type": "struct", "fields": [{"name": "t", "type": "timestamp", "nullable": true, "metadata": {}}]}'
)
DAY = 86_400_000_000
FIRST = -210_866_716_800_000_000
PHYSICAL_TYPE_INT96, SCHEMA_FIELD = 3, 2


def as_spark_writes_it(microseconds: int) -> bytes:
    day, rest = divmod(microseconds, DAY)
    return struct.pack("<qi", rest * 1000, day + 2_440_588)


def int96_file(values: list[int | None]) -> bytes:
    """Twelve bytes a value, and a footer that calls them INT96; Arrow itself writes years of nanoseconds only."""
    stored = [None if value is None else as_spark_writes_it(value) for value in values]
    out = io.BytesIO()
    pq.write_table(
        pa.table({"t": pa.array(stored, pa.binary(12))}),
        out,
        use_dictionary=False,
        write_statistics=False,
        store_schema=False,
    )
    before, footer = parquet.split_footer(out.getvalue())

    def as_int96(_group: int, _leaf: int, chunk: ThriftStruct) -> ThriftStruct:
        meta = parquet.chunk_meta(chunk).replacing(parquet.PHYSICAL_TYPE, PHYSICAL_TYPE_INT96)
        return chunk.replacing(parquet.META_DATA, meta)

    schema = footer.get(SCHEMA_FIELD)
    root, leaf = schema.items
    leaf = leaf.replacing(1, PHYSICAL_TYPE_INT96).without(2)
    footer = edited(footer, as_int96).replacing(SCHEMA_FIELD, replace(schema, items=(root, leaf)))
    return before + footer_bytes(footer)


def read(directory: Path, values: list[int | None]) -> list[int | None]:
    (directory / "f.parquet").write_bytes(int96_file(values))
    file = DataFile(LocalStorage(str(directory)), "f.parquet")
    arrays = [rows.arrays[0] for rows in file.read(parse_schema(SCHEMA, mapped=False).fields)]
    found: list[int | None] = pa.chunked_array(arrays).cast(pa.int64()).to_pylist()
    return found


def test_timestamps_of_every_day_that_arrow_knows_are_read_as_they_are(tmp_path: Path) -> None:
    values = [0, None, 1, -1, FIRST, 253_402_300_800_000_000, 10**18, (1 << 63) - 1]
    assert read(tmp_path, values) == values


@pytest.mark.parametrize(
    "value", [FIRST - DAY - 1, -(10**18), -4 * 10**18, -(1 << 63)], ids=["day -1", "years", "more", "least"]
)
def test_a_timestamp_that_arrow_misreads_is_refused(tmp_path: Path, value: int) -> None:
    with pytest.raises(UnsupportedFeature, match="INT96 timestamps before 4713 BC.*holds one in t"):
        read(tmp_path, [0, value])


def test_a_chunk_that_contradicts_the_schema_does_not_end_the_process() -> None:
    """pyarrow ends it when it is asked for a chunk with more counts of levels than the schema has levels."""
    sink = io.BytesIO()
    pq.write_table(pa.table({"x": [1, None]}), sink, store_schema=False)
    optional, required = b"\x25\x02\x18\x01x", b"\x25\x00\x18\x01x"
    assert sink.getvalue().count(optional) == 1
    broken = io.BytesIO(sink.getvalue().replace(optional, required))
    assert Int96Check.paths_in(pq.ParquetFile(broken)) == ()
