from __future__ import annotations

import os
from pathlib import Path

import pyarrow as pa
import pytest

from delta_maintenance.errors import NoTemporarySpace
from delta_maintenance.rewrite.read.segment_pool import RowMemory
from delta_maintenance.rewrite.sort.bucket_store import BucketStore

SCHEMA = pa.schema([("x", pa.int64())])


def rows(*values: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array(values)], schema=SCHEMA)


@pytest.mark.parametrize("limit_bytes", [0, 40, 1000])
def test_rows_come_back_in_the_order_of_their_numbers_and_the_memory_is_free(limit_bytes: int) -> None:
    memory = RowMemory(limit_bytes)
    store = BucketStore(SCHEMA, memory)
    for first in [*range(15, 30, 3), *range(0, 15, 3)]:
        store.add(first, {0: rows(first, first + 1), 7: rows(first + 2)})
    assert store.take(7).column("x").to_pylist() == list(range(2, 30, 3))
    assert store.take(0).column("x").to_pylist() == [n for n in range(30) if n % 3 != 2]
    assert store.take(3).num_rows == 0
    store.close()
    assert memory.take(limit_bytes)


def test_many_and_few_values_come_back_from_the_disk() -> None:
    """Many are mapped from the file, few are read."""
    store = BucketStore(SCHEMA, RowMemory(0))
    batches = [rows(*range(count)) for count in (3, 20_000, 1, 8192, 30_000)]
    for number, batch in enumerate(batches):
        store.add(number, {0: batch})
    found = store.take(0)
    assert found.to_batches() == batches
    store.add(0, {1: batches[1]})
    store.close()
    # What is still in use outlives the file.
    assert found.column("x").to_pylist() == [n for batch in batches for n in range(batch.num_rows)]


@pytest.mark.parametrize("count", [3, 20_000])
def test_a_temporary_file_that_became_shorter_is_told(count: int) -> None:
    store = BucketStore(SCHEMA, RowMemory(0))
    store.add(0, {0: rows(*range(count))})
    assert store._file is not None
    os.truncate(store._file, 8)
    with pytest.raises(NoTemporarySpace, match="shorter"):
        store.take(0)
    store.close()


def test_a_full_disk_gives_the_memory_back(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "gone"))
    memory = RowMemory(24)
    store = BucketStore(SCHEMA, memory)
    store.add(0, {0: rows(1, 2, 3)})
    with pytest.raises(NoTemporarySpace, match="gone"):
        store.add(1, {0: rows(4)})
    store.close()
    assert memory.take(24)
