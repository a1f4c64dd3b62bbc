"""Time, randomness and waiting, as values that are handed in.

Code that decides takes these from a :class:`Runtime`, so that a test can drive the real code through every
interleaving and every date without patching anything.
"""

from __future__ import annotations

import random
import secrets
import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass(frozen=True, slots=True)
class Runtime:
    """What a program gets from the world besides storage.

    :param now_ms: milliseconds since the epoch.
    :param new_id: a fresh random UUID, as text.
    :param new_secret: 32 random bytes that nobody can guess, as hexadecimal digits.
    :param jitter: a random number in [0, 1).
    :param sleep: wait for so many seconds.
    """

    now_ms: Callable[[], int] = _now_ms
    new_id: Callable[[], str] = lambda: str(uuid.uuid4())
    new_secret: Callable[[], str] = lambda: secrets.token_hex(32)
    jitter: Callable[[], float] = random.random
    sleep: Callable[[float], None] = time.sleep
