"""Every order of the storage calls of two writers; and that breaking the code on purpose does not go unseen.

With faults, with three actors and at length: `./dev campaign interleavings`.
"""

from __future__ import annotations

from itertools import combinations_with_replacement

import pytest
from tests.support.explorer import actors
from tests.support.explorer.breaks import BREAKS, Break
from tests.support.explorer.search import Search

PAIRS = tuple(combinations_with_replacement(actors.ACTORS, 2))
#: Those that look at so much that their orders are too many: some are taken by chance.
SAMPLED = {("vacuum", "vacuum"), ("batches", "batches"), ("batches", "checkpoint"), ("batches", "vacuum")}


@pytest.mark.parametrize("kinds", PAIRS, ids="+".join)
def test_every_order_of_two_writers_is_a_serial_history(kinds: tuple[str, ...]) -> None:
    search = Search(kinds, actors.table())
    found = search.sampled(0, 50, 0) if kinds in SAMPLED else search.exhaustive(faults=0)
    assert found.ends["done"] > 0


@pytest.mark.parametrize("kind", actors.ACTORS)
def test_nothing_gets_into_the_log_of_a_table_that_took_the_place_of_another(kind: str) -> None:
    search = Search((kind, actors.REPLACE), actors.table())
    found = search.sampled(0, 60, 0) if kind in ("vacuum", "batches") else search.exhaustive(faults=0)
    assert found.ends["TableReplaced"] > 0


@pytest.mark.parametrize("kind", actors.ACTORS)
def test_one_writer_survives_a_fault_at_every_call(kind: str) -> None:
    found = Search([kind], actors.table()).exhaustive(faults=1)
    assert found.faults["die"] == found.faults["fail"] > 0


@pytest.mark.parametrize(
    "kinds",
    [*(("compaction", kind) for kind in ("delete", "update", "append")), ("remapping", "delete")],
    ids="+".join,
)
def test_a_compaction_and_another_writer_survive_a_fault_at_every_call(kinds: tuple[str, ...]) -> None:
    found = Search(kinds, actors.table()).exhaustive(faults=1)
    assert {"die", "fail", "lost", "late"} <= found.faults.keys()


@pytest.mark.parametrize(
    "kind", ["append", "delete", "update", "widen", "recluster", "backfill", actors.REPLACE]
)
def test_a_compaction_that_waits_for_a_gap_takes_every_commit_into_account(kind: str) -> None:
    found = Search((actors.WAITING, kind), actors.table()).exhaustive(faults=0)
    assert found.ends["TableReplaced" if kind == actors.REPLACE else "done"] > 0


def test_a_compaction_that_waits_for_a_gap_survives_a_fault_at_every_call() -> None:
    found = Search((actors.WAITING, "delete"), actors.table()).exhaustive(faults=1)
    assert {"die", "fail", "lost", "late"} <= found.faults.keys()


@pytest.mark.parametrize("kind", ["delete", "update", "restore", "remapping", actors.REPLACE])
def test_a_layout_carries_over_what_others_delete_or_gives_way(kind: str) -> None:
    found = Search((actors.LAYOUT, kind), actors.table()).exhaustive(faults=0)
    assert found.ends["TableReplaced" if kind == actors.REPLACE else "done"] > 0


def test_a_layout_survives_a_fault_at_every_call() -> None:
    found = Search((actors.LAYOUT, "delete"), actors.table()).exhaustive(faults=1)
    assert {"die", "fail", "lost", "late"} <= found.faults.keys()


@pytest.mark.parametrize(
    "kind", [actors.WAITING, "batches", "remapping", "cluster", actors.LAYOUT, "delete", "update"]
)
def test_a_delete_that_loses_finds_its_row_by_the_tags_of_a_compaction_alone(kind: str) -> None:
    search = Search((actors.REBASING, kind), actors.table())
    found = search.sampled(0, 150, 0) if kind == "batches" else search.exhaustive(faults=0)
    # Where rows move without a word, the delete gives way to them, and nothing else makes it do so.
    assert (found.ends["ConcurrentDelete"] > 0) == (kind in ("cluster", actors.LAYOUT))


def test_a_delete_follows_its_row_through_a_deletion_and_a_compaction() -> None:
    kinds = (actors.REBASING, actors.WAITING, "delete")
    assert Search(kinds, actors.table()).sampled(0, 200, 0).ends["done"] > 400


def test_a_run_in_batches_goes_on_after_its_death_whatever_was_deleted_meanwhile() -> None:
    found = Search(("batches", "delete"), actors.table()).sampled(faults=2, runs=300, seed=1)
    assert found.faults["die"] > 50


def test_three_writers_with_two_faults() -> None:
    found = Search(("compaction", "delete", "append"), actors.table()).sampled(faults=2, runs=300, seed=1)
    assert found.ends["done"] > 300


@pytest.mark.parametrize("kind", actors.MANAGED)
def test_one_writer_of_a_managed_table_survives_a_fault_at_every_call_of_store_and_catalog(kind: str) -> None:
    search = Search([kind], actors.managed_table())
    found = search.sampled(1, 60, 0) if kind == "vacuum" else search.exhaustive(faults=1)
    assert {"die", "fail"} <= found.faults.keys()


def test_every_order_of_two_writers_of_a_managed_table_is_a_serial_history() -> None:
    found = Search(("compaction", "delete"), actors.managed_table()).exhaustive(faults=0)
    assert found.ends["done"] > 400


@pytest.mark.parametrize("kinds", tuple(combinations_with_replacement(actors.MANAGED, 2)), ids="+".join)
def test_two_writers_of_a_managed_table_survive_a_fault(kinds: tuple[str, ...]) -> None:
    found = Search(kinds, actors.managed_table()).sampled(1, 15, 0)
    assert found.runs == 15


@pytest.mark.parametrize("broken", BREAKS, ids=lambda broken: broken.what)
def test_each_break_is_seen_and_the_sound_code_is_not_accused(broken: Break) -> None:
    assert broken.is_caught()
    sound = broken.explore(broken=False)
    assert sound.torn > 0 or not broken.torn
