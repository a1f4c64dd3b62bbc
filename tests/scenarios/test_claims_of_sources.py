"""What files of other writers claim of their content, and what new files may claim: Bloom filters, page indexes, notes, verification."""

from __future__ import annotations

import json
import math
import os
import shutil
from pathlib import Path
from typing import Any

import deltalake
import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import BloomFilterProperties, ColumnProperties, WriterProperties
from tests.support.runs.maintenance_runs import WatchedEngine, keys, run

from delta_log import Table
from delta_log.errors import DeltaLogError
from delta_maintenance.errors import EncodingFailed, error_report
from delta_maintenance.rewrite.encode.encoded_part import PartEncoder
from delta_maintenance.rewrite.encode.writer_settings import WriterSettings
from parquet_parts.footer import COLUMN_INDEX, ColumnChunk, Footer

_BLOOM_FILTERS = WriterProperties(
    default_column_properties=ColumnProperties(
        bloom_filter_properties=BloomFilterProperties(set_bloom_filter_enabled=True, fpp=0.05, ndv=100)
    )
)


def append(table: Path, rows: pa.Table, **options: Any) -> None:
    deltalake.write_deltalake(str(table), rows, mode="append", **options)


def files_of(table: Path) -> list[Path]:
    return [table / key for key in keys(table)]


def die(number: int) -> None:
    """End a try when its bin is finished, before the commit."""
    raise KeyboardInterrupt


def only_file(table: Path) -> Path:
    (path,) = files_of(table)
    return path


def queried(text: str) -> list[tuple[Any, ...]]:
    return duckdb.connect().execute(text).fetchall()


def chunks_of(path: Path) -> dict[str, ColumnChunk]:
    (group,) = Footer.from_end(path.read_bytes()).row_groups[:1]
    return {chunk.dotted_path: chunk for chunk in group.chunks}


def newest_stats(table: Path) -> dict[str, Any]:
    (added,) = Table(str(table)).snapshot().files(columns=["stats"])["stats"].to_pylist()
    found: dict[str, Any] = json.loads(added)
    return found


@pytest.mark.parametrize(
    "options", [{}, {"rewrite": "encode"}, {"rewrite": "copy"}, {"zorder_by": ["id"]}], ids=str
)
def test_bloom_filters_of_leaves_that_arrow_cannot_filter_are_left_out(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    for n in range(0, 6, 2):
        rows = {
            "id": [n, n + 1],
            "flag": [True, None],
            "flags": [[True], [None, False]],
            "point": [{"on": True, "x": 1.5}, None],
            "text": ["a", "b"],
        }
        append(tmp_path, pa.table(rows), writer_properties=_BLOOM_FILTERS)
    before = Table(str(tmp_path)).snapshot().to_arrow().sort_by("id").to_pylist()
    assert run(tmp_path, verify="full", **options).status == "committed"
    assert Table(str(tmp_path)).snapshot().to_arrow().sort_by("id").to_pylist() == before
    chunks = chunks_of(only_file(tmp_path))
    assert chunks["id"].has_bloom_filter
    assert chunks["text"].has_bloom_filter
    # Row groups of lists that are named otherwise are never copied.
    assert not chunks["flag"].has_bloom_filter


def test_what_the_encoder_refuses_is_no_failure_of_a_store() -> None:
    encoder = PartEncoder(pa.schema({"n": pa.int64()}), WriterSettings("no codec", ()))
    with pytest.raises(EncodingFailed, match="cannot write these rows") as refused:
        encoder.encode([pa.record_batch({"n": [1]})])
    assert error_report(refused.value).retryable is False


@pytest.mark.parametrize("rewrite", ["auto", "copy", "encode"])
def test_a_column_that_is_null_for_a_stretch_is_verified(tmp_path: Path, rewrite: str) -> None:
    count = 70_000
    for first in range(0, 3 * count, count):
        texts = [None if 2 * count // 3 < n else f"row {first + n} of {'ab' * (n % 7)}" for n in range(count)]
        append(tmp_path, pa.table({"id": range(first, first + count), "text": texts}))
    assert run(tmp_path, verify="full", rewrite=rewrite).status == "committed"
    found = queried(f"SELECT count(*), count(text) FROM '{only_file(tmp_path)}'")
    expected = Table(str(tmp_path)).snapshot().to_arrow()
    assert found == [(3 * count, 3 * count - expected["text"].null_count)]


@pytest.mark.parametrize("rewrite", ["auto", "copy"])
def test_a_note_that_was_handed_on_makes_no_bounds_true(tmp_path: Path, rewrite: str) -> None:
    """Arrow hands the key-value metadata of a file on to what is written from it."""
    ours = tmp_path / "ours"
    for n in range(2):
        append(ours, pa.table({"id": [n], "x": [1.0]}))
    assert run(ours).status == "committed"
    notes = {**pq.read_table(only_file(ours)).schema.metadata, b"delta-maintenance.floats": b"1"}
    table, count = tmp_path / "table", 130_000
    for first in (0, count):
        numbers = range(first, first + count)
        values = [math.nan if n % 1000 == 7 else float(n) for n in numbers]
        append(table, pa.table({"id": numbers, "x": values}))
        path = max(files_of(table), key=os.path.getmtime)
        rows = pq.read_table(path).replace_schema_metadata(notes)
        pq.write_table(rows, path)
        assert pq.read_metadata(path).metadata[b"delta-maintenance.floats"] == b"1"
    _state_sizes(table)
    assert run(table, rewrite=rewrite, verify="full").status == "committed"
    assert "x" not in newest_stats(table)["maxValues"]
    found = queried(f"SELECT count(*) FROM '{only_file(table)}' WHERE x > 1e9::DOUBLE")
    assert found == [(2 * count // 1000,)]


def _state_sizes(table: Path) -> None:
    """Let the log say how long the files are now, and nothing of their values."""
    for commit in (table / "_delta_log").glob("*.json"):
        actions = [json.loads(line) for line in commit.read_text().splitlines()]
        for action in actions:
            if "add" in action:
                action["add"].update(size=(table / action["add"]["path"]).stat().st_size, stats=None)
        commit.write_text("".join(json.dumps(action) + "\n" for action in actions))


def test_column_indexes_of_lists_by_parquet_rs_are_not_copied(tmp_path: Path) -> None:
    """parquet-rs calls a page of a list null if it has as many nulls as rows."""
    for first in (0, 100, 200):
        rows = {"id": range(first, first + 100), "list": [[n, None] for n in range(100)]}
        append(tmp_path, pa.table(rows))
    assert run(tmp_path, rewrite="copy", verify="full").status == "committed"
    groups = Footer.from_end(only_file(tmp_path).read_bytes()).row_groups
    indexed = [[COLUMN_INDEX[0] in chunk.form.places for chunk in group.chunks] for group in groups]
    # The list of the table's first file is named otherwise, so its rows are encoded.
    assert sorted(indexed) == [[True, False], [True, False], [True, True]]


@pytest.mark.parametrize(
    "change", [{"verify": "full"}, {"rewrite": "encode"}], ids=["more is verified", "nothing is copied"]
)
def test_a_bin_that_was_finished_with_other_promises_is_done_again(
    tmp_path: Path, change: dict[str, str]
) -> None:
    for first in (0, 5_000):
        append(tmp_path / "table", pa.table({"id": range(first, first + 5_000)}))
    options: dict[str, Any] = {"rewrite": "copy", "verify": "counts"}
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path / "table", engine=WatchedEngine(die), **options)
    shutil.copytree(tmp_path / "table", tmp_path / "same")
    same = run(tmp_path / "same", **options)
    assert same.earlier_tries is not None
    report = run(tmp_path / "table", **{**options, **change})
    assert (report.status, report.earlier_tries) == ("committed", None)
    assert (report.metrics["numCopiedBytes"] == 0) == (change.get("rewrite") == "encode")


def test_a_broken_page_that_counts_has_let_pass_is_found_by_the_next_try(tmp_path: Path) -> None:
    for first in (0, 5_000):
        append(
            tmp_path,
            pa.table({"id": range(first, first + 5_000), "s": [os.urandom(9).hex() for _ in range(5_000)]}),
        )
    path = files_of(tmp_path)[0]
    content = bytearray(path.read_bytes())
    content[len(content) // 2 : len(content) // 2 + 200] = os.urandom(200)
    path.write_bytes(content)
    with pytest.raises(KeyboardInterrupt):
        run(tmp_path, engine=WatchedEngine(die), rewrite="copy")
    with pytest.raises(DeltaLogError, match="cannot be read"):
        run(tmp_path, rewrite="copy", verify="full")
    assert Table(str(tmp_path)).snapshot().version == 1
