"""Runs a command and prints what it cost, as JSON: wall time, processor seconds, peak memory.

This module is a program that imports little: the peak that the system tells of a process includes that of the process which
started it.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time


def main(command: list[str]) -> None:
    started = time.perf_counter()
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(process.returncode)
    cpu = usage.ru_utime + usage.ru_stime
    print(json.dumps({"wall": wall, "cpu": cpu, "peak_mb": usage.ru_maxrss / 1024, "facts": None}))


if __name__ == "__main__":
    main(sys.argv[1:])
