"""The tables of the optimize benchmark: made once, kept for the next run, and linked for every contender."""

from __future__ import annotations

import decimal
import json
import os
import shutil
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import snapshot_tables

from delta_log import Table
from delta_log.arrow.row_hash import RowHash
from delta_log.data.deletion_vector import write_deletion_vectors
from delta_log.data.row_bitmap import RowBitmap

ROWS_OF_A_FILE = 4_000
#: Makes files of 0.57 MB.
_NARROW_ROWS = 22_000
#: Makes files of 0.85 MB.
_EVENT_ROWS = 12_000
#: Rows that files draw theirs from; much more than a row group holds would change nothing.
_POOL_ROWS = 200_000
_WORDS = ["amber", "birch", "cedar", "delta", "ember", "fjord", "grove", "heath", "inlet", "jetty"]
_CODEC = {"delta.parquet.compression.codec": "snappy"}
_FEATURES = ["deletionVectors"]
_PURGED_SHARE = 0.1


def mixed(table: Path, files: int, rows: int = ROWS_OF_A_FILE) -> Path:
    """So many files of so many rows in one commit: 32 columns of mixed types, about 1.1 MB for 4,000 rows."""
    if table.exists():
        return table
    pool = _pool(np.random.default_rng(1))
    return _made(table, pool.schema, files, lambda draft, number: _write_file(draft, pool, number, rows))


def narrow(table: Path, files: int, rows: int = _NARROW_ROWS) -> Path:
    """So many files of so many rows in one commit: 5 columns, about 0.57 MB for 22,000 rows."""
    if table.exists():
        return table
    schema = _narrow_part(0, 0).schema
    return _made(
        table,
        schema,
        files,
        lambda draft, number: _write(draft, _narrow_part(number, rows), number, number * rows),
    )


def events(table: Path, files: int, rows: int = _EVENT_ROWS) -> Path:
    """So many files of so many rows in one commit: 8 columns, of which only two have values that repeat; 0.85 MB for 12,000 rows."""
    if table.exists():
        return table
    return _made(
        table,
        _events_part(0, 1).schema,
        files,
        lambda draft, number: _write(draft, _events_part(number, rows), number, number * rows),
    )


def _made(table: Path, schema: pa.Schema, files: int, write: Callable[[Path, int], dict[str, Any]]) -> Path:
    draft = table.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    (draft / "_delta_log").mkdir(parents=True)
    with ThreadPoolExecutor(2) as threads:
        adds = list(threads.map(lambda number: write(draft, number), range(files)))
    _commit(draft, 0, [*_header(schema), *({"add": add} for add in adds)])
    draft.rename(table)
    return table


def with_deletion_vectors(source: Path, table: Path, every: int = 1) -> Path:
    """The same table with a tenth of the rows of some files deleted by a vector, all vectors in one file.

    :param every: distance between two files with a vector: 1: every file has one, 20: each twentieth file.
    """
    if table.exists():
        return table
    draft = linked(source, table.with_suffix(".draft"))
    opened = Table(str(draft))
    files = opened.snapshot().files(["path", "size", "stats", "modification_time"]).to_pylist()[::every]
    random = np.random.default_rng(2)
    bitmaps = []
    for file in files:
        count = json.loads(file["stats"])["numRecords"]
        chosen = random.choice(count, int(count * _PURGED_SHARE), replace=False)
        bitmaps.append(RowBitmap(np.sort(chosen).tolist()))
    vectors = write_deletion_vectors(opened.storage, bitmaps, uuid.UUID(int=5))
    actions: list[dict[str, Any]] = []
    for file, vector in zip(files, vectors, strict=True):
        common = {"path": file["path"], "size": file["size"], "partitionValues": {}, "dataChange": True}
        stats = json.dumps({**json.loads(file["stats"]), "tightBounds": False})
        actions.append({"remove": {**common, "deletionTimestamp": 1, "extendedFileMetadata": True}})
        actions.append(
            {
                "add": {
                    **common,
                    "modificationTime": file["modification_time"],
                    "stats": stats,
                    "deletionVector": msgspec.to_builtins(vector),
                }
            }
        )
    _commit(draft, 1, actions)
    draft.rename(table)
    return table


def replace_all(table: Path, old: list[str], new: Path, rows: int) -> None:
    """The next commit: one file in the place of others."""
    version = len(list((table / "_delta_log").glob("*.json")))
    common = {"dataChange": False, "partitionValues": {}}
    add = {"path": new.name, "size": new.stat().st_size, "modificationTime": 1_700_000_000_000}
    stats = json.dumps({"numRecords": rows})
    removes = [{"remove": {"path": path, "deletionTimestamp": 1, **common}} for path in old]
    _commit(table, version, [*removes, {"add": {**add, **common, "stats": stats}}])


def multiplied(source: Path, table: Path, times: int) -> Path:
    """A table with each file so many times, under other names."""
    if table.exists():
        return table
    draft = table.with_suffix(".draft")
    shutil.rmtree(draft, ignore_errors=True)
    (draft / "_delta_log").mkdir(parents=True)
    lines = [json.loads(line) for line in (source / "_delta_log" / f"{0:020d}.json").read_text().splitlines()]
    actions = [line for line in lines if "protocol" in line or "metaData" in line]
    for line in lines:
        for number in range(times) if "add" in line else ():
            name = f"{number}-{line['add']['path']}"
            os.link(source / line["add"]["path"], draft / name)
            actions.append({"add": {**line["add"], "path": name}})
    _commit(draft, 0, actions)
    draft.rename(table)
    return table


def clustered(source: Path, table: Path, columns: list[str]) -> Path:
    """The same table, clustered by some columns, with files that are in no cube yet."""
    if table.exists():
        return table
    draft = linked(source, table.with_suffix(".draft"))
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": _FEATURES,
        "writerFeatures": [*_FEATURES, "clustering", "domainMetadata"],
    }
    by = json.dumps({"clusteringColumns": [[name] for name in columns]})
    domain = {"domain": "delta.clustering", "configuration": by, "removed": False}
    _commit(draft, 1, [{"protocol": protocol}, {"domainMetadata": domain}])
    draft.rename(table)
    return table


def linked(table: Path, copy: Path) -> Path:
    """Makes a copy for one run. The data files are shared hard links, which no contender changes."""
    shutil.rmtree(copy, ignore_errors=True)
    for directory, _, names in os.walk(table):
        target = copy / Path(directory).relative_to(table)
        target.mkdir(parents=True)
        for name in names:
            os.link(Path(directory) / name, target / name)
    return copy


def partitioned(table: Path, files: int, partitions: int) -> Path:
    """A checkpoint of so many files of 1 MB in so many partitions; there are no data files."""
    log = table / "_delta_log"
    if (log / "_last_checkpoint").exists():
        return table
    os.makedirs(log, exist_ok=True)
    snapshot_tables._write(log, 0, [snapshot_tables._PROTOCOL, _partitioned_metadata()])
    _many_adds(log / f"{0:020d}.checkpoint.parquet", files, partitions)
    (log / "_last_checkpoint").write_text(json.dumps({"version": 0, "size": files + 2}))
    return table


def checksum(table: Path) -> dict[str, Any]:
    """Returns a value that is equal for tables with the same rows in any order.

    All columns of every sixteenth row by a checksum, of all rows the nulls of each column and what can be added up.
    """
    sample, rows = RowHash(), 0
    totals: dict[str, int] = {}
    for batch in Table(str(table)).snapshot().scan():
        rows += batch.num_rows
        sequence = batch.column("sequence").to_numpy()
        sample = sample.plus(RowHash.of(batch.take(pa.array(np.flatnonzero(sequence % 16 == 0)))))
        for name, values in zip(batch.schema.names, batch.columns, strict=True):
            totals[name] = (totals.get(name, 0) + _total(values)) % 2**64
    return {"rows": rows, "sampled_rows": sample.rows, "checksum": sample.total, "totals": totals}


def _total(values: pa.Array) -> int:
    total = 1_000_003 * int(values.null_count)
    if pa.types.is_string(values.type) or pa.types.is_binary(values.type) or pa.types.is_list(values.type):
        length = pc.list_value_length if pa.types.is_list(values.type) else pc.binary_length
        return total + int(pc.sum(length(values)).as_py() or 0)
    if pa.types.is_temporal(values.type):
        values = values.cast(pa.int32() if pa.types.is_date(values.type) else pa.int64())
    if pa.types.is_boolean(values.type):
        values = values.cast(pa.uint8())
    if pa.types.is_integer(values.type):
        return total + int(values.fill_null(0).to_numpy(zero_copy_only=False).astype(np.uint64).sum())
    return total


# -- the mixed table -----------------------------------------------------------------------------------------


def _pool(random: np.random.Generator) -> pa.Table:
    """32 columns, half of them strings, times and decimals; one in twelve values is null in every third column."""
    n = _POOL_ROWS
    day = 86_400_000_000

    def texts(parts: int, kinds: int) -> pa.Array:
        words = np.array([f"{_WORDS[i % 10]}-{i}" for i in range(kinds)])
        joined = words[random.integers(0, kinds, n)]
        for _ in range(parts - 1):
            joined = np.char.add(np.char.add(joined, " "), words[random.integers(0, kinds, n)])
        return pa.array(joined.tolist(), pa.string())

    def identifiers() -> pa.Array:
        return pa.array([number.tobytes().hex() for number in random.integers(0, 2**63, (n, 2))], pa.string())

    def longs(high: int) -> pa.Array:
        return pa.array(random.integers(0, high, n))

    def moments(unit: int, zone: str | None) -> pa.Array:
        values = random.integers(19_000 * day // unit, 20_000 * day // unit, n) * unit
        return pa.array(values).cast(pa.timestamp("us", zone))

    def decimals(precision: int, scale: int) -> pa.Array:
        cents = pa.array(random.integers(0, 10**9, n)).cast(pa.decimal128(19, 0))
        hundredth = pa.scalar(decimal.Decimal("0.01"))
        return pc.multiply(cents, hundredth).cast(pa.decimal128(precision, scale))

    columns: dict[str, pa.Array] = {
        "id": longs(2**62),
        "account": longs(1_000_000),
        "quantity": longs(100).cast(pa.int32()),
        "status_code": longs(8).cast(pa.int16()),
        "level": longs(5).cast(pa.int8()),
        "sequence": pa.array(np.arange(n)),
        "price": pa.array(random.random(n) * 1000),
        "weight": pa.array(np.round(random.random(n) * 100, 2)),
        "score": pa.array(random.random(n).astype(np.float32)),
        "ratio": pa.array(random.normal(size=n)),
        "active": pa.array(random.random(n) < 0.5),
        "flagged": pa.array(random.random(n) < 0.01),
        "total": decimals(12, 2),
        "balance": decimals(28, 6),
        "day": pa.array(random.integers(19_000, 20_000, n).astype(np.int32)).cast(pa.date32()),
        "created": moments(1, "UTC"),
        "updated": moments(1000, "UTC"),
        "hour": moments(3_600_000_000, "UTC"),
        "country": texts(1, 40),
        "city": texts(1, 3_000),
        "category": texts(1, 12),
        "channel": texts(1, 5),
        "campaign": texts(2, 20),
        "user_agent": texts(3, 30),
        "comment": texts(5, 1000),
        "session": identifiers(),
        "token": identifiers(),
        "payload": identifiers().cast(pa.binary()),
        "reason": texts(1, 100),
    }
    for number, (name, values) in enumerate(columns.items()):
        if number % 3 == 2:
            columns[name] = _with_nulls(values, random)
    point = pa.StructArray.from_arrays(
        [pa.array(random.random(n)), pa.array(random.random(n)), texts(1, 20)], ["x", "y", "unit"]
    )
    lengths = random.integers(0, 4, n)
    offsets = pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32))
    count = int(lengths.sum())
    columns["point"] = point
    columns["tags"] = pa.ListArray.from_arrays(offsets, pa.array(_words(random, count), pa.string()))
    columns["limits"] = pa.ListArray.from_arrays(offsets, pa.array(random.integers(0, 10**6, count)))
    return pa.table(columns)


def _with_nulls(values: pa.Array, random: np.random.Generator) -> pa.Array:
    return pc.if_else(pa.array(random.random(len(values)) < 1 / 12), pa.scalar(None, values.type), values)


def _words(random: np.random.Generator, count: int) -> list[str]:
    chosen: list[str] = np.array(_WORDS)[random.integers(0, len(_WORDS), count)].tolist()
    return chosen


def _write_file(table: Path, pool: pa.Table, number: int, rows: int) -> dict[str, Any]:
    random = np.random.default_rng(number)
    part = pool.take(pa.array(random.integers(0, pool.num_rows, rows)))
    first = number * rows
    for name, values in (
        ("id", random.integers(0, 2**62, rows)),
        ("sequence", np.arange(first, first + rows)),
        ("price", random.random(rows) * 1000),
    ):
        part = part.set_column(part.schema.get_field_index(name), name, pa.array(values))
    return _write(table, part, number, first)


def _narrow_part(number: int, rows: int) -> pa.Table:
    random = np.random.default_rng(number)
    moments = (
        1_700_000_000_000_000 + number * 3_600_000_000 + np.sort(random.integers(0, 3_600_000_000, rows))
    )
    words = np.array([f"{_WORDS[kind % 10]}-{kind}" for kind in range(100)])
    return pa.table(
        {
            "sequence": pa.array(np.arange(number * rows, (number + 1) * rows)),
            "price": pa.array(random.random(rows) * 1000),
            "account": pa.array(random.integers(0, 1_000, rows)),
            "category": pa.array(words[random.integers(0, 100, rows)].tolist(), pa.string()),
            "created": pa.array(moments).cast(pa.timestamp("us", "UTC")),
        }
    )


def _events_part(number: int, rows: int) -> pa.Table:
    random = np.random.default_rng(number)
    hour = 3_600_000_000
    moments = 1_700_000_000_000_000 + number * hour + np.sort(random.choice(hour, rows, replace=False))
    devices = np.array([f"device-{kind:04d}" for kind in range(500)])
    kinds = np.array(["click", "view", "buy", "leave"])
    return pa.table(
        {
            "event_id": pa.array([pair.tobytes().hex() for pair in random.integers(0, 2**63, (rows, 2))]),
            "at": pa.array(moments).cast(pa.timestamp("us", "UTC")),
            "device": pa.array(devices[random.integers(0, 500, rows)].tolist()),
            "kind": pa.array(kinds[random.integers(0, 4, rows)].tolist()),
            "value": pa.array(random.random(rows) * 100),
            "latitude": pa.array(random.random(rows) * 90),
            "longitude": pa.array(random.random(rows) * 180),
            "sequence": pa.array(np.arange(number * rows, (number + 1) * rows)),
        }
    )


def _write(table: Path, part: pa.Table, number: int, first: int) -> dict[str, Any]:
    """Write a file. Its rows are numbered from ``first``."""
    rows = part.num_rows
    name = f"part-{number:05d}-{uuid.UUID(int=number)}-c000.snappy.parquet"
    pq.write_table(part, table / name, compression="snappy", store_schema=False)
    stats = {
        "numRecords": rows,
        "minValues": {"sequence": first},
        "maxValues": {"sequence": first + rows - 1},
        "nullCount": {"sequence": 0},
    }
    return {
        "path": name,
        "partitionValues": {},
        "size": (table / name).stat().st_size,
        "modificationTime": 1_700_000_000_000 + number,
        "dataChange": True,
        "stats": json.dumps(stats),
    }


_NAMES = {
    pa.int8(): "byte",
    pa.int16(): "short",
    pa.int32(): "integer",
    pa.int64(): "long",
    pa.float32(): "float",
    pa.float64(): "double",
    pa.bool_(): "boolean",
    pa.date32(): "date",
    pa.string(): "string",
    pa.binary(): "binary",
    pa.timestamp("us", "UTC"): "timestamp",
}


def _type(kind: pa.DataType) -> Any:
    if pa.types.is_decimal(kind):
        return f"decimal({kind.precision},{kind.scale})"
    if pa.types.is_list(kind):
        return {"type": "array", "elementType": _type(kind.value_type), "containsNull": True}
    if pa.types.is_struct(kind):
        return {"type": "struct", "fields": [_field(member) for member in kind]}
    return _NAMES[kind]


def _field(field: pa.Field) -> dict[str, Any]:
    return {"name": field.name, "type": _type(field.type), "nullable": True, "metadata": {}}


def _header(schema: pa.Schema) -> list[dict[str, Any]]:
    text = json.dumps({"type": "struct", "fields": [_field(field) for field in schema]})
    metadata = {
        "id": str(uuid.UUID(int=9)),
        "format": {"provider": "parquet", "options": {}},
        "schemaString": text,
        "partitionColumns": [],
        "configuration": {**_CODEC, "delta.enableDeletionVectors": "true"},
        "createdTime": 1_700_000_000_000,
    }
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": _FEATURES,
        "writerFeatures": _FEATURES,
    }
    return [{"protocol": protocol}, {"metaData": metadata}]


def _commit(table: Path, version: int, actions: list[dict[str, Any]]) -> None:
    info = {"commitInfo": {"timestamp": 1_700_000_000_000 + version, "operation": "WRITE"}}
    path = table / "_delta_log" / f"{version:020d}.json"
    path.write_text("".join(json.dumps(action) + "\n" for action in [info, *actions]))


# -- the table of many files ---------------------------------------------------------------------------------


def _partitioned_metadata() -> dict[str, Any]:
    schema = json.dumps(
        {
            "type": "struct",
            "fields": [
                {"name": name, "type": kind, "nullable": True, "metadata": {}}
                for name, kind in (
                    ("id", "long"),
                    ("amount", "double"),
                    ("tenant", "integer"),
                    ("day", "date"),
                )
            ],
        }
    )
    metadata = snapshot_tables._METADATA["metaData"]
    return {"metaData": {**metadata, "schemaString": schema, "partitionColumns": ["tenant", "day"]}}


def _many_adds(path: Path, files: int, partitions: int) -> None:
    strings = pa.map_(pa.string(), pa.string())
    add = pa.struct(
        [
            ("path", pa.string()),
            ("partitionValues", strings),
            ("size", pa.int64()),
            ("modificationTime", pa.int64()),
            ("dataChange", pa.bool_()),
            ("stats", pa.string()),
        ]
    )
    head = snapshot_tables._PROTOCOL["protocol"], _partitioned_metadata()["metaData"]
    rows: list[dict[str, Any]] = [{"protocol": head[0]}, {"metaData": _as_map(head[1])}]
    strings_of = pa.struct([("provider", pa.string()), ("options", strings)])
    metadata = pa.struct(
        [
            ("id", pa.string()),
            ("format", strings_of),
            ("schemaString", pa.string()),
            ("partitionColumns", pa.list_(pa.string())),
            ("configuration", strings),
            ("createdTime", pa.int64()),
        ]
    )
    protocol = pa.struct([("minReaderVersion", pa.int32()), ("minWriterVersion", pa.int32())])
    schema = pa.schema([("protocol", protocol), ("metaData", metadata), ("add", add)])
    with pq.ParquetWriter(path, schema, compression="snappy") as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema))
        for start in range(0, files, 50_000):
            chunk = [{"add": _add(n, partitions)} for n in range(start, min(files, start + 50_000))]
            writer.write_table(pa.Table.from_pylist(chunk, schema))


def _as_map(metadata: dict[str, Any]) -> dict[str, Any]:
    options = {**metadata["format"], "options": []}
    return {**metadata, "format": options, "configuration": []}


def _add(number: int, partitions: int) -> dict[str, Any]:
    place = number % partitions
    tenant, day = str(place // 28), f"2024-02-{place % 28 + 1:02d}"
    stats = {
        "numRecords": 1000,
        "minValues": {"id": number, "amount": 0.5},
        "maxValues": {"id": number + 999, "amount": 99.5},
        "nullCount": {"id": 0, "amount": 0},
    }
    return {
        "path": f"tenant={tenant}/day={day}/part-00000-{uuid.UUID(int=number)}-c000.snappy.parquet",
        "partitionValues": [("tenant", tenant), ("day", day)],
        "size": 1_000_000 + number % 997,
        "modificationTime": 1_700_000_000_000 + number,
        "dataChange": True,
        "stats": json.dumps(stats),
    }
