from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.support.tables.small_tables import write_days

import delta_maintenance
from delta_log import Table
from delta_maintenance.contract import JobReport, JobSpec, TransactionId
from delta_maintenance.job_interface import LOG_PREFIX, OUTPUT_NONCE_VARIABLE, PROGRESS_PREFIX, REPORT_PREFIX

PROGRAM = Path(delta_maintenance.__file__).parent / "entrypoint" / "run_job.py"
BY_MODULE = (sys.executable, "-m", "delta_maintenance.entrypoint.run_job")
BY_PATH = (sys.executable, str(PROGRAM))


def run(
    spec: str, command: Sequence[str] = BY_MODULE, **environment: str
) -> tuple[subprocess.CompletedProcess[str], JobReport]:
    result = subprocess.run(
        [*command, "--spec", spec],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )
    *_, last = result.stdout.splitlines() or ["nothing"]
    assert last.startswith(REPORT_PREFIX), result.stderr
    return result, JobReport.from_json(last.removeprefix(REPORT_PREFIX))


def spec(table: Path | str, **more: Any) -> str:
    return JobSpec("optimize", str(table), "run-1", **more).to_json()


@pytest.mark.parametrize("command", [BY_MODULE, BY_PATH])
def test_the_job_prints_progress_and_at_last_its_report(tmp_path: Path, command: Sequence[str]) -> None:
    rows = write_days(tmp_path)
    result, report = run(spec(tmp_path, transaction=TransactionId("a", 1)), command)
    assert (result.returncode, report.status, report.version) == (0, "committed", 6)
    progress = [line for line in result.stdout.splitlines() if line.startswith(PROGRESS_PREFIX)]
    assert json.loads(progress[-1].removeprefix(PROGRESS_PREFIX))["done_bins"] == 2
    assert Table(str(tmp_path)).snapshot().to_arrow().sort_by("id").equals(rows.cast(rows.schema))


def test_a_spec_may_come_from_a_file(tmp_path: Path) -> None:
    write_days(tmp_path / "t")
    (tmp_path / "spec.json").write_text(spec(tmp_path / "t", dry_run=True))
    result, report = run(f"@{tmp_path / 'spec.json'}")
    assert (result.returncode, report.status) == (0, "planned")


def test_a_refusal_is_a_report_with_the_facts(tmp_path: Path) -> None:
    result, report = run(spec(tmp_path / "nothing"))
    assert report.error is not None
    assert (result.returncode, report.status, report.error.type) == (2, "failed", "NotATable")
    assert report.error.facts["table_uri"] == str(tmp_path / "nothing")
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("{", "is not JSON"),
        ("[" * 100_000, "nested too deeply"),
        (
            '{"contract_version": 1, "operation": 1, "table": "t", "run_id": "r"}',
            "got `int` - at `$.operation`",
        ),
        ('{"contract_version": 99}', "Install the same release on both sides"),
        ('{"contract_version": 1}', "missing"),
        (
            '{"contract_version": 1, "operation": "dance", "table": "t", "run_id": "r"}',
            "is not one of optimize",
        ),
        ("@/no/such/file", "No such file"),
    ],
)
def test_a_spec_that_cannot_be_read_is_refused(text: str, problem: str) -> None:
    result, report = run(text)
    assert report.error is not None
    assert problem in report.error.message
    assert (result.returncode, report.error.kind) == (2, "refused")


def test_broken_storage_options_are_refused_without_being_shown(tmp_path: Path) -> None:
    result, report = run(spec(tmp_path), DELTA_MAINTENANCE_STORAGE_OPTIONS="hunter2")
    assert report.error is not None
    assert "DELTA_MAINTENANCE_STORAGE_OPTIONS must hold a JSON object" in report.error.message
    assert "hunter2" not in result.stdout + result.stderr


def test_what_is_not_installed_is_named(tmp_path: Path) -> None:
    bare = (sys.executable, "-I", "-S", str(PROGRAM))
    result, report = run(spec(tmp_path), bare)
    assert report.error is not None
    assert (result.returncode, report.error.type) == (2, "DependencyMissing")
    assert (
        "This job needs pyarrow, numpy, fsspec, pyroaring, msgspec, not installed in" in report.error.message
    )
    assert report.table == str(tmp_path)


def test_even_a_broken_installation_ends_with_a_report(tmp_path: Path) -> None:
    broken = tmp_path / "broken" / "msgspec"
    broken.mkdir(parents=True)
    (broken / "__init__.py").write_text("raise RuntimeError('half installed')")
    path = os.pathsep.join((str(broken.parent), os.environ.get("PYTHONPATH", "")))
    result, report = run(spec(tmp_path), PYTHONPATH=path)
    assert report.error is not None
    assert (result.returncode, report.error.message) == (1, "half installed")
    assert "Traceback" in result.stderr


_SLOW = """
import sys, time
import delta_maintenance.optimize.run as optimize
def slow(*_):
    print("working", flush=True)
    time.sleep(60)
optimize.run = slow
from delta_maintenance.entrypoint.run_job import main
sys.exit(main())
"""


def start_slow(table: Path, **environment: str) -> subprocess.Popen[str]:
    job = subprocess.Popen(
        [sys.executable, "-c", _SLOW, "--spec", spec(table)],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, **environment},
    )
    assert job.stdout is not None
    assert job.stdout.readline() == "working\n"
    return job


def test_a_job_that_is_told_to_end_says_so(tmp_path: Path) -> None:
    with start_slow(tmp_path) as job:
        job.send_signal(signal.SIGTERM)
        out, _ = job.communicate(timeout=30)
    assert job.returncode == 1
    assert JobReport.from_json(out.removeprefix(REPORT_PREFIX)).error is not None


def test_a_job_ends_when_the_process_that_started_it_is_gone(tmp_path: Path) -> None:
    parent = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    with start_slow(tmp_path, DELTA_MAINTENANCE_PARENT_PID=str(parent.pid)) as job:
        time.sleep(0.2)
        assert job.poll() is None
        parent.kill()
        parent.wait()
        out, _ = job.communicate(timeout=30)
    assert job.returncode == 1
    assert f"Process {parent.pid}, which wanted this job, is gone" in out


_TELLS_ITS_ENVIRONMENT = """
import os, subprocess, sys
import delta_maintenance.optimize.run as optimize
def tell(*_):
    print("own", "DELTA_MAINTENANCE_OUTPUT_NONCE" in os.environ, flush=True)
    subprocess.run([sys.executable, "-c", "import os; print('child', 'DELTA_MAINTENANCE_OUTPUT_NONCE' in os.environ)"])
    raise ZeroDivisionError("told")
optimize.run = tell
from delta_maintenance.entrypoint.run_job import main
sys.exit(main())
"""


def test_the_nonce_marks_the_jobs_lines_and_is_gone_before_anything_runs(tmp_path: Path) -> None:
    job = subprocess.run(
        [sys.executable, "-c", _TELLS_ITS_ENVIRONMENT, "--spec", spec(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, OUTPUT_NONCE_VARIABLE: "f" * 32},
    )
    own, child, *logged, report = job.stdout.splitlines()
    assert all(line.startswith(f"{LOG_PREFIX}{'f' * 32} ") for line in logged)
    assert (own, child) == ("own False", "child False")
    prefix = f"{REPORT_PREFIX}{'f' * 32} "
    assert report.startswith(prefix)
    assert JobReport.from_json(report.removeprefix(prefix)).error is not None
    assert "f" * 32 not in job.stderr


def test_progress_is_marked_with_the_nonce_too(tmp_path: Path) -> None:
    write_days(tmp_path)
    job = subprocess.run(
        [*BY_MODULE, "--spec", spec(tmp_path)],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, OUTPUT_NONCE_VARIABLE: "f" * 32},
    )
    prefixes = {line.partition("{")[0] for line in job.stdout.splitlines()}
    assert prefixes == {f"{PROGRESS_PREFIX}{'f' * 32} ", f"{REPORT_PREFIX}{'f' * 32} "}
