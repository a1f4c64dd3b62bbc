from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import atexit, sys, threading, time
from delta_maintenance.program_end import end_program

def work():
    time.sleep(0.2)
    print("the thread is done", flush=True)

threading.Thread(target=work).start()
atexit.register(print, "registered")
sys.stdout.write("written, ")
{before}
end_program({code})
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
    before = "import os\nclass Aborts:\n    def __del__(self): os.abort()\nkept = Aborts()"
    assert ended(0, before).returncode == 0
