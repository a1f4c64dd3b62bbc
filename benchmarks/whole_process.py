"""Runs a command and prints what it cost, as JSON: wall time, processor seconds, peak memory.

This module is a program that imports little: the peak that the system reports for a process includes the peak of the process
which started it.

``whole_process.py --tree COMMAND`` counts the memory of all processes below the command together, also of those that end before
it; without this option, the peak is the peak of the largest process.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time

from process_tree import ProcessTree

_TREE = "--tree"


def main(command: list[str]) -> None:
    watches = command[0] == _TREE
    tree = ProcessTree()
    started = time.perf_counter()
    with tree if watches else contextlib.nullcontext():
        process = subprocess.Popen(command[watches:], stdout=subprocess.DEVNULL)
        _, status, usage = os.wait4(process.pid, 0)
        wall = time.perf_counter() - started
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(process.returncode)
    cpu, peak_mb = usage.ru_utime + usage.ru_stime, usage.ru_maxrss / 1024
    if watches:
        # Each misses something: the one what is over between two looks, the other processes whose parent did not wait for them.
        cpu, peak_mb = max(cpu, tree.cpu_seconds), max(peak_mb, tree.peak_mb)
    print(json.dumps({"wall": wall, "cpu": cpu, "peak_mb": peak_mb, "facts": None}))


if __name__ == "__main__":
    main(sys.argv[1:])
