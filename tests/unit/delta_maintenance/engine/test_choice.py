from __future__ import annotations

import pytest

from delta_maintenance.contract import JobSpec
from delta_maintenance.engine.choice import (
    LOCAL_BYTES,
    LOCAL_FILES,
    choose_engine,
    choose_lister,
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


def test_files_are_not_counted_where_it_makes_no_difference() -> None:
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
