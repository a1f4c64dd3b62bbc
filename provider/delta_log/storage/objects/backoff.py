"""How long to wait before a request is repeated."""

from __future__ import annotations

import math
import random
import time
from collections.abc import Callable

from msgspec import Struct


class Backoff(Struct, frozen=True):
    """Waits twice as long after each attempt, at random between half of that time and all of it.

    The random part keeps several writers from repeating their requests at the same moments.

    :param first_seconds: the longest wait after the first attempt.
    :param most_seconds: upper limit of each wait.
    :param jitter: function that returns a random number in [0, 1).
    :param sleep: function that waits for so many seconds.
    """

    first_seconds: float
    most_seconds: float = math.inf
    jitter: Callable[[], float] = random.random
    sleep: Callable[[float], None] = time.sleep

    def seconds(self, attempt: int) -> float:
        """Return the wait after an attempt; attempts are numbered from 0."""
        return min(self.most_seconds, self.first_seconds * 2.0**attempt) * (1 + self.jitter()) / 2

    def wait(self, attempt: int) -> None:
        """Wait after an attempt that failed."""
        self.sleep(self.seconds(attempt))
