"""What comes out of a bin's sources: batches of bearable size, whatever the width of a row; files opened ahead over a network."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from msgspec.structs import replace
from tests.support.runs.maintenance_runs import run
from tests.support.tables.rewritable_tables import File, GeneratedTable

from delta_log import Table
from delta_log.errors import CorruptLog
from delta_log.storage.storage import Storage
from delta_log.table_config.schema import StructType
from delta_log.testing import FaultyStorage
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.tasks import tasks_of
from delta_maintenance.rewrite.read import row_reader, sources
from delta_maintenance.rewrite.read.row_reader import LiveRows
from delta_maintenance.rewrite.read.sources import Sources, SourceSlice
from delta_maintenance.rewrite.task import RewriteTask

_WIDE = 1 << 20
_WIDE_IN_DICTIONARY = 20_000
_FILES = 40


class DistantStorage(FaultyStorage):
    """As if behind a network; counts the files that are being opened and those that were."""

    def __init__(self, inner: Storage, at_once: int = 1) -> None:
        super().__init__(inner, self._begin)
        self.concurrency = 16
        self.opened = 0
        self._lock, self._together = threading.Lock(), threading.Barrier(at_once)

    def _begin(self, name: str, key: str) -> None:
        if name == "open_read":
            with self._lock:
                self.opened += 1
            self._together.wait(60)


class Reading:
    """Reads the live rows of all sources of a task, one source after the other."""

    def __init__(self, task: RewriteTask, storage: Storage, stored: StructType) -> None:
        self.task, self.stored = task, stored
        self.sources = Sources(task, storage)
        self.rows = LiveRows(task, storage, stored)

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.rows.batches(SourceSlice(opened) for opened in self.sources)


def forty_files(directory: Path) -> tuple[GeneratedTable, Reading]:
    """File ``n`` has the row ``n``; and a row that is deleted."""
    files = [
        File(("int",), [{"int": number}, {"int": -1}], frozenset({1}), None, False, True, row_group=24)
        for number in range(_FILES)
    ]
    table = GeneratedTable(("int",), "none", False, False, tuple(files))
    table.write(directory)
    opened = Table(str(directory))
    snapshot = opened.snapshot()
    plan = plan_optimize(snapshot, OptimizeOptions(full=True), 1)
    (task,) = tasks_of(plan, snapshot, "run", opened.uri)
    return table, Reading(task, opened.storage, table.schema)


def test_over_a_network_eight_files_are_opened_at_a_time_and_rows_keep_their_order(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, live = forty_files(tmp_path)
    expected = [value for batch in live for value in batch.column("int").to_pylist()]
    assert sorted(expected) == list(range(_FILES))
    assert live.sources.storage.concurrency == 1
    # Every reader waits until eight are there.
    distant = Reading(live.task, DistantStorage(live.sources.storage, at_once=8), live.stored)
    assert [value for batch in distant for value in batch.column("int").to_pylist()] == expected
    assert (distant.sources.rows_in, distant.sources.rows_deleted) == (2 * _FILES, _FILES)


def test_no_more_than_a_few_files_wait_for_their_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, live = forty_files(tmp_path)
    storage = DistantStorage(live.sources.storage)
    for read, _ in enumerate(Reading(live.task, storage, live.stored), 1):
        assert storage.opened <= read + 16
    assert storage.opened == _FILES
    monkeypatch.setattr(sources, "BYTES_AHEAD", 3 * live.task.sources[0].size_bytes)
    storage = DistantStorage(live.sources.storage)
    for read, _ in enumerate(Reading(live.task, storage, live.stored), 1):
        assert storage.opened <= read + 4


def test_who_stops_reading_leaves_nothing_going_on(tmp_path: Path) -> None:
    _, live = forty_files(tmp_path)
    before = threading.active_count()
    storage = DistantStorage(live.sources.storage)
    batches = iter(Reading(live.task, storage, live.stored))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert threading.active_count() == before
    assert storage.opened <= 17


def test_a_source_that_is_gone_is_named_though_others_were_opened_before_it_was_its_turn(
    tmp_path: Path,
) -> None:
    _, live = forty_files(tmp_path)
    gone = live.task.sources[9]
    (tmp_path / gone.key).unlink()
    distant = Reading(live.task, DistantStorage(live.sources.storage), live.stored)
    with pytest.raises(CorruptLog, match=gone.key):
        list(distant)
    assert distant.sources.source_rows == [2] * 9


def test_batches_of_wide_rows_are_short_and_none_is_lost(tmp_path: Path) -> None:
    rows = [{"text": f"{number:03}" + "x" * _WIDE} for number in range(24)]
    file = File(("text",), rows, frozenset({0, 21}), None, extra=False, has_stats=True, row_group=24)
    table = GeneratedTable(("text",), "none", False, False, (file, file))
    table.write(tmp_path)
    opened = Table(str(tmp_path))
    snapshot = opened.snapshot()
    plan = plan_optimize(snapshot, OptimizeOptions(full=True), 1)
    (task,) = tasks_of(plan, snapshot, "run", opened.uri)
    live = Reading(task, opened.storage, table.schema)
    batches = list(live)
    assert max(batch.nbytes for batch in batches) <= 20 * _WIDE
    found = [text[:3] for batch in batches for text in batch.column("text").to_pylist()]
    assert found == 2 * [f"{number:03}" for number in range(24) if number not in (0, 21)]
    assert (live.sources.source_rows, live.sources.rows_deleted) == ([24, 24], 4)
    assert run(tmp_path, full=True).status == "committed"
    assert opened.snapshot().to_arrow().num_rows == 44


def test_batches_are_short_where_a_dictionary_holds_few_wide_texts(tmp_path: Path) -> None:
    texts = ["x", "a" * _WIDE_IN_DICTIONARY, "b" * _WIDE_IN_DICTIONARY]
    # The narrow ones first: nothing that was read tells of what comes.
    numbers = [0] * 1000 + [1 + row % 2 for row in range(1000)]
    rows = [{"text": texts[number], "struct": {"a": texts[number], "b": None}} for number in numbers]
    columns = ("text", "struct")
    file = File(columns, rows, frozenset({5, 1995}), None, extra=False, has_stats=True, row_group=2000)
    table = GeneratedTable(columns, "name", False, False, (file, file))
    table.write(tmp_path)
    opened = Table(str(tmp_path))
    assert sum(opened.snapshot().files(["size"]).column("size").to_pylist()) < 2 * _WIDE_IN_DICTIONARY
    snapshot = opened.snapshot()
    plan = plan_optimize(snapshot, OptimizeOptions(full=True), 1)
    (task,) = tasks_of(plan, snapshot, "run", opened.uri)
    batches = list(Reading(task, opened.storage, table.schema))
    assert max(batch.nbytes for batch in batches) <= 32 * _WIDE
    expected = [rows[row] for row in range(2000) if row not in (5, 1995)]
    assert [text for batch in batches for text in batch.column(0).to_pylist()] == 2 * [
        row["text"] for row in expected
    ]
    assert run(tmp_path, full=True).status == "committed"
    found = [text for batch in opened.snapshot().scan() for text in batch.column("text").to_pylist()]
    assert found == 2 * [row["text"] for row in expected]
    assert opened.snapshot().to_arrow(["struct"]).column("struct").to_pylist() == 2 * [
        row["struct"] for row in expected
    ]


def rows_of(
    directory: Path, rows: list[list[dict[str, Any]]], **options: Any
) -> list[pa.RecordBatch | pa.Table]:
    """Write a table with a file for each list of rows, and read all of them, the smaller ones first."""
    for part in rows:
        deltalake.write_deltalake(str(directory), pa.Table.from_pylist(part), mode="append")
    opened = Table(str(directory))
    snapshot = opened.snapshot()
    (task,) = tasks_of(plan_optimize(snapshot, OptimizeOptions(full=True), 1), snapshot, "run", opened.uri)
    task = replace(task, sources=tuple(sorted(task.sources, key=lambda source: source.size_bytes)))
    reading = Reading(task, opened.storage, snapshot.schema)
    slices = [SourceSlice(source) for source in Sources(task, opened.storage)]
    found = list(reading.rows.rows(slices, **options))
    one_by_one = [row for batch in reading for row in batch.to_pylist()]
    assert [row for part in found for row in part.to_pylist()] == one_by_one
    assert len(one_by_one) == sum(map(len, rows))
    return found


_NARROW = [[{"id": 10 * file + n, "text": f"{file} {n}"} for n in range(10)] for file in range(9)]


@pytest.fixture
def nothing_is_little(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_reader, "FIRST_PAGES_BYTES", 0)


def test_few_bytes_come_together_at_once(tmp_path: Path) -> None:
    assert [part.num_rows for part in rows_of(tmp_path, _NARROW)] == [90]


@pytest.mark.usefixtures("nothing_is_little")
def test_small_files_come_together_once_the_first_one_has_told_how_large_they_are(tmp_path: Path) -> None:
    assert [part.num_rows for part in rows_of(tmp_path, _NARROW)] == [10, 80]


@pytest.mark.usefixtures("nothing_is_little")
def test_no_more_files_come_together_than_there_is_room_for(tmp_path: Path) -> None:
    sizes = [part.num_rows for part in rows_of(tmp_path, _NARROW, at_once_bytes=4000)]

    assert sizes[0] == 10
    assert sum(sizes) == 90
    assert 2 <= len(sizes) < 9


def test_a_file_with_few_wide_texts_does_not_come_with_others(tmp_path: Path) -> None:
    texts = ["a" * _WIDE_IN_DICTIONARY, "b" * _WIDE_IN_DICTIONARY]
    wide = [{"id": n, "text": texts[n % 2]} for n in range(2000)]

    found = rows_of(tmp_path, [*_NARROW[:3], wide, wide, wide])

    assert max(part.nbytes for part in found) <= 32 * _WIDE


@pytest.mark.usefixtures("nothing_is_little")
def test_texts_come_as_dictionaries_together_as_well(tmp_path: Path) -> None:
    found = rows_of(tmp_path, _NARROW, dictionaries=lambda: {"text"})

    assert [pa.types.is_dictionary(part.schema.field("text").type) for part in found] == [True, True]


def test_a_broken_file_among_others_is_named(tmp_path: Path) -> None:
    deltalake.write_deltalake(str(tmp_path), pa.Table.from_pylist(_NARROW[0]))
    for part in _NARROW[1:]:
        deltalake.write_deltalake(str(tmp_path), pa.Table.from_pylist(part), mode="append")
    opened = Table(str(tmp_path))
    snapshot = opened.snapshot()
    (task,) = tasks_of(plan_optimize(snapshot, OptimizeOptions(full=True), 1), snapshot, "run", opened.uri)
    found = [SourceSlice(source) for source in Sources(task, opened.storage)]
    key = task.sources[4].key
    path = tmp_path / key
    path.write_bytes(path.read_bytes()[:40] + bytes(200) + path.read_bytes()[240:])

    with pytest.raises(CorruptLog, match=key):
        list(LiveRows(task, opened.storage, snapshot.schema).rows(found))
