from __future__ import annotations

from delta_log.errors import CorruptLog
from delta_maintenance.engine.engine import TaskFailed, WorkerDied, describe_error


def test_a_known_error_is_described_with_its_facts() -> None:
    description = describe_error(CorruptLog("part-0.parquet", "it is empty"))
    assert description["type"] == "CorruptLog"
    assert (description["kind"], description["retryable"]) == ("refused", False)
    assert (description["path"], description["why"]) == ("part-0.parquet", "it is empty")


def test_an_error_of_an_unknown_type_may_be_retried() -> None:
    description = describe_error(MemoryError())
    assert description == {
        "type": "MemoryError",
        "message": "no message",
        "retryable": True,
        "kind": "failed",
    }


def test_the_error_of_a_task_keeps_its_description() -> None:
    original = describe_error(CorruptLog("part-0.parquet", "it is empty"))
    failed = TaskFailed("bin7", original)
    assert describe_error(failed) == {**original, "bin_id": "bin7"}
    assert str(failed) == original["message"]
    assert not failed.retryable


def test_a_dead_worker_is_reported_with_its_bin_and_exit_code() -> None:
    description = describe_error(WorkerDied("bin7", -9, 3 << 20, 12))
    assert (
        "bin7 (12 files, 3.0 MiB) ended with signal 9. Perhaps the machine ran out of memory"
        in description["message"]
    )
    assert (description["bin_id"], description["exit_code"]) == ("bin7", -9)
    assert description["retryable"]
