"""Bins whose row groups are copied, alone and among decoded ones: rows, their order, bounds, and broken footers."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import deltalake
import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.checks.added_files import check_added_files
from tests.support.repetition import examples
from tests.support.runs.maintenance_runs import run
from tests.support.tables.written_log import add, write_log

from delta_log import Table
from delta_log.errors import DeltaLogError
from delta_maintenance.errors import TaskFailed
from delta_maintenance.rewrite.encode.writer_notes import CODEC_KEY
from delta_maintenance.rewrite.encode.writer_settings import CODEC_PROPERTY
from delta_maintenance.rewrite.limits import LARGE_ROWS


def rows(first: int, count: int = 50) -> pa.Table:
    numbers = range(first, first + count)
    return pa.table(
        {
            "id": pa.array(numbers, pa.int64()),
            "x": [float("nan") if n % 17 == 3 else n / 4 for n in numbers],
            "text": [None if n % 5 == 0 else f"text {n % 30}" for n in numbers],
        }
    )


def append(table: Path, content: pa.Table) -> None:
    deltalake.write_deltalake(str(table), content, mode="append")


def files_of(table: Path) -> list[Path]:
    return [table / key for key in Table(str(table)).snapshot().files(columns=["key"])["key"].to_pylist()]


def test_copied_and_decoded_row_groups_stand_in_the_order_of_the_sources(tmp_path: Path) -> None:
    for n in range(6):
        append(tmp_path, rows(100 * n))
    # A file of another writer whose columns are required, so that it has to be decoded.
    for n, path in enumerate(
        sorted(files_of(tmp_path), key=lambda path: pq.read_table(path)["id"][0].as_py())
    ):
        if n in (2, 3):
            found = pq.read_table(path)
            required = pa.schema([found.schema.field(0).with_nullable(False), *list(found.schema)[1:]])
            pq.write_table(found.cast(required), path)
    before = Table(str(tmp_path)).snapshot().to_arrow()
    report = run(tmp_path, rewrite="copy", verify="full")
    assert report.status == "committed"
    (path,) = files_of(tmp_path)
    after = pq.read_table(path)
    assert sorted(after["id"].to_pylist()) == sorted(before["id"].to_pylist())
    assert len(after["id"].to_pylist()) == 300
    metadata = pq.ParquetFile(path).metadata
    # Two files in a row are decoded into one row group, wherever the plan has put them.
    assert 5 <= metadata.num_row_groups <= 6
    assert 0 < report.metrics["numCopiedBytes"] < report.metrics["numRemovedBytes"]
    check_added_files(tmp_path, 6, copied=True)
    expected = sorted(before["id"].to_pylist())
    assert sorted(deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table()["id"].to_pylist()) == expected
    found = duckdb.connect().execute(f"SELECT id FROM read_parquet('{path}')").fetchall()
    assert sorted(number for (number,) in found) == expected


@pytest.mark.parametrize("rewrite", ["auto", "copy", "encode"])
def test_row_groups_of_many_rows_are_copied_by_default(tmp_path: Path, rewrite: str) -> None:
    append(tmp_path, rows(0, LARGE_ROWS))
    append(tmp_path, rows(LARGE_ROWS, 10))
    plan = run(tmp_path, rewrite=rewrite, dry_run=True).plan
    assert plan is not None
    report = run(tmp_path, rewrite=rewrite)
    copied = report.metrics["numCopiedBytes"]
    assert plan["numBytesToCopyEstimate"] == copied
    assert {"auto": 0, "copy": 0, "encode": copied}[rewrite] == 0
    assert (copied == 0) == (rewrite == "encode")
    after = Table(str(tmp_path)).snapshot().to_arrow().sort_by("id")
    expected = pa.concat_tables([rows(0, LARGE_ROWS), rows(LARGE_ROWS, 10)])
    assert after["id"].equals(expected["id"])
    assert after["text"].equals(expected["text"])
    check_added_files(tmp_path, 2, copied=rewrite == "copy")


def test_a_copied_file_is_copied_again_without_bounds_of_floats_that_were_not_read(tmp_path: Path) -> None:
    for n in range(3):
        append(tmp_path, rows(1000 * n).set_column(1, "x", [[n + 0.5] * 50]))
    run(tmp_path, rewrite="encode")
    append(tmp_path, rows(9000).set_column(1, "x", [[9.5] * 50]))
    run(tmp_path, run_id="2", rewrite="copy")
    (path,) = files_of(tmp_path)
    metadata = pq.ParquetFile(path).metadata
    bounds = [metadata.row_group(n).column(1).statistics.has_min_max for n in range(2)]
    # No note in a file proves that a chunk with a NaN would have none.
    assert bounds == [False, False]
    assert metadata.num_rows == 200


def test_a_file_with_uncompressed_columns_is_copied_again(tmp_path: Path) -> None:
    """The table names Snappy, which is of no use for random numbers."""
    random = np.random.default_rng(1)
    write_log(
        tmp_path, [], properties={CODEC_PROPERTY: "snappy"}, columns={"random": "long", "small": "long"}
    )

    def append_numbers(count: int) -> None:
        numbers = random.integers(-(2**62), 2**62, count)
        version = Table(str(tmp_path)).snapshot().version + 1
        path = tmp_path / f"{version}.parquet"
        pq.write_table(pa.table({"random": numbers, "small": numbers % 1_000_000}), path)
        action = {"add": add(path.name, path.stat().st_size, stats=json.dumps({"numRecords": count}))}
        (tmp_path / "_delta_log" / f"{version:020d}.json").write_text(json.dumps(action))

    append_numbers(LARGE_ROWS)
    append_numbers(10)
    run(tmp_path, rewrite="encode")
    (path,) = files_of(tmp_path)
    metadata = pq.read_metadata(path)
    assert metadata.metadata[CODEC_KEY.encode()] == b"snappy"
    assert [metadata.row_group(0).column(n).compression for n in (0, 1)] == ["UNCOMPRESSED", "SNAPPY"]
    append_numbers(10)
    before = Table(str(tmp_path)).snapshot().to_arrow().sort_by("random")
    report = run(tmp_path, run_id="2", verify="full")
    assert report.metrics["numCopiedBytes"] > 8 * LARGE_ROWS
    assert Table(str(tmp_path)).snapshot().to_arrow().sort_by("random").equals(before)
    check_added_files(tmp_path, 5)


@pytest.mark.parametrize("bound", [0.0, -0.0, 7.5])
def test_bounds_of_floats_without_nan_are_kept(tmp_path: Path, bound: float) -> None:
    """The file of another writer tells too little of a NaN, and its page index too little of zeros."""
    numbers = [bound, *(n / 4 + 8 for n in range(LARGE_ROWS - 1))]
    sound = pa.table({"x": numbers, "y": pa.array(numbers, pa.float32()), "nan": [math.nan, *numbers[1:]]})
    writer = deltalake.WriterProperties(statistics_truncate_length=None)
    deltalake.write_deltalake(str(tmp_path), sound, writer_properties=writer)
    deltalake.write_deltalake(str(tmp_path), sound.slice(0, 10), mode="append")
    report = run(tmp_path, rewrite="auto", verify="full")
    assert report.metrics["numCopiedBytes"] > 0
    (path,) = files_of(tmp_path)
    check_added_files(tmp_path, 2)
    metadata = pq.ParquetFile(path).metadata
    copied = next(
        group
        for n in range(metadata.num_row_groups)
        if (group := metadata.row_group(n)).num_rows >= LARGE_ROWS
    )
    for number in (0, 1):
        found = copied.column(number)
        assert (found.statistics.min, found.statistics.max) == (min(numbers), max(numbers))
        assert math.copysign(1, found.statistics.min) == (1 if bound > 0 else -1)
        assert not found.has_column_index
    assert not copied.column(2).statistics.has_min_max
    stats = Table(str(tmp_path)).snapshot().files(columns=["stats"])["stats"].to_pylist()
    said = json.loads(stats[0])
    assert said["minValues"] == {"x": bound, "y": bound}
    assert said["maxValues"] == {"x": max(numbers), "y": max(numbers)}


@pytest.fixture(scope="module")
def two_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    table = tmp_path_factory.mktemp("broken") / "t"
    append(table, rows(0))
    append(table, rows(50))
    return table


def ids(path: Path) -> list[Any] | None:
    """The values of a column after all columns were read; ``None`` if the file cannot be read."""
    try:
        found: list[Any] = pq.read_table(path, columns=["id", "x", "text"])["id"].to_pylist()
    except (pa.ArrowException, OSError, ValueError):
        return None
    return found


@examples(40)
@given(data=st.data())
def test_a_broken_footer_is_refused_or_its_rows_are_right(two_files: Path, data: st.DataObject) -> None:
    with TemporaryDirectory() as directory:
        table = Path(directory) / "t"
        shutil.copytree(two_files, table)
        broken, other = files_of(table)
        content = bytearray(broken.read_bytes())
        start = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
        for _ in range(data.draw(st.integers(1, 2))):
            content[data.draw(st.integers(start, len(content) - 1))] ^= 1 << data.draw(st.integers(0, 7))
        if data.draw(st.integers(0, 3)) == 0:
            at = data.draw(st.integers(start, len(content) - 1))
            del content[at : at + data.draw(st.integers(1, 20))]
        broken.write_bytes(content)
        expected = ids(broken)
        try:
            run(table, rewrite="copy")
        except (DeltaLogError, TaskFailed):
            return
        (path,) = files_of(table)
        found = ids(path)
        if expected is None and found is None:
            # The pages can be read neither before nor after.
            return
        assert found is not None
        right = [sorted(many, key=repr) for many in (list(range(100)), (expected or []) + (ids(other) or []))]
        assert sorted(found, key=repr) in right
