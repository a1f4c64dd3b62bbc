"""Ends what a run of the tests has started and left: ``python -m tests.support.environment.leftovers VARIABLE VALUE``.

A run that is interrupted ends no server, no Spark and no Airflow by itself, and many of these are sessions of their own. They have all
inherited an environment variable whose value is unique to the run.
"""

from __future__ import annotations

import contextlib
import os
import sys

import psutil  # type: ignore[import-untyped]  # Airflow depends on it

_SECONDS_TO_END = 5


def end_processes_with(variable: str, value: str) -> None:
    """End the processes that were started with this value of an environment variable, this process excepted."""
    # Those that remain may have started others meanwhile.
    while found := _processes_with(variable, value):
        for process in found:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.terminate()
        for process in psutil.wait_procs(found, _SECONDS_TO_END)[1]:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()


def _processes_with(variable: str, value: str) -> list[psutil.Process]:
    found = []
    for process in psutil.process_iter():
        # A process of another user may not be read, and is none of ours.
        with contextlib.suppress(psutil.Error, OSError):
            if process.pid != os.getpid() and process.environ().get(variable) == value:
                found.append(process)
    return found


if __name__ == "__main__":
    end_processes_with(*sys.argv[1:])
