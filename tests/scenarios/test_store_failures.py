"""A store that fails at any call of a maintenance job: the report has an error of ours, or the job is done."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest
from tests.support.tables.aged_logs import RUNTIME as LOG_RUNTIME
from tests.support.tables.random_log import DAY_MS, NOW_MS
from tests.support.tables.vacuum_histories import History, metadata

from delta_log import Table, errors
from delta_log.errors import StorageError
from delta_log.log.file_names import LAST_CHECKPOINT, commit_key
from delta_log.runtime import Runtime
from delta_log.testing import FaultyStorage, MemoryStorage
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.job import JobSite, run_on
from delta_maintenance.progress import SilentProgress
from delta_maintenance.vacuum.lite import LAST_VACUUM_INFO

RUNTIME = Runtime(now_ms=LOG_RUNTIME.now_ms, sleep=lambda seconds: None)
VACUUM = {"retain_hours": 0, "retention_check": False}


def table() -> MemoryStorage:
    """A file that was removed long ago, an orphan, and a checkpoint that a log cleanup can begin with."""
    history = History()
    properties = {"delta.logRetentionDuration": "interval 3 days", "delta.checkpointPolicy": "v2"}
    features = ["deletionVectors", "v2Checkpoint"]
    protocol = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": features,
        "writerFeatures": [*features, "domainMetadata"],
    }
    history.commit([{"protocol": protocol}, {"metaData": metadata(properties)}], NOW_MS - 12 * DAY_MS)
    for number, key in enumerate(("a", "b", "p=1/c", "p=1/d")):
        history.put(key, NOW_MS - (11 - number) * DAY_MS)
        history.live[key] = None
        history.commit([{"commitInfo": {}}, history.add(key)], NOW_MS - (11 - number) * DAY_MS)
    history.storage._clock_ms = NOW_MS - 7 * DAY_MS
    assert run(history.storage, "checkpoint").error is None
    removed = history.remove("a", NOW_MS - 6 * DAY_MS)
    del history.live["a"]
    history.commit([{"commitInfo": {}}, removed], NOW_MS - 6 * DAY_MS)
    history.put("p=1/orphan", NOW_MS - 11 * DAY_MS)
    history.storage._clock_ms = NOW_MS
    return history.storage


def with_a_quarantine() -> MemoryStorage:
    storage = table()
    report = run(storage, "vacuum", **VACUUM, quarantine=True)
    assert report.error is None
    assert report.metrics["numDeletedFiles"] == 2
    return storage


def with_a_missing_file() -> MemoryStorage:
    storage = table()
    file = {"path": "p=1/e", "size": 1, "partitionValues": {"p": "1", "_p": None}}
    add = {**file, "modificationTime": 1, "dataChange": True}
    storage.put(commit_key(6), json.dumps({"add": add}).encode())
    return storage


def run(storage: Any, operation: str, **options: Any) -> JobReport:
    opened = Table("/the/store/is/replaced")
    opened.storage = storage
    site = JobSite(runtime=RUNTIME)
    return run_on(opened, JobSpec(operation, opened.uri, "test-run", options), site, SilentProgress())


@dataclass
class Job:
    operation: str
    options: dict[str, Any] = field(default_factory=dict)
    make: Callable[[], MemoryStorage] = table

    def __str__(self) -> str:
        return "-".join([self.operation, *self.options])


JOBS = [
    Job("checkpoint"),
    Job("checkpoint", {"if_due": True, "compact_log": True, "cleanup_log": True, "repair_checksum": True}),
    Job("vacuum", VACUUM),
    Job("vacuum", {**VACUUM, "lite": True}),
    Job("vacuum", {**VACUUM, "quarantine": True}),
    Job("vacuum", {**VACUUM, "purge_quarantine_hours": 0}, with_a_quarantine),
    Job("cleanup-log"),
    Job("compact-log"),
    Job("restore", {"to_version": 4}),
    Job("drop-feature", {"feature": "v2Checkpoint"}),
    Job("generate"),
    Job("analyze"),
    Job("repair", {"remove_missing": True}, with_a_missing_file),
    Job("restore-quarantine", {}, with_a_quarantine),
]
WRITES = ("put", "put_if_absent", "open_write", "copy", "delete")
OURS = {name for name, value in vars(errors).items() if isinstance(value, type)} | {
    "CheckpointMismatch",
    "LiveFilesMissing",
    "LogCleanupIncomplete",
    "RestoreRefused",
    "VacuumIncomplete",
    "VacuumRefused",
    "UnreadableCheckpoint",
}


@pytest.mark.parametrize("job", JOBS, ids=str)
def test_every_failure_of_the_store_is_one_of_ours(job: Job) -> None:
    """Each call fails in some library's words; each write fails after it took effect, in ours."""
    calls: list[str] = []
    start = job.make()
    before = dict(start.objects)
    clean = run(FaultyStorage(start, lambda name, key: calls.append(name)), job.operation, **job.options)
    assert clean.error is None, clean.error
    cases: list[tuple[int, str, Exception]] = [(at, "before", OSError(5, "down")) for at in range(len(calls))]
    written = [at for at, name in enumerate(calls) if name in WRITES]
    cases += [(at, "after", StorageError("down", "a")) for at in written]
    for at, moment, error in cases:
        storage, left = MemoryStorage(start.uri), [at]
        storage.objects, storage._clock_ms = dict(before), NOW_MS

        def fail(name: str, key: str, left: list[int] = left, error: Exception = error) -> None:
            left[0] -= 1
            if left[0] == -1:
                raise error

        report = run(FaultyStorage(storage, **{moment: fail}), job.operation, **job.options)
        assert report.error is None or report.error.type in OURS, (calls[at], report.error)
        assert storage.objects.keys() >= {"b", "p=1/c", "p=1/d"}
        if calls[at] in WRITES:
            again = run(storage, job.operation, **job.options)
            assert again.error is None, (calls[at], again.error)


@pytest.mark.parametrize("job", JOBS, ids=str)
def test_a_table_that_is_dropped_at_any_moment_is_not_called_broken(job: Job) -> None:
    calls: list[str] = []
    start = job.make()
    before = dict(start.objects)
    run(FaultyStorage(start, lambda name, key: calls.append(name)), job.operation, **job.options)
    ends = set()
    for at in range(len(calls)):
        storage, left = MemoryStorage(start.uri), [at]
        storage.objects, storage._clock_ms = dict(before), NOW_MS

        def drop(name: str, key: str, left: list[int] = left, storage: MemoryStorage = storage) -> None:
            left[0] -= 1
            if left[0] == -1:
                storage.objects.clear()

        report = run(FaultyStorage(storage, drop), job.operation, **job.options)
        ends.add(report.status if report.error is None else report.error.type)
        if report.error is not None and report.error.type == "TableDropped":
            assert "dropped or moved while this ran" in (report.error.message or "")
            assert (report.error.kind, report.error.retryable) == ("refused", False)
    assert "TableDropped" in ends
    # Before the first look there was no table; a file that the run itself had just written is missed by its name.
    assert ends <= {"TableDropped", "NotATable", "TableReplaced", "StorageError"} | {
        "written",
        "committed",
        "cleaned",
        "restored",
        "nothing_to_do",
    }


def failing_at(wanted: str) -> FaultyStorage:
    def fail(name: str, key: str) -> None:
        if (name, key) == ("put", wanted):
            raise OSError(28, "No space left on device")

    return FaultyStorage(table(), before=fail)


def test_a_checkpoint_whose_pointer_cannot_be_moved_is_written_all_the_same() -> None:
    report = run(failing_at(LAST_CHECKPOINT), "checkpoint")
    assert (report.status, report.error) == ("written", None)
    assert report.plan is not None
    assert "could not be moved" in report.plan["warnings"][0]
    assert "No space left" in report.plan["warnings"][0]


def test_a_vacuum_that_cannot_leave_its_note_is_done_all_the_same() -> None:
    report = run(failing_at(LAST_VACUUM_INFO), "vacuum", **VACUUM)
    assert (report.status, report.error) == ("committed", None)
    assert report.plan is not None
    assert "for the next lite vacuum no note could be left" in report.plan["warnings"][-1]
    assert report.metrics["numDeletedFiles"] == 2


def test_commits_that_come_to_nothing_are_nothing_to_compact() -> None:
    storage = table()
    assert run(storage, "checkpoint").status == "written"
    assert run(storage, "vacuum", **VACUUM).status == "committed"
    report = run(storage, "compact-log")
    assert (report.status, report.error) == ("nothing_to_do", None)
    assert report.plan is not None
    assert "come to nothing at all" in report.plan["reason"]
    due = run(storage, "checkpoint", if_due=True, compact_log=True)
    assert due.error is None
    names = [key for key in storage.objects if "compacted" in key]
    assert not names, json.dumps(names)
