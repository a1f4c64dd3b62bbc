from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from tests.support.tables.written_log import add, deletion_vector, write_log

from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.plan.selection import Selection

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
    assert left(found) == {"large_enough": 3, "alone": 1, "unmatched": 2}


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
