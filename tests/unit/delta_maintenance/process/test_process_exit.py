from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import atexit, sys, threading, time
from delta_maintenance.process.process_exit import run_and_exit

def work():
    time.sleep(0.2)
    print("the thread is done", flush=True)

def main():
    threading.Thread(target=work).start()
    atexit.register(print, "registered")
    sys.stdout.write("written, ")
    {before}
    return {code}

run_and_exit(main)
"""


def ended(code: int, before: str = "") -> subprocess.CompletedProcess[str]:
    program = PROGRAM.format(code=code, before=before)
    return subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)


def test_threads_and_what_is_registered_come_first_and_nothing_written_is_lost() -> None:
    done = ended(3)
    assert (done.returncode, done.stdout, done.stderr) == (3, "written, the thread is done\nregistered\n", "")


def test_a_closed_stream_does_not_change_the_exit_code() -> None:
    done = ended(0, before="sys.stderr.close()")
    assert (done.returncode, done.stdout) == (0, "written, the thread is done\nregistered\n")


def test_what_libraries_do_when_they_are_taken_apart_does_not_change_the_exit_code() -> None:
    """An object that ends the process by a signal stands for Arrow's pool of threads."""
    before = "import os; sys.kept = type('Aborts', (), {'__del__': lambda _: os.abort()})()"
    assert ended(0, before).returncode == 0


def test_an_idle_thread_of_an_executor_does_not_keep_the_process() -> None:
    before = "from concurrent.futures import ThreadPoolExecutor; ThreadPoolExecutor().submit(print, 'worked').result()"
    assert ended(0, before).returncode == 0


def test_an_error_ends_the_process_as_ever() -> None:
    done = ended(0, before="1 / 0")
    assert done.returncode == 1
    assert "ZeroDivisionError" in done.stderr
    assert ended(0, before="sys.exit(5)").returncode == 5
