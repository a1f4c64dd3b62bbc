from __future__ import annotations

import pytest

from delta_log.errors import CorruptLog
from delta_maintenance.contract import JobSpec
from delta_maintenance.engine.engine import (
    LOCAL_BYTES,
    LOCAL_FILES,
    TaskFailed,
    WorkerDied,
    choose_engine,
    choose_lister,
    describe_error,
)

LITTLE, MUCH = 1 << 20, LOCAL_BYTES + 1


@pytest.mark.parametrize(
    ("planned_bytes", "spark_master", "can_use_spark", "engine", "because"),
    [
        (LITTLE, "yarn", True, "local", "before a Spark session has started"),
        (LOCAL_BYTES, None, False, "local", "before a Spark session has started"),
        (MUCH, "local[*]", True, "local", "Spark would add nothing"),
        (MUCH, "yarn", True, "spark", "master yarn has other machines"),
        (MUCH, "yarn", False, None, "more than the 16.0 GiB"),
        (MUCH, None, True, "spark", "this is a Spark driver"),
        (MUCH, None, False, None, "more than the 16.0 GiB"),
    ],
)
def test_auto_weighs_the_plan_against_the_master_and_says_why(
    planned_bytes: int, spark_master: str | None, can_use_spark: bool, engine: str | None, because: str
) -> None:
    choice = choose_engine(
        JobSpec("optimize", "t", "r"), planned_bytes, spark_master=spark_master, can_use_spark=can_use_spark
    )
    assert choice.engine == engine
    assert because in choice.reason


@pytest.mark.parametrize(
    ("files", "spark_master", "can_use_spark", "engine", "because"),
    [
        (LOCAL_FILES, "yarn", True, "local", "before a Spark session has started"),
        (LOCAL_FILES + 1, "local[*]", True, "local", "Spark would add nothing"),
        (LOCAL_FILES + 1, "yarn", True, "spark", "master yarn has other machines"),
        (LOCAL_FILES + 1, "yarn", False, None, "more than 2,000,000"),
        (LOCAL_FILES + 1, None, True, "spark", "this is a Spark driver"),
        # Slow is better than not at all.
        (LOCAL_FILES + 1, None, False, "local", "no Spark master is known"),
    ],
)
def test_who_lists_is_decided_by_what_the_log_knows(
    files: int, spark_master: str | None, can_use_spark: bool, engine: str | None, because: str
) -> None:
    choice = choose_lister(
        JobSpec("vacuum", "t", "r"), lambda: files, spark_master=spark_master, can_use_spark=can_use_spark
    )
    assert choice.engine == engine
    assert because in choice.reason


def test_nobody_counts_files_where_it_makes_no_difference() -> None:
    def count() -> int:
        raise AssertionError

    for engine, master, can_use_spark in (
        ("spark", "yarn", True),
        ("auto", "local[2]", True),
        ("auto", None, False),
    ):
        spec = JobSpec("vacuum", "t", "r", engine=engine)
        choose_lister(spec, count, spark_master=master, can_use_spark=can_use_spark)


@pytest.mark.parametrize("engine", ["local", "spark"])
def test_who_asks_for_an_engine_gets_it(engine: str) -> None:
    spec = JobSpec("optimize", "t", "r", engine=engine)
    choice = choose_engine(spec, MUCH, spark_master=None, can_use_spark=False)
    assert (choice.engine, choice.reason) == (engine, "asked for")


def test_an_error_of_ours_is_described_with_its_facts() -> None:
    description = describe_error(CorruptLog("part-0.parquet", "it is empty"))
    assert description["type"] == "CorruptLog"
    assert (description["kind"], description["retryable"]) == ("refused", False)
    assert (description["path"], description["why"]) == ("part-0.parquet", "it is empty")


def test_an_error_that_nobody_foresaw_may_be_retried() -> None:
    description = describe_error(MemoryError())
    assert description == {
        "type": "MemoryError",
        "message": "no message",
        "retryable": True,
        "kind": "failed",
    }


def test_the_error_of_a_task_is_described_as_what_it_was_where_it_happened() -> None:
    original = describe_error(CorruptLog("part-0.parquet", "it is empty"))
    failed = TaskFailed("bin7", original)
    assert describe_error(failed) == {**original, "bin_id": "bin7"}
    assert str(failed) == original["message"]
    assert not failed.retryable


def test_a_dead_worker_is_told_by_bin_and_exit_code() -> None:
    description = describe_error(WorkerDied("bin7", -9, 3 << 20, 12))
    assert (
        "bin7 (12 files, 3.0 MiB) ended with signal 9. Perhaps the machine ran out of memory"
        in description["message"]
    )
    assert (description["bin_id"], description["exit_code"]) == ("bin7", -9)
    assert description["retryable"]
