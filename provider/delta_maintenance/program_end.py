"""Ends a program that is ours, from its first line to its last."""

from __future__ import annotations

import atexit
import os
import sys
import threading
from contextlib import suppress
from typing import NoReturn


def end_program(code: int) -> NoReturn:
    """End the process with an exit code, after its threads and after what libraries have registered for the end.

    Python would then take all modules apart, and C++ all libraries. That takes longer than some commands, and it aborts the process
    now and then: Arrow ends it by a signal when one of its threads has just been started.
    """
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with suppress(OSError, ValueError, AttributeError):  # closed, or there is none
            stream.flush()
    os._exit(code)
