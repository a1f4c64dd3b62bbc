"""The command line where nobody reads its output any more, or a disk has no room for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.tables.small_tables import write_days

from delta_log import Table


def shell(table: Path, command: str) -> subprocess.CompletedProcess[str]:
    """Run a command of the program in bash; return the exit code of the program."""
    program = f"{sys.executable} -m delta_maintenance {command.format(table=table)}; exit ${{PIPESTATUS[0]}}"
    return subprocess.run(["bash", "-c", program], capture_output=True, text=True, check=False)


@pytest.mark.parametrize(
    "command", ["optimize {table} | true", "optimize {table} 2>&1 | true", "optimize {table} --json | true"]
)
def test_a_reader_that_is_gone_stops_no_work_and_is_no_failure(tmp_path: Path, command: str) -> None:
    write_days(tmp_path / "t")
    version = Table(str(tmp_path / "t")).snapshot().version
    done = shell(tmp_path / "t", command)
    assert (done.returncode, "Traceback" in done.stderr) == (0, False)
    assert Table(str(tmp_path / "t")).snapshot().version == version + 1


def test_a_reader_of_the_first_line_gets_it(tmp_path: Path) -> None:
    write_days(tmp_path / "t")
    done = shell(tmp_path / "t", "history {table} | head -1")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("version")


def test_a_full_disk_is_told_in_one_line(tmp_path: Path) -> None:
    write_days(tmp_path / "t")
    done = shell(tmp_path / "t", "inspect {table} > /dev/full")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "cannot be written to standard output (No space left on device)" in done.stderr
