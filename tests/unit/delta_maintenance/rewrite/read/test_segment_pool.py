"""Threads work on items in their order, and nothing goes on once their caller has ended."""

from __future__ import annotations

import threading
from contextlib import closing

from delta_maintenance.rewrite.read.segment_pool import SegmentPool


def test_an_item_comes_before_its_result_where_the_caller_has_other_work() -> None:
    caller_has_worked = threading.Event()
    with (
        SegmentPool() as pool,
        closing(pool.begun_in_order(lambda number: (number, caller_has_worked.wait(60)), [1, 2], 1)) as begun,
    ):
        first, result = next(begun)
        assert not result.done()
        caller_has_worked.set()

        assert (first, result.result()) == (1, (1, True))
        assert [(number, found.result()) for number, found in begun] == [(2, (2, True))]


def test_a_caller_that_ends_early_waits_for_the_item_that_it_was_given() -> None:
    goes_on, ended = threading.Event(), threading.Event()

    def work(number: int) -> None:
        if number == 1:
            goes_on.wait(60)
            ended.set()

    with SegmentPool(threads=2) as pool:
        begun = pool.begun_in_order(work, [1, 2, 3], 2)
        next(begun)
        threading.Timer(0.1, goes_on.set).start()
        begun.close()
        assert ended.is_set()
