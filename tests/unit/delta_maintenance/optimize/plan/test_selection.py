from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.support.tables.written_log import add, deletion_vector, write_log

from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.plan.selection import LEFT_REASONS, Selection
from delta_maintenance.rewrite.task import REWRITE_TAG
from delta_maintenance.text.selection import LEFT_WORDS, left_text

DAY_MS = 86_400_000


def select(
    table: Path, adds: list[dict[str, Any]], *, now_ms: int = 0, purge: bool = False, **options: Any
) -> Selection:
    snapshot = write_log(table, adds, partition_by={"d": "string"})
    return plan_optimize(snapshot, OptimizeOptions(purge=purge, **options), now_ms).selection


def left(selection: Selection) -> dict[str, int]:
    return {reason: count.files for reason, count in selection.left.items()}


def file(day: str, number: int, size: int, **more: Any) -> dict[str, Any]:
    return add(f"d={day}/{number}", size, {"d": day}, **more)


def test_each_file_is_chosen_or_left_for_one_reason(tmp_path: Path) -> None:
    adds = [
        *(file("pair", number, 10) for number in range(2)),
        file("one", 0, 10),
        *(file("large", number, 200) for number in range(3)),
        # The second is too large for the first, and together they exceed the target.
        file("odd", 0, 10),
        file("odd", 1, 95),
    ]
    found = select(tmp_path, adds, target_size_bytes=100, min_file_size_bytes=100)
    assert (found.table.files, found.table.bytes) == (8, sum(one["size"] for one in adds))
    assert (found.chosen.files, found.bins, found.partitions) == (2, 1, 1)
    assert found.chosen_by_reason == {"small": 2}
    assert left(found) == {"large_enough": 3, "alone": 1, "too_large_together": 2}


def small(*sizes: int) -> list[dict[str, Any]]:
    return [file("a", number, size) for number, size in enumerate(sizes)]


def with_deleted(*deleted: int) -> list[dict[str, Any]]:
    return [
        file("a", number, 80, stats='{"numRecords": 10}', deletionVector=deletion_vector(rows))
        for number, rows in enumerate(deleted)
    ]


#: By reason: files, options, and how many files are left for it, where the target is 100 and less than 75 is small.
REASONS: dict[str, tuple[list[dict[str, Any]], dict[str, Any], int]] = {
    "large_enough": (small(75, 90, 300), {}, 3),
    "clean": (small(10, 10), {"purge": True}, 2),
    "below_ratio": (with_deleted(1, 2), {"purge": True, "max_deleted_rows_ratio": 0.2}, 2),
    "alone": ([file(day, 0, 10) for day in "abc"], {}, 3),
    "too_large_together": (small(*[70] * 60), {}, 60),
    # The second is more than one and a half times as large as the first.
    "unmatched": (small(10, 16), {}, 2),
    # The first three fill a bin that has no room for the fourth, although that would fit beside one of them.
    "left_over": (small(20, 30, 40, 60), {}, 1),
    "hot": (small(10, 10), {"quiet_minutes": 5, "hot_partitions": "wait"}, 2),
    "over_budget": ([file(day, number, 10) for day in "ab" for number in range(2)], {"max_files": 2}, 2),
    "outside_where": (small(10, 10), {"where": "d = 'b'"}, 2),
    "foreign": ([add("s3://other/file", 10, {"d": "a"})], {}, 1),
}


@pytest.mark.parametrize("reason", REASONS)
def test_a_file_is_left_for_the_reason_that_holds(tmp_path: Path, reason: str) -> None:
    adds, options, files = REASONS[reason]
    found = select(tmp_path, adds, now_ms=1, target_size_bytes=100, **options)
    assert left(found) == {reason: files}


def test_files_that_no_plan_can_put_together_are_not_called_different_in_size(tmp_path: Path) -> None:
    adds = [file("a", number, 700 << 20) for number in range(60)]
    found = select(tmp_path, adds, target_size_bytes=1 << 30)
    assert left_text(found.to_dict()) == (
        "60 files, 41.0 GiB: 60 small, but above the target size together with any other file of their partition"
    )


def test_every_reason_has_words() -> None:
    assert LEFT_WORDS.keys() == set(LEFT_REASONS)


def test_a_file_of_the_present_settings_is_chosen_for_its_deleted_rows(tmp_path: Path) -> None:
    tag = plan_optimize(
        write_log(tmp_path / "empty", []), OptimizeOptions(target_size_bytes=100), 0
    ).rewrite_tag
    tags = {REWRITE_TAG: tag}
    adds = [
        add("a", 80, tags=tags),
        add("b", 80, tags=tags, stats='{"numRecords": 100}', deletionVector=deletion_vector(1)),
        add("c", 80),
    ]
    options = OptimizeOptions(target_size_bytes=100, full=True)
    found = plan_optimize(write_log(tmp_path / "table", adds), options, 0).selection
    assert found.chosen_by_reason == {"deleted_rows": 1, "full": 1}
    assert left(found) == {"up_to_date": 1}


def test_a_predicate_a_budget_and_writers_at_work_leave_files(tmp_path: Path) -> None:
    adds = [file(day, number, 10) for day in "abc" for number in range(2)]
    assert left(select(tmp_path / "where", adds, where="d = 'a'")) == {"outside_where": 4}
    assert left(select(tmp_path / "budget", adds, max_files=2)) == {"over_budget": 4}
    waiting = select(
        tmp_path / "hot", adds, now_ms=1, quiet_minutes=5, hot_partitions="wait", target_size_bytes=100
    )
    assert (waiting.chosen.files, left(waiting)) == (0, {"hot": 6})


def test_a_purge_says_that_a_file_holds_nothing_to_purge(tmp_path: Path) -> None:
    adds = [
        file("a", 0, 10),
        file("a", 1, 10, stats='{"numRecords": 10}', deletionVector=deletion_vector(1)),
    ]
    found = select(tmp_path, adds, purge=True)
    assert (found.chosen_by_reason, left(found)) == ({"deleted_rows": 1}, {"clean": 1})


@pytest.mark.parametrize("seed", range(20))
def test_what_is_chosen_and_left_adds_up_to_the_table(tmp_path: Path, seed: int) -> None:
    rng = random.Random(seed)
    adds = [file(rng.choice("abcd"), number, rng.randint(1, 120)) for number in range(rng.randint(0, 40))]
    options: dict[str, Any] = {"target_size_bytes": 100}
    if rng.random() < 0.5:
        options["where"] = "d in ('a', 'b')"
    if rng.random() < 0.5:
        options["max_bytes"] = rng.randint(1, 300)
    found = select(tmp_path, adds, **options)
    counts = [found.chosen, *found.left.values()]
    assert sum(count.files for count in counts) == found.table.files == len(adds)
    assert sum(count.bytes for count in counts) == found.table.bytes
    assert found.bins == 0 or found.chosen_by_reason
