"""How long a storage waits before it repeats a request."""

from __future__ import annotations

import math
import random
from collections.abc import Awaitable, Callable

from msgspec import Struct


async def _sleep(seconds: float) -> None:
    import asyncio  # where nothing is repeated, it is not loaded

    await asyncio.sleep(seconds)


class Backoff(Struct, frozen=True):
    """Waits twice as long after each attempt, at random between half of that time and all of it.

    The random part keeps several writers from repeating their requests at the same moments.

    :param first_seconds: the longest wait after the first attempt.
    :param most_seconds: no wait is longer.
    :param jitter: returns a random number in [0, 1).
    :param sleep: a coroutine function that waits for so many seconds.
    """

    first_seconds: float
    most_seconds: float = math.inf
    jitter: Callable[[], float] = random.random
    sleep: Callable[[float], Awaitable[None]] = _sleep

    def seconds(self, attempt: int) -> float:
        """Return the wait after an attempt; attempts are numbered from 0."""
        return min(self.most_seconds, self.first_seconds * 2.0**attempt) * (1 + self.jitter()) / 2

    async def wait(self, attempt: int) -> None:
        """Wait after an attempt that failed."""
        await self.sleep(self.seconds(attempt))
