"""The libraries that a job needs, and those that this process lacks. Standard library only."""

from __future__ import annotations

import importlib.util

#: Libraries of the rewriter, with the oldest release of each that fits, as in ``pyproject.toml``. They are compiled, so a bundle
#: cannot bring them.
OLDEST = {
    "pyarrow": (24,),
    "numpy": (1, 26),
    "fsspec": (2024, 6),
    "pyroaring": (1,),
    "msgspec": (0, 21),
}
REQUIRED = tuple(OLDEST)


def missing_here() -> list[str]:
    """Return the required libraries that this process cannot find."""
    return [name for name in REQUIRED if importlib.util.find_spec(name) is None]
