"""How often a test of random input is repeated: few times by `./dev test`, many times by `./dev campaign properties`."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import settings

#: Each number of repetitions is multiplied by this.
FACTOR = int(os.environ.get("REPETITIONS", "1"))


def examples(number: int, **more: Any) -> settings:
    """Return hypothesis' settings for a test with so many examples in `./dev test`."""
    return settings(max_examples=number * FACTOR, **more)
