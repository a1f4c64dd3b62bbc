"""Deletions that come while a bin is rewritten are taken over by its new files, exactly, or the bin is left out."""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import deltalake
import msgspec
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples
from tests.support.runs.maintenance_runs import (
    WatchedEngine,
    enable_deletion_vectors,
    keys,
    mark_deleted,
    removal_of,
    run,
)

from delta_log import Table
from delta_log.data.deletion_vector import read_deletion_vector
from delta_log.data.row_bitmap import RowBitmap
from delta_log.errors import ConcurrentDelete
from delta_log.log.actions import Add, DeletionVector, Remove
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.table_config.features import Operation
from delta_log.transaction.commit_body import Change, FileGroup
from delta_log.transaction.transaction import Transaction
from delta_maintenance.contract import JobReport
from delta_maintenance.rewrite.manifest.row_map import NotRemappable, SourceRows, remapped
from delta_maintenance.text.report import render_report

ROWS, FILES, PARTS = 4, 3, ("x", "y")


# -- which rows --------------------------------------------------------------------------------------------------

row_sets = st.sets(st.integers(0, 7), max_size=8)


@given(
    st.lists(st.tuples(st.integers(0, 8), row_sets, row_sets, st.booleans()), min_size=1, max_size=5),
    st.lists(st.integers(0, 40), max_size=3),
)
def test_each_row_that_is_gone_is_hidden_at_the_place_it_was_written_to(
    files: list[tuple[int, set[int], set[int], bool]], cuts: list[int]
) -> None:
    sources, written, still_there = [], [], set()
    for number, (rows, hidden_then, more, gone) in enumerate(files):
        read = {row for row in hidden_then if row < rows}
        now = read | {row for row in more if row < rows}
        sources.append(SourceRows(rows, RowBitmap(sorted(read)), None if gone else RowBitmap(sorted(now))))
        written += [(number, row) for row in range(rows) if row not in read]
        still_there |= {(number, row) for row in range(rows) if row not in now and not gone}
    bounds = [0, *sorted(min(cut, len(written)) for cut in cuts), len(written)]
    outputs = [written[first:last] for first, last in pairwise(bounds)]
    hidden = remapped(sources, [len(output) for output in outputs])
    left = [
        row
        for output, dead in zip(outputs, hidden, strict=True)
        for at, row in enumerate(output)
        if at not in dead
    ]
    assert left == [row for row in written if row in still_there]


@pytest.mark.parametrize(
    ("sources", "outputs", "why"),
    [
        ([SourceRows(4, RowBitmap([1]), RowBitmap([2]))], [3], "rows came back"),
        ([SourceRows(4, RowBitmap([]), RowBitmap([4]))], [4], "row 4 was deleted, and it has 4"),
        ([SourceRows(4, RowBitmap([]), None)], [3], "4 rows were live in the sources, and 3 were written"),
    ],
)
def test_what_cannot_be_translated_is_said(
    sources: Sequence[SourceRows], outputs: Sequence[int], why: str
) -> None:
    with pytest.raises(NotRemappable, match=why):
        remapped(sources, outputs)


# -- in a table --------------------------------------------------------------------------------------------------


def make_table(path: Path) -> Path:
    """Three files of four rows in each of two partitions; rows are numbered."""
    for number in range(FILES):
        for part in PARTS:
            first = 10 * (FILES * PARTS.index(part) + number)
            rows = pa.table({"id": [first + n for n in range(ROWS)], "part": [part] * ROWS})
            deltalake.write_deltalake(str(path), rows, partition_by=["part"], mode="append")
    enable_deletion_vectors(path)
    return path


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return make_table(tmp_path)


def disturbed(table: Path, *statements: Callable[[], object], **options: Any) -> JobReport:
    """A compaction, and statements of others when the first bin is rewritten."""

    def after(number: int) -> None:
        if number == 1:
            for statement in statements:
                statement()

    return run(table, engine=WatchedEngine(after), **{"remap": True, **options})


def ids(table: Path, version: int | None = None) -> list[int]:
    return sorted(Table(str(table)).snapshot(version).to_arrow(["id"]).column("id").to_pylist())


def everything() -> list[int]:
    return [10 * file + row for file in range(FILES * len(PARTS)) for row in range(ROWS)]


def files_of(table: Path) -> dict[int, dict[str, Any]]:
    """The live files by the first row that was written to them."""
    snapshot = Table(str(table)).snapshot()
    return {json.loads(file["stats"])["minValues"]["id"]: file for file in snapshot.files().to_pylist()}


def remove_file(table: Path, first: int) -> int:
    """As copy-on-write does it, but that nothing takes the file's place."""
    opened = Table(str(table))
    snapshot, remove = opened.snapshot(), removal_of(files_of(table)[first])
    change = Change("DELETE", [FileGroup((), [remove])])
    return Transaction(opened.storage, snapshot, Operation.CHECKPOINT, Runtime()).commit(change).version


def commit_of(table: Path, version: int) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (table / f"_delta_log/{version:020d}.json").read_text().splitlines()]


def test_without_the_option_the_bin_is_left_out(table: Path) -> None:
    key = files_of(table)[0]["key"]
    report = disturbed(table, lambda: mark_deleted(table, {key: [1]}), remap=False)
    assert (report.dropped_bins, report.remapped_bins) == (1, 0)
    assert ids(table) == [row for row in everything() if row != 1]


def test_rows_deleted_meanwhile_stay_deleted_and_no_bin_is_lost(table: Path) -> None:
    files = files_of(table)
    mark_deleted(table, {files[0]["key"]: [0]})
    report = disturbed(
        table,
        lambda: mark_deleted(table, {files[0]["key"]: [0, 2], files[20]["key"]: [3]}),
        lambda: mark_deleted(table, {files[20]["key"]: [1, 3]}),
    )
    assert (report.status, report.dropped_bins, report.remapped_bins) == ("committed", 0, 1)
    assert ids(table) == [row for row in everything() if row not in (0, 2, 21, 23)]
    assert report.version is not None
    actions = commit_of(table, report.version)
    added = [action["add"] for action in actions if "add" in action]
    vectors = {add["partitionValues"]["part"]: add.get("deletionVector") for add in added}
    assert (vectors["x"]["cardinality"], vectors["y"]) == (3, None)
    (stats,) = (json.loads(add["stats"]) for add in added if add["partitionValues"]["part"] == "x")
    assert (stats["numRecords"], stats["tightBounds"], stats["minValues"]) == (11, False, {"id": 1})
    assert not any(
        file["dataChange"] for action in actions for name, file in action.items() if name in ("add", "remove")
    )
    removed = {
        action["remove"]["path"]: action["remove"].get("deletionVector", {}).get("cardinality", 0)
        for action in actions
        if "remove" in action
    }
    assert removed == {file["path"]: {0: 2, 20: 2}.get(first, 0) for first, file in files.items()}
    assert len(keys(table)) == len(PARTS)
    assert "1 bins took over what was deleted of their files meanwhile" in render_report(report.to_dict())


def test_what_was_taken_over_is_purged_by_the_next_run(table: Path) -> None:
    disturbed(table, lambda: mark_deleted(table, {files_of(table)[0]["key"]: [0, 1]}))
    report = run(table, "purge", run_id="next")
    assert (report.status, report.metrics["numDeletionVectorsRemoved"]) == ("committed", 1)
    assert ids(table) == [row for row in everything() if row > 1]
    assert run(table, "purge", run_id="last").status == "nothing_to_do"


def test_a_file_that_is_gone_takes_its_rows_with_it(table: Path) -> None:
    report = disturbed(table, lambda: remove_file(table, 10))
    assert (report.dropped_bins, report.remapped_bins) == (0, 1)
    assert ids(table) == [row for row in everything() if not 10 <= row < 20]
    assert report.metrics["numRemovedFiles"] == FILES * len(PARTS) - 1
    assert (
        Table(str(table)).history(1)[0]["operationMetrics"]["numRemovedFiles"]
        == report.metrics["numRemovedFiles"]
    )


def test_an_update_that_writes_files_anew_loses_nothing(table: Path) -> None:
    report = disturbed(
        table, lambda: deltalake.DeltaTable(str(table)).update({"id": "id + 1000"}, predicate="id = 11")
    )
    assert (report.dropped_bins, report.remapped_bins) == (0, 1)
    assert ids(table) == sorted([*(row for row in everything() if row != 11), 1011])


@pytest.mark.parametrize(
    "what", ["rows came back", "too much is gone", "all is gone", "vectors are forbidden"]
)
def test_a_bin_is_left_out_where_it_cannot_take_over_what_happened(table: Path, what: str) -> None:
    files = files_of(table)
    key = files[0]["key"]
    mark_deleted(table, {key: [0]})
    statements: dict[str, Callable[[], object]] = {
        "rows came back": lambda: restore(table, Table(str(table)).snapshot().version - 1),
        "too much is gone": lambda: [remove_file(table, first) for first in (10, 20)],
        "all is gone": lambda: [remove_file(table, first) for first in (0, 10, 20)],
        "vectors are forbidden": lambda: forbid_vectors(table, mark_deleted(table, {key: [0, 1]})),
    }
    report = disturbed(table, statements[what])
    assert (report.dropped_bins, report.remapped_bins) == (1, 0)
    expected = {
        "rows came back": everything(),
        "too much is gone": [row for row in everything() if row > 0 and not 10 <= row < 30],
        "all is gone": [row for row in everything() if row >= 30],
        "vectors are forbidden": [row for row in everything() if row > 1],
    }
    assert ids(table) == expected[what]


def restore(table: Path, version: int) -> None:
    """As RESTORE does it."""
    opened = Table(str(table))
    now, then = ({f["path"]: f for f in opened.snapshot(v).files().to_pylist()} for v in (None, version))

    def vector(file: dict[str, Any]) -> DeletionVector | None:
        return DeletionVector(**file["deletion_vector"]) if file["deletion_vector"] else None

    changed = [path for path in now.keys() | then.keys() if now.get(path) != then.get(path)]
    removes = [
        Remove(path=path, deletionTimestamp=1, dataChange=True, extendedFileMetadata=True,
               partitionValues=dict(now[path]["partition_values"]), size=now[path]["size"],
               deletionVector=vector(now[path]))
        for path in changed if path in now
    ]  # fmt: skip
    adds = [
        Add(path=path, size=then[path]["size"], modificationTime=then[path]["modification_time"], dataChange=True,
            partitionValues=dict(then[path]["partition_values"]), stats=then[path]["stats"],
            deletionVector=vector(then[path]))
        for path in changed if path in then
    ]  # fmt: skip
    change = Change("RESTORE", [FileGroup(adds, removes)], whole_table=True)
    Transaction(opened.storage, opened.snapshot(), Operation.CHECKPOINT, Runtime()).commit(change)


def forbid_vectors(table: Path, version: int) -> None:
    opened = Table(str(table))
    snapshot = opened.snapshot(version)
    properties = {**snapshot.properties, "delta.enableDeletionVectors": "false"}
    metadata = msgspec.structs.replace(snapshot.metadata, configuration=properties)
    change = Change("SET TBLPROPERTIES", metadata=metadata)
    Transaction(opened.storage, snapshot, Operation.CHECKPOINT, Runtime()).commit(change)


def test_a_vector_that_cannot_be_read_leaves_the_bin_out(table: Path) -> None:
    key = files_of(table)[0]["key"]

    def deleted_and_lost() -> None:
        mark_deleted(table, {key: [1]})
        for file in table.glob("deletion_vector_*.bin"):
            file.write_bytes(b"garbage")

    report = disturbed(table, deleted_and_lost)
    assert (report.dropped_bins, report.remapped_bins) == (1, 0)
    assert report.dropped is not None
    assert "removed or deleted rows from" in report.dropped[0]["message"]


def test_when_no_bin_is_left_the_run_is_lost(table: Path) -> None:
    first = files_of(table)

    def gone() -> None:
        for number in first:
            remove_file(table, number)

    with pytest.raises(ConcurrentDelete):
        disturbed(table, gone)


# -- random histories --------------------------------------------------------------------------------------------

events = st.one_of(
    st.tuples(st.just("delete"), st.integers(0, 5), st.integers(0, 15)),
    st.tuples(st.just("drop"), st.integers(0, 5), st.just(0)),
    st.tuples(st.just("append"), st.just(0), st.just(0)),
    st.tuples(st.just("restore"), st.integers(1, 3), st.just(0)),
)


@examples(12)
@given(st.lists(events, max_size=2), st.lists(events, max_size=4), st.booleans())
def test_whatever_others_do_meanwhile_the_rows_are_those_of_the_serial_history(
    before: list[tuple[str, int, int]], meanwhile: list[tuple[str, int, int]], batched: bool
) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        table = make_table(Path(scratch) / "table")
        for event in before:
            happen(table, *event)
        expected: list[list[int]] = []

        def others() -> None:
            for event in meanwhile:
                happen(table, *event)
            expected.append(ids(table))

        options = {"batch_size_bytes": 1} if batched else {}
        try:
            report = disturbed(table, others, **options)
        except ConcurrentDelete:
            report = None
        assert ids(table) == (expected[0] if expected else ids(table))
        for version in range(Table(str(table)).snapshot().version + 1):
            Table(str(table)).snapshot(version).to_arrow(["id"])
        if report is not None and report.version is not None and len(meanwhile) and not report.num_batches:
            assert ids(table, report.version) == ids(table, report.version - 1)


def happen(table: Path, what: str, number: int, argument: int) -> None:
    """One event, where it applies; ``argument`` of a deletion is a set of rows in four bits."""
    first = 10 * number
    if what == "append":
        rows = pa.table({"id": [500], "part": ["x"]})
        deltalake.write_deltalake(str(table), rows, mode="append")
        return
    if what == "restore":
        version = Table(str(table)).snapshot().version
        restore(table, max(FILES * len(PARTS), version - number))
        return
    file = files_of(table).get(first)
    if file is None:
        return
    if what == "drop":
        remove_file(table, first)
        return
    snapshot = Table(str(table)).snapshot()
    hidden = hidden_rows(snapshot, file)
    wanted = {row for row in range(ROWS) if argument >> row & 1}
    if not wanted <= hidden:
        mark_deleted(table, {file["key"]: sorted(hidden | wanted)})


def hidden_rows(snapshot: Snapshot, file: dict[str, Any]) -> set[int]:
    if file["deletion_vector"] is None:
        return set()
    descriptor = DeletionVector.from_row(file["deletion_vector"])
    return set(read_deletion_vector(descriptor, Table(snapshot.table_uri).storage))
