from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor

from delta_maintenance.fleet.byte_budget import ByteBudget


def test_never_more_is_held_than_the_limit_and_what_is_larger_is_held_alone() -> None:
    budget, lock, now, most = ByteBudget(10), threading.Lock(), [0], [0]

    def hold(size_bytes: int) -> None:
        with budget.held(size_bytes):
            with lock:
                now[0] += min(size_bytes, 10)
                most[0] = max(most[0], now[0])
            with lock:
                now[0] -= min(size_bytes, 10)

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(hold, [3, 4, 99, 10, 0, 5, 7] * 20))
    assert most[0] <= 10
    with budget.held(1_000):
        pass
