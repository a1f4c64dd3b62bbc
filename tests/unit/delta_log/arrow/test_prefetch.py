"""Results come in the order of the items, however the threads finish, and no more is begun than is said."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterable, Iterator

import pytest

from delta_log.arrow.prefetch import map_ordered, map_stream, read_ahead

Mapping = Callable[[Callable[[int], int], Iterable[int], int], Generator[int, None, None]]
MAPPINGS: list[Mapping] = [map_ordered, map_stream]


@pytest.mark.parametrize("mapping", MAPPINGS)
@pytest.mark.parametrize("threads", [1, 2, 5])
def test_results_come_in_the_order_of_the_items(mapping: Mapping, threads: int) -> None:
    second_done = threading.Event()

    def work(item: int) -> int:
        if item == 0 and threads > 1:
            assert second_done.wait(60)
        if item == 1:
            second_done.set()
        return item * item

    assert list(mapping(work, range(20), threads)) == [item * item for item in range(20)]
    assert list(mapping(work, [], threads)) == []


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_an_error_comes_at_the_place_of_its_item(mapping: Mapping) -> None:
    def work(item: int) -> int:
        if item == 3:
            raise ValueError("three")
        return item

    results = mapping(work, range(10), 2)
    assert [next(results) for _ in range(3)] == [0, 1, 2]
    with pytest.raises(ValueError, match="three"):
        next(results)


def test_an_error_of_the_source_comes_after_what_it_gave() -> None:
    def source() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    items = read_ahead(source(), 3)
    assert next(items) == 1
    with pytest.raises(ValueError, match="broken"):
        next(items)


@pytest.mark.parametrize("mapping", MAPPINGS)
def test_a_caller_who_waits_holds_up_the_work(mapping: Mapping) -> None:
    begun: list[int] = []

    def work(item: int) -> int:
        begun.append(item)
        return item

    results = mapping(work, range(1000), 2)
    assert next(results) == 0
    results.close()
    assert len(begun) <= 6


def test_one_thread_is_the_callers() -> None:
    threads = set(map_ordered(lambda _: threading.get_ident(), range(3), 1))
    assert threads == {threading.get_ident()}
