"""Runs the main function of a program that is ours, and ends its process."""

from __future__ import annotations

import atexit
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn


def run_and_exit(main: Callable[[], int]) -> NoReturn:
    """Run a main function, and end the process with the exit code that it returns.

    Python joins the threads, and calls what libraries have registered with ``atexit``. It would then take all modules apart, and C++
    all libraries. That takes longer than some commands, and it aborts the process now and then: Arrow ends it by a signal when one of
    its threads has just been started. So the last function that ``atexit`` calls ends the process. That is the function that was
    registered first: call this function before libraries are imported.

    An error of the main function ends the process as Python does.
    """
    codes: list[int] = []
    atexit.register(_end_process, codes)
    codes.append(main())
    sys.exit(codes[0])


def _end_process(codes: list[int]) -> None:
    """End the process at once, if the main function has returned an exit code."""
    if codes:
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError, AttributeError):  # closed, or there is none
                stream.flush()
        os._exit(codes[0])
