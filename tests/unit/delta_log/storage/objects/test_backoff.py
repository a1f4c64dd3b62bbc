from __future__ import annotations

from delta_log.storage.objects.backoff import Backoff


def test_each_wait_is_twice_the_one_before_up_to_the_longest() -> None:
    waited: list[float] = []
    backoff = Backoff(0.1, 1.0, lambda: 1.0, waited.append)
    for attempt in range(6):
        backoff.wait(attempt)
    assert waited == [0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_the_random_part_is_at_most_half_of_a_wait() -> None:
    assert Backoff(0.1, jitter=lambda: 0.0).seconds(3) == 0.4
    assert Backoff(0.1).seconds(3) <= 0.8
