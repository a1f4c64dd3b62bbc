"""Batches: committed as they are full, and a run that died goes on where it stopped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from tests.support.runs.maintenance_runs import WatchedEngine, keys, run
from tests.support.tables.small_tables import write_parts

from delta_log import Table
from delta_log.errors import ConcurrentDelete, MetadataChanged
from delta_log.log.file_names import commit_key
from delta_log.runtime import Runtime
from delta_maintenance.contract import TransactionId
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.progress import SilentProgress

PARTS = "abcdef"


class Killed(BaseException):
    """What ends a process in the middle of its work."""


class Told(SilentProgress):
    def __init__(self) -> None:
        self.texts: list[str] = []

    def message(self, text: str) -> None:
        self.texts.append(text)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two small files in each of six partitions: six bins."""
    return write_parts(tmp_path, PARTS)


IDS = sorted(10 * number + n for number in range(2) for n in range(len(PARTS)))


def ids(table: Path) -> list[int]:
    return sorted(deltalake.DeltaTable(str(table)).to_pyarrow_table()["id"].to_pylist())


def two_bins(table: Path) -> int:
    """Bytes that two bins are just above."""
    plan = run(table, dry_run=True).plan
    assert plan is not None
    return int(plan["numBytesToRemove"]) // len(PARTS) + 1


def commits(table: Path, since: int) -> list[dict[str, Any]]:
    """Oldest first."""
    return [entry for entry in reversed(Table(str(table)).history()) if entry["version"] > since]


def killing(at: int) -> WatchedEngine:
    def after(number: int) -> None:
        if number == at:
            raise Killed

    return WatchedEngine(after)


def test_batches_are_committed_as_they_are_full_and_only_the_last_ends_the_run(table: Path) -> None:
    report = run(
        table, batch_size_bytes=two_bins(table), transaction=TransactionId("app", 7), run_id="nightly"
    )
    found = commits(table, since=1)
    assert [entry["tags"]["delta-maintenance.batch"] for entry in found] == ["1", "2", "3"]
    assert {entry["tags"]["delta-maintenance.run"] for entry in found} == {"nightly"}
    assert ["delta-maintenance.transaction" in entry["tags"] for entry in found] == [False, False, True]
    assert [entry["operationMetrics"]["numRemovedFiles"] for entry in found] == [4, 4, 4]
    assert Table(str(table)).snapshot().transactions == {"app": 7}
    assert (report.num_batches, report.version, report.metrics["numRemovedFiles"]) == (3, 4, 12)
    assert report.read_version == 1
    assert {entry["readVersion"] for entry in found} == {1}
    assert (ids(table), len(keys(table))) == (IDS, len(PARTS))
    assert not (table / "_maintenance").exists()


def test_without_batches_there_is_one_commit_and_no_word_of_them(table: Path) -> None:
    report = run(table)
    (entry,) = commits(table, since=1)
    assert "delta-maintenance.batch" not in entry["tags"]
    assert report.num_batches is None


@pytest.mark.parametrize("at", range(1, len(PARTS) + 1))
def test_a_killed_run_goes_on_where_it_stopped(table: Path, at: int) -> None:
    size = two_bins(table)
    first = killing(at)
    with pytest.raises(Killed):
        run(table, engine=first, batch_size_bytes=size, transaction=TransactionId("app", 7))
    batches = at // 2 if at < len(PARTS) else 2
    assert Table(str(table)).snapshot().version == 1 + batches
    assert Table(str(table)).snapshot().transactions == {}
    second = WatchedEngine()
    report = run(table, engine=second, batch_size_bytes=size, transaction=TransactionId("app", 7))
    assert len(second.given) == len(PARTS) - at, "no bin that was finished is rewritten again"
    assert not set(second.given) & set(first.given[:at])
    assert (report.status, report.num_batches, report.metrics["numRemovedFiles"]) == ("committed", 3, 12)
    assert (ids(table), len(keys(table))) == (IDS, len(PARTS))
    numbers = [entry["tags"]["delta-maintenance.batch"] for entry in commits(table, since=1)]
    assert numbers == ["1", "2", "3"]
    third = run(table, batch_size_bytes=size, transaction=TransactionId("app", 7))
    assert (third.status, third.version) == ("already_done", report.version)
    assert not (table / "_maintenance").exists()


def test_rows_that_come_in_between_do_not_undo_what_was_finished(table: Path) -> None:
    size = two_bins(table)
    with pytest.raises(Killed):
        run(table, engine=killing(3), batch_size_bytes=size)
    more = pa.table({"id": [99] * len(PARTS), "part": list(PARTS)})
    deltalake.write_deltalake(str(table), more, mode="append")
    second = WatchedEngine()
    report = run(table, engine=second, batch_size_bytes=size)
    # The third bin's files had been replaced but not committed; the new rows of a, b and c have no company.
    assert len(second.given) == 3
    assert report.metrics["numRemovedFiles"] == 6 + 9
    assert ids(table) == sorted([*IDS, *[99] * len(PARTS)])


def test_what_was_finished_for_another_schema_is_done_again(table: Path) -> None:
    size = two_bins(table)
    with pytest.raises(Killed):
        run(table, engine=killing(3), batch_size_bytes=size)
    before = set(keys(table))
    field = deltalake.Field("later", deltalake.schema.PrimitiveType("long"))
    deltalake.DeltaTable(str(table)).alter.add_columns([field])
    second = WatchedEngine()
    report = run(table, engine=second, batch_size_bytes=size)
    assert len(second.given) == 4, "the third bin's files were written before the column came"
    assert report.metrics["numRemovedFiles"] == 12
    assert (ids(table), len(keys(table))) == (IDS, len(PARTS))
    for key in set(keys(table)) - before:
        assert "later" in pq.ParquetFile(table / key).schema_arrow.names


def test_numbers_that_an_identity_column_has_given_meanwhile_undo_nothing(table: Path) -> None:
    def give(mark: int) -> None:
        snapshot = Table(str(table)).snapshot()
        schema = json.loads(snapshot.metadata.schemaString)
        schema["fields"][0]["metadata"]["delta.identity.highWaterMark"] = mark
        metadata = msgspec.to_builtins(snapshot.metadata) | {"schemaString": json.dumps(schema)}
        (table / commit_key(snapshot.version + 1)).write_text(json.dumps({"metaData": metadata}) + "\n")

    give(10)
    with pytest.raises(Killed):
        run(table, engine=killing(3))
    give(20)
    second = WatchedEngine()
    assert run(table, engine=second).status == "committed"
    assert len(second.given) == 3
    assert (ids(table), len(keys(table))) == (IDS, len(PARTS))


def test_a_run_whose_rest_another_run_did_ends_with_a_commit_without_files(table: Path) -> None:
    with pytest.raises(Killed):
        run(table, engine=killing(2), batch_size_bytes=two_bins(table), transaction=TransactionId("app", 7))
    assert run(table, run_id="other").status == "committed"
    told = Told()
    report = run(table, batch_size_bytes=1, transaction=TransactionId("app", 7), progress=told)
    assert (report.status, report.metrics["numRemovedFiles"]) == ("committed", 4)
    assert [text for text in told.texts if text.startswith("committing")] == [
        "committing that the run is finished"
    ]
    last = commits(table, since=1)[-1]
    assert last["operationMetrics"]["numRemovedFiles"] == 0
    assert Table(str(table)).snapshot().transactions == {"app": 7}


@pytest.mark.parametrize("at", [1, 2, 3, 5])
def test_a_conflict_costs_its_bin_and_the_other_batches_stand(table: Path, at: int) -> None:
    """Whether it came before the first batch, which it did not concern, or after it."""
    last = plan_optimize(Table(str(table)).snapshot(), OptimizeOptions(), 0).bins[-1].partition_values["part"]
    row = PARTS.index(str(last))

    def delete_a_row(number: int) -> None:
        if number == at:
            deltalake.DeltaTable(str(table)).delete(f"id = {row}")

    report = run(table, engine=WatchedEngine(delete_a_row), batch_size_bytes=two_bins(table))
    assert (report.status, report.dropped_bins) == ("committed", 1)
    assert [d["partition_values"]["part"] for d in report.dropped or ()] == [last]
    assert report.metrics["numRemovedFiles"] == 10
    assert ids(table) == [n for n in IDS if n != row]
    # One of the two files of that partition had nothing but the row.
    assert len(keys(table)) == 5 + 1


def test_where_every_bin_of_every_batch_is_lost_the_run_is_lost(table: Path) -> None:
    before = Table(str(table)).snapshot().version

    def rewrite_everything(number: int) -> None:
        if number == 1:
            deltalake.DeltaTable(str(table)).update({"id": "id + 100"})

    with pytest.raises(ConcurrentDelete):
        run(table, engine=WatchedEngine(rewrite_everything), batch_size_bytes=two_bins(table))
    assert Table(str(table)).snapshot().version == before + 1


def test_an_error_after_a_batch_is_told_with_what_was_committed(table: Path) -> None:
    def change_schema(number: int) -> None:
        if number == 2:
            deltalake.DeltaTable(str(table)).alter.set_table_properties(
                {"delta.dataSkippingNumIndexedCols": "1"}
            )

    report = run(table, engine=WatchedEngine(change_schema), batch_size_bytes=two_bins(table))
    assert report.status == "failed"
    assert report.error is not None
    assert report.error.type == MetadataChanged.__name__
    assert (report.version, report.num_batches, report.metrics["numRemovedFiles"]) == (2, 1, 4)
    assert report.exit_code == 3


@pytest.mark.parametrize(("budget", "bins"), [({"max_files": 5}, 2), ({"max_files": 12}, 6)])
def test_a_budget_of_files_leaves_the_rest_for_the_next_run(
    table: Path, budget: dict[str, Any], bins: int
) -> None:
    report = run(table, **budget)
    assert report.metrics["numAddedFiles"] == bins
    left = None if bins == len(PARTS) else (report.left or {})["files"]
    assert left == (None if bins == len(PARTS) else 12 - 2 * bins)
    rest = run(table, run_id="next")
    assert rest.status == ("nothing_to_do" if bins == len(PARTS) else "committed")
    assert len(keys(table)) == len(PARTS)


def test_when_its_time_is_over_a_run_begins_nothing_more_and_commits_what_is_finished(table: Path) -> None:
    past = Runtime(now_ms=lambda: 1_000_000)
    report = run(table, runtime=past, max_duration_seconds=60, transaction=TransactionId("app", 1))
    assert (report.status, report.metrics["numAddedFiles"]) == ("committed", 1)
    assert (report.left or {})["bins"] == len(PARTS) - 1
    assert Table(str(table)).snapshot().transactions == {"app": 1}
    assert ids(table) == IDS


def test_a_budget_is_that_of_the_run_and_not_of_each_of_its_tries(table: Path) -> None:
    with pytest.raises(Killed):
        run(table, engine=killing(2), batch_size_bytes=two_bins(table), max_files=8)
    report = run(table, batch_size_bytes=10**9, max_files=8)
    assert (report.metrics["numRemovedFiles"], (report.left or {})["files"]) == (8, 4)
