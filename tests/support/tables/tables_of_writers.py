"""Random tables whose data files pyarrow, delta-rs, DuckDB, Polars and Spark have written, alone or mixed.

Columns are a random choice of types; values have stretches of nulls, repeats, NaN, infinities and both zeros. Writers get random
encodings, page sizes, statistics and Bloom filters. Row ids are unique, so that rows can be compared in their order.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import BloomFilterProperties, ColumnProperties, DeltaTable, WriterProperties
from deltalake.transaction import AddAction

_DAY, _TIME = date(2020, 1, 1), datetime(2020, 1, 1, tzinfo=timezone.utc)
_FLOATS = (0.0, -0.0, math.nan, math.inf, -math.inf, 1.5, -1e300, 5e-324)

#: Makes a value from a random source and the number of its row.
_Value = Callable[[random.Random, int], Any]
COLUMNS: dict[str, tuple[pa.DataType, _Value]] = {
    "n": (pa.int64(), lambda r, n: n * 7919 % 100_003),
    "small": (pa.int32(), lambda r, n: r.randrange(-3, 3)),
    "byte": (pa.int8(), lambda r, n: r.randrange(-128, 128)),
    "x": (pa.float64(), lambda r, n: r.choice(_FLOATS) if r.random() < 0.05 else n / 4),
    "y": (pa.float32(), lambda r, n: r.choice((0.0, -0.0, 2.5, float(n % 97)))),
    "flag": (pa.bool_(), lambda r, n: r.random() < 0.5),
    "word": (pa.string(), lambda r, n: f"word {r.randrange(9)}"),
    "text": (pa.string(), lambda r, n: f"row {n} of {'ab' * (n % 7)}"),
    "long": (pa.string(), lambda r, n: "ü" * (n % 90)),
    "raw": (pa.binary(), lambda r, n: bytes([n % 256, 255, 0][: n % 4])),
    "day": (pa.date32(), lambda r, n: _DAY + timedelta(n % 500)),
    "time": (pa.timestamp("us", "UTC"), lambda r, n: _TIME + timedelta(microseconds=n * 1_000_003)),
    "price": (pa.decimal128(9, 2), lambda r, n: Decimal(n % 1000 - 500) / 100),
    "amount": (pa.decimal128(38, 10), lambda r, n: Decimal(n - 99) * Decimal("1234567.0000000001")),
    "list": (pa.list_(pa.int64()), lambda r, n: [None if r.random() < 0.3 else n for _ in range(n % 3)]),
    "nulls": (pa.list_(pa.float64()), lambda r, n: [n / 2, None] if n % 5 else []),
    "words": (pa.list_(pa.string()), lambda r, n: [f"w{n % 4}"] * (n % 2)),
    "point": (
        pa.struct({"a": pa.int64(), "b": pa.string()}),
        lambda r, n: {"a": n, "b": None if n % 3 else "b"},
    ),
    "deep": (
        pa.list_(pa.struct({"c": pa.float64(), "d": pa.list_(pa.bool_())})),
        lambda r, n: [{"c": n / 8, "d": [True, None][: n % 3]}] * (n % 2),
    ),
    "map": (pa.map_(pa.string(), pa.int64()), lambda r, n: [(f"k{n % 5}", n), ("z", None)][: n % 3]),
}
#: How often each writer is chosen. A file by Spark takes as long as twenty others.
WRITERS = {"pyarrow": 1.0, "delta-rs": 1.0, "DuckDB": 1.0, "Polars": 1.0, "Spark": 0.2}


def chosen_columns(rng: random.Random, writers: Sequence[str]) -> list[str]:
    """Choose columns that all of the writers know."""
    known = [name for name in COLUMNS if name != "map" or "Polars" not in writers]
    return rng.sample(known, rng.randrange(1, min(9, len(known))))


def random_rows(rng: random.Random, columns: Sequence[str], first: int, count: int) -> pa.Table:
    """Return rows with the ids from a number on. Each column is null for a stretch, here and there, never or always."""
    arrays, schema = [pa.array(range(first, first + count), pa.int64())], [pa.field("id", pa.int64())]
    for name in columns:
        kind, value = COLUMNS[name]
        is_null = _nulls(rng, count)
        values = [None if is_null(n) else value(rng, first + n) for n in range(count)]
        arrays.append(pa.array(values, kind))
        schema.append(pa.field(name, kind))
    return pa.Table.from_arrays(arrays, schema=pa.schema(schema))


def _nulls(rng: random.Random, count: int) -> Callable[[int], bool]:
    start, share = rng.randrange(count + 1), rng.random()
    stop = rng.randrange(start, count + 1)
    return rng.choice(
        (
            lambda n: False,
            lambda n: start <= n < stop,
            lambda n: not start <= n < stop,
            lambda n: rng.random() < share,
            lambda n: n % 2 == 1,
            lambda n: True,
        )
    )


def make_table(
    table: Path,
    rng: random.Random,
    files: Sequence[tuple[str, pa.Table]],
    by_spark: Mapping[int, Path],
    properties: Mapping[str, str] | None = None,
) -> None:
    """Write a table, each file by the writer that is named with its rows.

    :param by_spark: the files that Spark has written already, by their numbers.
    """
    schema = files[0][1].schema
    created = DeltaTable.create(str(table), schema, configuration=dict(properties or {}))
    for number, (writer, rows) in enumerate(files):
        if writer == "delta-rs":
            properties_of_writer = delta_rs_properties(rng, schema)
            deltalake.write_deltalake(str(table), rows, mode="append", writer_properties=properties_of_writer)
            continue
        path = table / f"file-{number}-by-{writer}.parquet"
        if writer == "Spark":
            path.write_bytes(by_spark[number].read_bytes())
        else:
            _WRITE[writer](path, rng, rows)
        added = AddAction(path.name, path.stat().st_size, {}, 1_700_000_000_000, True, "{}")
        created = DeltaTable(str(table))
        created.create_write_transaction([added], "append", schema)


def delta_rs_properties(rng: random.Random, schema: pa.Schema) -> WriterProperties:
    def column(kind: pa.DataType | None) -> ColumnProperties:
        encodings: list[Any] = [None, None, "PLAIN"]
        if kind is not None and (pa.types.is_int32(kind) or pa.types.is_int64(kind)):
            encodings.append("DELTA_BINARY_PACKED")
        if kind is not None and (pa.types.is_string(kind) or pa.types.is_binary(kind)):
            encodings += ["DELTA_LENGTH_BYTE_ARRAY", "DELTA_BYTE_ARRAY"]
        encoding = rng.choice(encodings)
        return ColumnProperties(
            dictionary_enabled=rng.choice((None, True, False)) if encoding is None else False,
            statistics_enabled=rng.choice((None, "PAGE", "CHUNK", "NONE")),
            encoding=encoding,
            bloom_filter_properties=BloomFilterProperties(rng.random() < 0.3, 0.05, 100),
        )

    return WriterProperties(
        data_page_size_limit=rng.choice((None, 64, 1024)),
        data_page_row_count_limit=rng.choice((None, 3, 50)),
        write_batch_size=rng.choice((None, 7)),
        max_row_group_size=rng.choice((None, 11, 200)),
        compression=rng.choice((None, "SNAPPY", "ZSTD", "UNCOMPRESSED", "GZIP")),
        default_column_properties=column(None),
        column_properties={
            field.name: column(field.type) for field in schema if not pa.types.is_nested(field.type)
        },
    )


def _by_pyarrow(path: Path, rng: random.Random, rows: pa.Table) -> None:
    leaves = [field for field in rows.schema if not pa.types.is_nested(field.type)]
    encodings: dict[str, Any] = {}
    for field in leaves:
        if pa.types.is_integer(field.type) and field.type.bit_width >= 32:
            encodings[field.name] = rng.choice(("DELTA_BINARY_PACKED", "BYTE_STREAM_SPLIT", "PLAIN"))
        elif pa.types.is_string(field.type):
            encodings[field.name] = rng.choice(("DELTA_BYTE_ARRAY", "DELTA_LENGTH_BYTE_ARRAY", "PLAIN"))
        elif pa.types.is_floating(field.type):
            encodings[field.name] = rng.choice(("BYTE_STREAM_SPLIT", "PLAIN"))
    with_encodings = rng.random() < 0.4
    filtered = [field.name for field in leaves if not pa.types.is_boolean(field.type) and rng.random() < 0.4]
    pq.write_table(
        rows,
        path,
        row_group_size=rng.choice((None, 9, 150)),
        compression=rng.choice(("snappy", "zstd", "none", "gzip", "brotli")),
        use_dictionary=False if with_encodings else rng.choice((True, False)),
        column_encoding=encodings if with_encodings else None,
        data_page_size=rng.choice((None, 64, 1024)),
        data_page_version=rng.choice(("1.0", "2.0")),
        write_batch_size=rng.choice((None, 5)),
        write_statistics=rng.random() < 0.8,
        write_page_index=rng.random() < 0.6,
        write_page_checksum=rng.random() < 0.3,
        store_schema=rng.random() < 0.7,
        store_decimal_as_integer=rng.random() < 0.5,
        bloom_filter_options={name: {"ndv": 100, "fpp": 0.05} for name in filtered} or None,
    )


def _by_duckdb(path: Path, rng: random.Random, rows: pa.Table) -> None:
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    connection.register("rows", rows)
    codec, group = rng.choice(("snappy", "zstd", "uncompressed", "gzip")), rng.choice((2048, 122_880))
    version = rng.choice(("V1", "V2"))
    options = f"FORMAT parquet, COMPRESSION {codec}, ROW_GROUP_SIZE {group}, PARQUET_VERSION {version}"
    connection.execute(f"COPY (SELECT * FROM rows) TO '{path}' ({options})")


def _by_polars(path: Path, rng: random.Random, rows: pa.Table) -> None:
    found = pl.from_arrow(rows)
    assert isinstance(found, pl.DataFrame)
    found.write_parquet(
        path,
        compression=rng.choice(("snappy", "zstd", "uncompressed", "gzip", "lz4")),
        statistics=rng.choice((True, False, "full")),
        row_group_size=rng.choice((None, 13, 300)),
        data_page_size=rng.choice((None, 64, 1024)),
    )


_WRITE: dict[str, Callable[[Path, random.Random, pa.Table], None]] = {
    "pyarrow": _by_pyarrow,
    "DuckDB": _by_duckdb,
    "Polars": _by_polars,
}
