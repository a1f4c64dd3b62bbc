"""Which sources are opened before their rows are read, and which are not; what is wrong with one is told in either case."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from msgspec.structs import replace
from tests.support.runs.maintenance_runs import enable_deletion_vectors, mark_deleted, run

from delta_log import Table
from delta_log.errors import CorruptLog
from delta_log.storage.storage import Storage
from delta_log.testing import FaultyStorage
from delta_maintenance.errors import TaskFailed
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.tasks import tasks_of
from delta_maintenance.rewrite.read import sources
from delta_maintenance.rewrite.read.row_reader import LiveRows, stored_columns
from delta_maintenance.rewrite.read.sources import OpenedSource, Sources, SourceSlice
from delta_maintenance.rewrite.task import RewriteTask
from parquet_parts.footer import END_BYTES, Footer, footer_start


class Noting(FaultyStorage):
    """Notes the files that are opened, and those of which ranges are read."""

    def __init__(self, inner: Storage) -> None:
        super().__init__(inner, self._note)
        self.opened: list[str] = []
        self.read_in_part: list[str] = []

    def _note(self, name: str, key: str) -> None:
        if name == "open_read":
            self.opened.append(key)
        elif name == "read":
            self.read_in_part.append(key)


def task_of(directory: Path, *tables: pa.Table) -> tuple[RewriteTask, Noting]:
    """A task with a source for each table, in their order."""
    for rows in tables:
        write_deltalake(str(directory), rows, mode="append")
    opened = Table(str(directory))
    snapshot = opened.snapshot()
    (task,) = tasks_of(plan_optimize(snapshot, OptimizeOptions(full=True), 1), snapshot, "run", opened.uri)
    return task, Noting(opened.storage)


def rows(first: int, count: int = 3) -> pa.Table:
    return pa.table({"n": pa.array(range(first, first + count), pa.int64()), "text": ["a"] * count})


def opened(task: RewriteTask, storage: Storage, *, late: bool = True) -> list[OpenedSource]:
    return list(Sources(task, storage, opens_late=late))


def replaced(directory: Path, task: RewriteTask, number: int, content: bytes) -> RewriteTask:
    """Put another file in the place of a source; the log knows its length."""
    source = task.sources[number]
    (directory / source.key).write_bytes(content)
    others = (*task.sources[:number], replace(source, size_bytes=len(content)), *task.sources[number + 1 :])
    return replace(task, sources=others)


def file_of(table: pa.Table, **options: Any) -> bytes:
    sink = io.BytesIO()
    pq.write_table(table, sink, **options)
    return sink.getvalue()


def test_of_small_files_the_ends_are_read_and_no_file_is_opened(tmp_path: Path) -> None:
    task, storage = task_of(tmp_path, *(rows(10 * n) for n in range(4)))
    found = opened(task, storage)
    assert storage.opened == []
    assert storage.read_in_part == [source.key for source in task.sources]
    assert [source.num_rows for source in found] == [3] * 4
    early = opened(task, storage, late=False)
    assert storage.opened == [source.key for source in task.sources]
    assert [source.data_file.row_group_bytes for source in found] == [
        source.data_file.row_group_bytes for source in early
    ]


def test_over_a_network_small_files_are_read_once(tmp_path: Path) -> None:
    task, storage = task_of(tmp_path, *(rows(10 * n) for n in range(4)))
    storage.concurrency = 2
    found = opened(task, storage)
    live = LiveRows(task, storage, stored_columns(task))
    (table,) = live.rows([SourceSlice(source) for source in found])
    assert sorted(table.column("n").to_pylist()) == [10 * n + row for n in range(4) for row in range(3)]
    assert storage.opened == []
    assert sorted(storage.read_in_part) == sorted(source.key for source in task.sources)
    # Their memory is free then.
    assert all(source.data_file._content is None for source in found)


@pytest.mark.parametrize("why", ["deleted rows", "a large file", "INT96", "numbers of rows"])
def test_others_are_opened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, why: str) -> None:
    task, storage = task_of(tmp_path, *(rows(10 * n) for n in range(3)))
    odd = [task.sources[1].key]
    if why == "deleted rows":
        enable_deletion_vectors(tmp_path)
        mark_deleted(tmp_path, {odd[0]: [0]})
        task, storage = task_of(tmp_path)
        odd = [source.key for source in task.sources if source.deletion_vector is not None]
        assert len(odd) == 1
    elif why == "a large file":
        limit = task.sources[1].size_bytes + 10
        task = replaced(tmp_path, task, 1, file_of(pa.table({"n": range(3), "text": ["a" * 5_000] * 3})))
        monkeypatch.setattr(sources, "SMALL_BYTES", limit)
    elif why == "INT96":
        moments = pa.table({"n": pa.array([1, 2, 3], pa.timestamp("us"))})
        task = replaced(tmp_path, task, 1, file_of(moments, use_deprecated_int96_timestamps=True))
    else:
        # The footer says 3 rows, and that of its row group, too; now it says 4.
        content = (tmp_path / odd[0]).read_bytes()
        at = content.rindex(b"\x16\x06\x19")
        task = replaced(tmp_path, task, 1, content[: at + 1] + b"\x08" + content[at + 2 :])
    found = opened(task, storage)
    assert len(found) == 3
    assert sorted(storage.opened) == sorted(odd)


@pytest.mark.parametrize("content", [None, b"", b"PAR1", b"PAR1" + bytes(100) + b"PAR1"], ids=repr)
def test_what_is_missing_or_broken_is_named(tmp_path: Path, content: bytes | None) -> None:
    task, storage = task_of(tmp_path, *(rows(10 * n) for n in range(3)))
    source = task.sources[1]
    if content is None:
        (tmp_path / source.key).unlink()
    else:
        (tmp_path / source.key).write_bytes(content)
    with pytest.raises(CorruptLog, match=source.key):
        opened(task, storage)


def test_a_footer_without_what_is_asked_first_is_named(tmp_path: Path) -> None:
    task, storage = task_of(tmp_path, *(rows(10 * n) for n in range(3)))
    key = task.sources[1].key
    content = (tmp_path / key).read_bytes()
    data_end = footer_start(content)
    footer = Footer.from_bytes(content[data_end:-END_BYTES])
    for group in footer.row_groups:
        group.fields.drop(2)  # total_byte_size
    task = replaced(tmp_path, task, 1, content[:data_end] + footer.to_end())
    with pytest.raises(CorruptLog, match=key):
        opened(task, storage)


def test_a_file_with_other_rows_than_its_statistics_say_is_named(tmp_path: Path) -> None:
    task, storage = task_of(tmp_path, rows(0), rows(10))
    task = replace(task, sources=tuple(replace(source, num_records=3) for source in task.sources))
    task = replaced(tmp_path, task, 1, file_of(rows(0, 5)))
    with pytest.raises(CorruptLog, match="3 rows, but the file has 5"):
        opened(task, storage)


def test_a_file_that_is_cut_after_its_end_was_read_fails_the_run_and_nothing_is_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    task, _ = task_of(tmp_path, *(rows(10 * n) for n in range(3)))
    key, original = task.sources[1].key, Sources._end_of

    def cut(self: Sources, source: Any) -> Any:
        end = original(self, source)
        if source.key == key:
            assert end[1] is not None
            path = tmp_path / key
            path.write_bytes(path.read_bytes()[:-40])
        return end

    monkeypatch.setattr(Sources, "_end_of", cut)
    with pytest.raises(TaskFailed, match=key):
        run(tmp_path)
    assert DeltaTable(str(tmp_path)).version() == 2
