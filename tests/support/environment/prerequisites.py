"""What a test needs and a machine may lack: a corpus, a program, a server of packages.

One policy for all of it: on a developer's machine the test is skipped with a reason that names what is missing, and
pytest's summary repeats each once; where ``CI`` is set the test fails, so that nothing is left out unseen.
"""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def absent(what: str, why: str) -> NoReturn:
    """Ends the test: ``what`` is missing, and ``why`` says what for or what to do."""
    reason = f"missing on this machine: {what} ({why})"
    if in_ci():
        pytest.fail(f"{reason}; in CI it has to be there", pytrace=False)
    pytest.skip(reason)


def require(program: str, why: str) -> str:
    """The path of a program; the test ends where it is not on PATH."""
    return shutil.which(program) or absent(program, why)
