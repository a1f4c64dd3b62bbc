"""How often a test of random input is repeated: a fifth as often by `./dev test` as by `./dev test slow`, ten times by
`./dev campaign properties`."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

_FACTOR = float(os.environ.get("REPETITIONS", "1"))


def version_ranges(count: int) -> list[tuple[int, int]]:
    """Return pairs of a first and a last version, of so many versions: all, the later half, and the last one. `./dev test slow` has each
    version by itself besides, and every pair that there is if tests are repeated more often."""
    if _FACTOR > 1:
        return [(first, last) for first in range(count) for last in range(first, count)]
    single = range(0 if _FACTOR == 1 else count - 1, count)
    return sorted({*zip(single, single, strict=True), (0, count - 1), (count // 2, count - 1)})


def repeated(number: int) -> int:
    """Return how often a test is repeated in this run that `./dev test slow` repeats so many times."""
    return max(1, round(number * _FACTOR))


def examples(number: int, **more: Any) -> settings:
    """Return hypothesis' settings for a test with so many examples in `./dev test slow`."""
    return settings(max_examples=repeated(number), **more)
