"""Waiting for a gap between other writers' statements, with the real code and writers that act while it sleeps."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from tests.support.runs.maintenance_runs import (
    WatchedEngine,
    enable_deletion_vectors,
    manifests,
    mark_deleted,
    run,
)
from tests.support.tables.busy_logs import write_statements
from tests.support.tables.small_tables import write_parts

from delta_log import Table
from delta_log.errors import InvalidRequest, StorageError
from delta_log.runtime import Runtime
from delta_log.storage.local.local_storage import LocalStorage
from delta_maintenance.contract import JobReport, TransactionId
from delta_maintenance.errors import CommitPostponed
from delta_maintenance.text.report import render_report

#: When the test began. Commits of the helpers carry the real time, and a pause that is as old as this module is a long one.
START_MS = 0


@pytest.fixture(autouse=True)
def _begin_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "START_MS", time.time_ns() // 1_000_000)


@dataclass
class Clock:
    """A clock that only waiting moves on, and what happens meanwhile.

    :param events: by the second at which they happen, each done once.
    """

    events: dict[float, Callable[[], object]] = field(default_factory=dict)
    now_ms: float = field(default_factory=lambda: START_MS)

    @property
    def second(self) -> float:
        return (self.now_ms - START_MS) / 1000

    def sleep(self, seconds: float) -> None:
        self.now_ms += 1000 * seconds
        for at in sorted(self.events):
            if at <= self.second:
                self.events.pop(at)()

    @property
    def runtime(self) -> Runtime:
        return Runtime(now_ms=lambda: int(self.now_ms), sleep=self.sleep)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two small files in each of three partitions, with deletion vectors switched on."""
    write_parts(tmp_path / "t", "abc")
    enable_deletion_vectors(tmp_path / "t")
    return tmp_path / "t"


def statements(table: Path, part: str, times: int, every_seconds: float, took_seconds: float) -> None:
    """Statements of another writer in one partition, the last one now."""
    write_statements(
        table, part, times, every_seconds=every_seconds, took_seconds=took_seconds, until_ms=START_MS
    )


def delete(table: Path, part: str) -> Callable[[], object]:
    """Another writer's DELETE of the first row of a partition."""

    def act() -> None:
        live = Table(str(table)).snapshot().files(["key"]).column("key").to_pylist()
        key = next(live_key for live_key in sorted(live) if live_key.startswith(f"part={part}/"))
        mark_deleted(table, {key: [0]})

    return act


def ids(table: Path) -> list[int]:
    return sorted(Table(str(table)).snapshot().to_arrow(columns=["id"])["id"].to_pylist())


def waited(report: JobReport) -> dict[str, Any]:
    assert report.commit_wait is not None
    return dict(report.commit_wait)


def decisions(report: JobReport) -> list[str]:
    return [moment["decision"] for moment in waited(report)["moments"]]


def test_where_nobody_changes_rows_nothing_is_waited_for(table: Path) -> None:
    clock = Clock()
    report = run(table, commit_when="gap", runtime=clock.runtime)
    assert (report.status, decisions(report), clock.second) == ("committed", ["quiet"], 0)
    assert "no other writer was changing rows" in render_report(report.to_dict())
    assert len(Table(str(table)).history()) == report.version + 1  # type: ignore[operator]


def test_bins_of_quiet_partitions_go_first_and_the_busy_one_behind_a_statement(table: Path) -> None:
    statements(table, "b", 10, every_seconds=2, took_seconds=1.9)
    clock = Clock({3.0: delete(table, "b")})
    before = ids(table)
    report = run(
        table, commit_when="gap", remap=True, runtime=clock.runtime, transaction=TransactionId("app", 1)
    )
    assert report.status == "committed"
    assert decisions(report) == ["quiet", "behind"]
    assert waited(report)["commits_seen"] == 1
    assert waited(report)["waited_ms"] == pytest.approx(3_000, abs=20)
    quiet, foreign, behind = list(reversed(Table(str(table)).history()))[-3:]
    assert [entry["operation"] for entry in (quiet, foreign, behind)] == ["OPTIMIZE", "DELETE", "OPTIMIZE"]
    assert quiet["operationMetrics"]["numRemovedFiles"] == 4
    assert behind["operationMetrics"]["numRemovedFiles"] == 2
    # How long the commit waited says nothing about how long the next rewrite takes.
    assert int(behind["tags"]["delta-maintenance.rewrite-ms"]) < 1_000
    assert Table(str(table)).snapshot().transactions == {"app": 1}
    assert report.remapped_bins == 1
    assert len(ids(table)) == len(before) - 1
    assert set(ids(table)) < set(before)


def test_when_the_moment_has_come_only_new_vectors_are_read(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = pa.table({"id": [31, 32], "part": ["b", "b"]})
    deltalake.write_deltalake(str(table), rows, mode="append")
    delete(table, "b")()
    statements(table, "b", 10, every_seconds=2, took_seconds=1.9)
    clock = Clock({3.0: delete(table, "b")})
    asked: list[tuple[str, float]] = []
    read = LocalStorage.read

    def noting(self: LocalStorage, key: str, *args: Any) -> bytes:
        if "deletion_vector" in key:
            asked.append((key, clock.second))
        return read(self, key, *args)

    monkeypatch.setattr(LocalStorage, "read", noting)
    report = run(table, where="part = 'b'", commit_when="gap", remap=True, full=True, runtime=clock.runtime)
    assert (decisions(report), report.remapped_bins) == (["behind"], 1)
    at_the_moment = [key for key, second in asked if second > 2]
    assert len(at_the_moment) == len(set(at_the_moment))
    assert not set(at_the_moment) & {key for key, second in asked if second < 2}


def test_an_append_is_no_moment_to_commit_behind(table: Path) -> None:
    statements(table, "b", 10, every_seconds=2, took_seconds=1.9)
    row = pa.table({"id": [77], "part": ["b"]})

    def append() -> None:
        deltalake.write_deltalake(str(table), row, mode="append")

    clock = Clock({1.0: append, 2.5: delete(table, "b")})
    report = run(table, where="part = 'b'", commit_when="gap", remap=True, runtime=clock.runtime)
    assert decisions(report) == ["behind"]
    assert waited(report)["waited_ms"] == pytest.approx(2_500, abs=20)
    assert waited(report)["commits_seen"] == 2


@pytest.mark.parametrize(
    ("count", "waited_ms"), [(40, 3_800), (10, 60_000)], ids=["twice the longest statement", "a minute"]
)
def test_writers_that_fall_silent_are_not_waited_for_any_longer(
    table: Path, count: int, waited_ms: int
) -> None:
    """Few statements do not tell how long the next one takes."""
    statements(table, "b", count, every_seconds=2, took_seconds=1.9)
    clock = Clock()
    report = run(table, where="part = 'b'", commit_when="gap", runtime=clock.runtime)
    assert decisions(report) == ["silence"]
    assert waited(report)["waited_ms"] == pytest.approx(waited_ms, abs=20)


def test_a_long_pause_between_statements_is_a_gap(table: Path) -> None:
    statements(table, "b", 60, every_seconds=60, took_seconds=1)
    clock = Clock()
    report = run(table, where="part = 'b'", commit_when="gap", runtime=clock.runtime)
    assert (decisions(report), clock.second) == (["between"], 0)


def busy(table: Path) -> None:
    statements(table, "b", 60, every_seconds=60, took_seconds=59)


def test_after_the_longest_wait_the_bins_are_committed_all_the_same(table: Path) -> None:
    busy(table)
    clock = Clock()
    report = run(table, where="part = 'b'", commit_when="gap", max_wait_seconds=5, runtime=clock.runtime)
    assert (report.status, decisions(report)) == ("committed", ["give_up"])
    assert clock.second == pytest.approx(5, abs=0.02)
    assert waited(report)["requests"] > 400


def test_or_they_are_left_to_the_next_try_which_takes_them_over(table: Path) -> None:
    busy(table)
    before = Table(str(table)).snapshot().version
    leave: dict[str, Any] = {"commit_when": "gap", "max_wait_seconds": 5, "after_max_wait": "leave"}
    with pytest.raises(CommitPostponed, match=r"for 5 s.*1 finished bin .*next try") as caught:
        run(table, where="part = 'b'", runtime=Clock().runtime, **leave)
    assert caught.value.retryable
    assert caught.value.facts()["waited_ms"] >= 5_000
    assert Table(str(table)).snapshot().version == before
    assert len(manifests(table)) == 1
    clock = Clock({2.0: delete(table, "a"), 3.0: delete(table, "b")})
    report = run(table, where="part = 'b'", remap=True, runtime=clock.runtime, **leave)
    assert report.earlier_tries == {"bins": 1, "files": 2, "bytes": report.earlier_tries["bytes"]}  # type: ignore[index]
    assert (decisions(report), report.remapped_bins) == (["behind"], 1)
    assert waited(report)["waited_ms"] == pytest.approx(3_000, abs=20)
    assert manifests(table) == []


def test_quiet_partitions_stay_committed_where_the_busy_one_is_left(table: Path) -> None:
    busy(table)
    report = run(
        table,
        commit_when="gap",
        max_wait_seconds=5,
        after_max_wait="leave",
        runtime=Clock().runtime,
        transaction=TransactionId("app", 1),
    )
    assert (report.status, report.metrics["numRemovedFiles"]) == ("failed", 4)
    assert report.error is not None
    assert (report.error.type, report.error.retryable) == ("CommitPostponed", True)
    assert decisions(report) == ["quiet", "give_up"]
    # The run as a whole is not done.
    assert Table(str(table)).snapshot().transactions == {}
    again = run(table, commit_when="gap", max_wait_seconds=5, runtime=Clock().runtime)
    assert (again.status, again.metrics["numRemovedFiles"]) == ("committed", 6)


def test_batches_keep_busy_partitions_back(table: Path) -> None:
    statements(table, "a", 10, every_seconds=2, took_seconds=1.9)
    clock = Clock({3.0: delete(table, "a")})
    report = run(table, commit_when="gap", batch_size_bytes=1, remap=True, runtime=clock.runtime)
    assert (report.status, report.num_batches) == ("committed", 3)
    assert decisions(report)[-1] == "behind"
    removed = [
        entry["operationMetrics"]["numRemovedFiles"]
        for entry in reversed(Table(str(table)).history())
        if entry["operation"] == "OPTIMIZE"
    ]
    assert removed == [2, 2, 2]


def test_a_store_that_fails_while_it_is_waited_for_does_not_end_the_wait(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements(table, "b", 10, every_seconds=2, took_seconds=1.9)
    clock = Clock({3.0: delete(table, "b")})
    read = LocalStorage.read

    def failing(self: LocalStorage, key: str, *args: Any) -> bytes:
        if 1 < clock.second < 2:
            raise StorageError("503", key)
        return read(self, key, *args)

    monkeypatch.setattr(LocalStorage, "read", failing)
    report = run(table, where="part = 'b'", commit_when="gap", remap=True, runtime=clock.runtime)
    assert decisions(report) == ["behind"]


def test_a_statement_that_an_outage_hid_is_not_taken_for_one_of_this_moment(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statements(table, "b", 10, every_seconds=20, took_seconds=19)
    read = LocalStorage.read
    down = False

    def outage(begins: bool) -> None:
        nonlocal down
        down = begins

    def hidden() -> None:
        outage(False)
        delete(table, "b")()
        outage(True)

    clock = Clock({2.0: lambda: outage(True), 3.0: hidden, 5.0: lambda: outage(False)})

    def failing(self: LocalStorage, key: str, *args: Any) -> bytes:
        if down:
            raise StorageError("503", key)
        return read(self, key, *args)

    monkeypatch.setattr(LocalStorage, "read", failing)
    report = run(table, where="part = 'b'", commit_when="gap", remap=True, runtime=clock.runtime)
    assert decisions(report) == ["silence"]
    assert waited(report)["commits_seen"] == 1


def test_where_nothing_is_waited_for_no_vectors_are_read_ahead(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    delete(table, "b")()
    asked: list[str] = []
    read = LocalStorage.read

    def noting(self: LocalStorage, key: str, *args: Any) -> bytes:
        asked.append(key)
        return read(self, key, *args)

    given = WatchedEngine(lambda _: asked.clear())
    monkeypatch.setattr(LocalStorage, "read", noting)
    report = run(
        table,
        "purge",
        commit_when="gap",
        remap=True,
        max_deleted_rows_ratio=0.0,
        engine=given,
        # Long after the DELETE.
        runtime=Clock(now_ms=START_MS + 600_000).runtime,
    )
    assert (decisions(report), waited(report)["waited_ms"]) == (["silence"], 0)
    assert [key for key in asked if "deletion_vector" in key] == []


def test_a_purge_waits_too(table: Path) -> None:
    delete(table, "b")()
    statements(table, "b", 10, every_seconds=2, took_seconds=1.9)
    clock = Clock()
    report = run(table, "purge", commit_when="gap", max_deleted_rows_ratio=0.0, runtime=clock.runtime)
    assert (report.status, decisions(report)) == ("committed", ["silence"])


@pytest.mark.parametrize("options", [{"max_wait_seconds": 5}, {"after_max_wait": "leave"}])
def test_a_limit_without_a_wait_is_refused(table: Path, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest, match="commit_when"):
        run(table, **options)
