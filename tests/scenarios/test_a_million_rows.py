"""A million rows of several types, some of them deleted: what small tables cannot show, many pages and row groups."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from tests.support.runs.maintenance_runs import run

from delta_log import Table
from delta_log.arrow.row_hash import RowHash
from delta_log.data.deletion_vector import write_deletion_vectors
from delta_log.data.row_bitmap import RowBitmap

ROWS = 1_000_000
#: Files of very different sizes, one of them without a row.
SIZES = (600_001, 1, 0, 250_000, 65_536, 65_537, 18_925)
TYPES = {"id": "long", "price": "double", "name": "string", "day": "date", "cents": "decimal(18,2)", "tags": {
    "type": "array", "elementType": "string", "containsNull": True}}  # fmt: skip


def columns(count: int, random: np.random.Generator) -> pa.Table:
    def some(values: pa.Array) -> pa.Array:
        return pc.if_else(pa.array(random.random(count) < 0.1), pa.scalar(None, values.type), values)

    prices = random.normal(size=count)
    prices[random.random(count) < 0.001] = np.inf
    names = pa.array([f"name-{n}" for n in range(2_000)] + ["é" * 40, "\U0010ffff" * 33, ""])
    lengths = random.integers(0, 3, count)
    ends = pa.array(np.append(0, np.cumsum(lengths)).astype(np.int32))
    words = names.take(pa.array(random.integers(0, 50, int(lengths.sum()))))
    return pa.table(
        {
            "id": pa.array(random.integers(-(1 << 63), (1 << 63) - 1, count)),
            "price": some(pa.array(prices)),
            "name": some(names.take(pa.array(random.integers(0, len(names), count)))),
            "day": some(
                pa.array(random.integers(-700_000, 2_900_000, count).astype(np.int32)).cast(pa.date32())
            ),
            "cents": some(
                pa.array(random.integers(-(10**9), 10**9, count).astype(np.int32)).cast(pa.decimal128(18, 2))
            ),
            "tags": pa.ListArray.from_arrays(ends, words),
        }
    )


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table whose files lost none, all, and some of their rows."""
    path = tmp_path_factory.mktemp("million") / "t"
    (path / "_delta_log").mkdir(parents=True)
    random = np.random.default_rng(11)
    gone = [random.random(size) < (0.0, 1.0, 0.0, 0.3, 0.0, 1.0, 0.01)[n] for n, size in enumerate(SIZES)]
    bitmaps = {n: RowBitmap(np.flatnonzero(hidden).tolist()) for n, hidden in enumerate(gone) if hidden.any()}
    vectors = write_deletion_vectors(Table(str(path)).storage, list(bitmaps.values()), uuid.UUID(int=7))
    by_file = dict(zip(bitmaps, vectors, strict=True))
    fields = [{"name": name, "type": kind, "nullable": True, "metadata": {}} for name, kind in TYPES.items()]
    features = ["deletionVectors"]
    actions: list[dict[str, Any]] = [
        {"protocol": {"minReaderVersion": 3, "minWriterVersion": 7, "readerFeatures": features, "writerFeatures": features}},
        {"metaData": {"id": "m", "format": {"provider": "parquet", "options": {}}, "partitionColumns": [],
                      "schemaString": json.dumps({"type": "struct", "fields": fields}), "configuration": {}}},
    ]  # fmt: skip
    for number, size in enumerate(SIZES):
        name = f"{number}.parquet"
        pq.write_table(columns(size, random), path / name, row_group_size=100_000, store_schema=False)
        stats = json.dumps({"numRecords": size, **({"tightBounds": False} if number in by_file else {})})
        add = {"path": name, "partitionValues": {}, "size": (path / name).stat().st_size, "modificationTime": 1,
               "dataChange": True, "stats": stats}  # fmt: skip
        vector = by_file.get(number)
        actions.append(
            {"add": {**add, **({"deletionVector": msgspec.to_builtins(vector)} if vector else {})}}
        )
    (path / "_delta_log" / f"{0:020d}.json").write_text("".join(json.dumps(a) + "\n" for a in actions))
    return path


@pytest.mark.parametrize(
    ("operation", "options"), [("optimize", {"full": True}), ("purge", {"target_size_bytes": 1 << 22})]
)
def test_a_million_rows_are_the_same_rows_afterwards(
    operation: str, options: dict[str, Any], made: Path, tmp_path: Path
) -> None:
    assert sum(SIZES) == ROWS
    table = tmp_path / "t"
    _link(made, table)
    before = checksum(table)
    report = run(table, operation, **options)
    assert report.status == "committed", report
    after = Table(str(table)).snapshot()
    assert checksum(table) == before
    assert after.num_deletion_vectors == 0
    files = [file for file in after.files().to_pylist() if file["tags"]]
    assert files, "those that we wrote"
    for file in files:
        content, stats = pq.read_table(table / file["key"]), json.loads(file["stats"])
        assert stats["numRecords"] == content.num_rows
        assert stats["nullCount"]["name"] == content.column("name").null_count
        bounds = pc.min_max(content.column("id")).as_py()
        assert (stats["minValues"]["id"], stats["maxValues"]["id"]) == (bounds["min"], bounds["max"])


def checksum(table: Path) -> RowHash:
    found = RowHash()
    for batch in Table(str(table)).snapshot().scan():
        found = found.plus(RowHash.of(batch))
    return found


def _link(source: Path, table: Path) -> None:
    """A table of its own; no test changes a data file."""
    for path in source.rglob("*"):
        if path.is_file():
            target = table / path.relative_to(source)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.hardlink_to(path)
