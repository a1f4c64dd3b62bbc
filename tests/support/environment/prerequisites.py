"""What a test needs and a machine may lack: a corpus, a program, a server of packages.

On a developer's machine the test is skipped with a reason that names what is missing; the summary prints each reason once.
If ``CI`` is set the test fails instead, so that CI never leaves out a test unseen.
"""

from __future__ import annotations

import os
import shutil
from typing import NoReturn

import pytest


def in_ci() -> bool:
    return os.environ.get("CI", "").lower() in ("1", "true", "yes")


def absent(what: str, why: str) -> NoReturn:
    """Ends the test, since ``what`` is missing; ``why`` says what it is for, or what to do."""
    reason = f"missing on this machine: {what} ({why})"
    if in_ci():
        pytest.fail(f"{reason}; in CI it has to be there", pytrace=False)
    pytest.skip(reason)


def require(program: str, why: str) -> str:
    """Returns the path of a program; ends the test if it is not on PATH."""
    return shutil.which(program) or absent(program, why)
