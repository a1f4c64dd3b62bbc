"""Time, randomness and waiting, passed in as arguments.

Code that decides takes them from a :class:`Runtime`. A test passes its own, and so drives the real code through every
interleaving and every date without patching.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Callable

from msgspec import Struct


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _jitter() -> float:
    # Imported here, since most runs never wait.
    import random

    return random.random()  # noqa: S311 - spreads retries


class Runtime(Struct, frozen=True):
    """The sources of time and randomness for one program.

    :param now_ms: function that returns milliseconds since the epoch.
    :param new_id: function that returns a new random UUID as text.
    :param new_secret: function that returns 32 cryptographically random bytes as hexadecimal digits.
    :param jitter: function that returns a random number in [0, 1).
    :param sleep: function that waits for so many seconds.
    """

    now_ms: Callable[[], int] = _now_ms
    new_id: Callable[[], str] = lambda: str(uuid.uuid4())
    new_secret: Callable[[], str] = lambda: os.urandom(32).hex()
    jitter: Callable[[], float] = _jitter
    sleep: Callable[[float], None] = time.sleep
