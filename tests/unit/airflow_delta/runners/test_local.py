"""A real process, of a program that plays the job."""

from __future__ import annotations

import inspect
import logging
import subprocess
import sys
import threading
import time
import tracemalloc
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import psutil  # type: ignore[import-untyped]
import pytest
from airflow.sdk.execution_time.supervisor import WatchedSubprocess

from airflow_delta.runners.job_output import JobProgress
from airflow_delta.runners.job_runner import JobCannotStart, JobLost
from airflow_delta.runners.local import LocalJobRunner, end_process_group
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.entrypoint.run_job import PARENT_PID_VARIABLE, SPARK_MASTER_VARIABLE
from delta_maintenance.job_interface import (
    OUTPUT_NONCE_VARIABLE,
    RUN_KEY_VARIABLE,
    STORAGE_OPTIONS_VARIABLE,
    ContractError,
)

SPEC = JobSpec("optimize", "/t", "run-1", engine="local")

PLAYED_JOB = """
import json, os, sys
spec = json.loads(sys.argv[sys.argv.index("--spec") + 1])
seen = {name: os.environ.get(name) for name in NAMES}
nonce = os.environ["DELTA_MAINTENANCE_OUTPUT_NONCE"]
print(f'DELTA_PROGRESS {nonce} {{"done_bins": 1, "total_bins": 1}}')
print("a library's words, on stderr", file=sys.stderr, flush=True)
print(f'DELTA_LOG {nonce} {{"level": "warning", "message": "words of the job itself"}}')
print(f"DELTA_REPORT {nonce} " + json.dumps({"contract_version": 1, "operation": spec["operation"], "table": spec["table"],
                                    "status": "committed", "plan": seen}))
sys.exit(2)
""".replace(
    "NAMES", repr((STORAGE_OPTIONS_VARIABLE, RUN_KEY_VARIABLE, PARENT_PID_VARIABLE, SPARK_MASTER_VARIABLE))
)


def runner(program: str, options: dict[str, Any] | None = None) -> LocalJobRunner:
    return LocalJobRunner(options or {}, logging.getLogger("job"), (sys.executable, "-c", program))


def seen(report: JobReport) -> Mapping[str, Any]:
    """What the played job found in its environment."""
    assert report.plan is not None
    return report.plan


def ignore(progress: JobProgress) -> None:
    pass


def test_a_report_comes_back_whatever_the_exit_code(caplog: pytest.LogCaptureFixture) -> None:
    told: list[JobProgress] = []
    with caplog.at_level("DEBUG", logger="job"):
        report = runner(PLAYED_JOB).run(SPEC, told.append)
    assert (report.status, report.table) == ("committed", "/t")
    assert told == [JobProgress(1, 1)]
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("DEBUG", "a library's words, on stderr"),
        ("WARNING", "words of the job itself"),
    ]


def test_credentials_go_by_the_environment_and_not_by_argv() -> None:
    report = runner(PLAYED_JOB, {"secret": "hidden"}).run(SPEC, ignore)
    assert seen(report)[STORAGE_OPTIONS_VARIABLE] == '{"secret": "hidden"}'
    assert seen(report)[PARENT_PID_VARIABLE] == str(psutil.Process().pid)
    assert "hidden" not in SPEC.to_json()


def test_credentials_of_the_worker_are_not_inherited(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in (STORAGE_OPTIONS_VARIABLE, RUN_KEY_VARIABLE):
        monkeypatch.setenv(variable, '{"secret": "of another run"}')
        assert seen(runner(PLAYED_JOB).run(SPEC, ignore))[variable] is None


def test_the_key_of_the_run_goes_by_the_environment() -> None:
    assert seen(runner(PLAYED_JOB).run(SPEC, ignore, "5e" * 32))[RUN_KEY_VARIABLE] == "5e" * 32


@pytest.mark.parametrize(
    ("program", "message"),
    [
        ("print('last words'); raise SystemExit(5)", "exit code 5"),
        ("print('last words', flush=True); import os; os.kill(os.getpid(), 9)", "SIGKILL.*memory"),
    ],
)
def test_a_job_that_ends_without_a_report_is_lost_and_its_last_words_are_shown(
    program: str, message: str
) -> None:
    with pytest.raises(JobLost, match=message) as caught:
        runner(program).run(SPEC, ignore)
    assert caught.value.output == ("last words",)
    assert "last words" in str(caught.value)


def test_a_program_that_is_not_there_cannot_start() -> None:
    with pytest.raises(JobCannotStart, match="cannot be started"):
        LocalJobRunner({}, logging.getLogger("job"), ("/no/such/program",)).run(SPEC, ignore)


def test_stopping_ends_the_job_and_what_it_has_started(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    program = (
        "import os, subprocess, sys, time\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}\\n')\n"
        "time.sleep(60)\n"
    )
    job = runner(program)
    failures: list[BaseException] = []

    def run() -> None:
        try:
            job.run(SPEC, ignore)
        except JobLost as error:
            failures.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    while not pids.exists() or not pids.read_text().endswith("\n"):
        time.sleep(0.02)
    job.stop()
    job.stop()
    thread.join(30)
    assert not thread.is_alive()
    assert "SIGTERM" in str(failures[0])
    _, alive = psutil.wait_procs(
        [psutil.Process(int(pid)) for pid in pids.read_text().split() if psutil.pid_exists(int(pid))], 30
    )
    assert alive == []


def test_a_job_that_is_stopped_while_it_starts_is_ended() -> None:
    """The job is at work before its runner has the process in hand, on a busy machine for a while."""

    class StoppedAtStart(LocalJobRunner):
        def _start(self, *arguments: Any) -> subprocess.Popen[str]:
            process = super()._start(*arguments)
            self.stop()
            return process

    command = (sys.executable, "-c", "import time; time.sleep(60)")
    with pytest.raises(JobLost, match="SIGTERM"):
        StoppedAtStart({}, logging.getLogger("job"), command).run(SPEC, ignore)


def test_a_job_is_killed_before_airflow_kills_the_task_that_would_do_it() -> None:
    escalation = inspect.signature(WatchedSubprocess.kill).parameters["escalation_delay"].default
    grace = inspect.signature(end_process_group).parameters["seconds"].default
    assert grace + 1 < escalation


def test_an_interrupted_task_leaves_no_job_behind() -> None:
    started: list[int] = []

    def interrupt(progress: JobProgress) -> None:
        started.append(progress.total_bytes)
        raise KeyboardInterrupt

    program = (
        "import json, os, time\n"
        "print('DELTA_PROGRESS', os.environ['DELTA_MAINTENANCE_OUTPUT_NONCE'], json.dumps({'total_bytes': os.getpid()}), flush=True)\n"
        "time.sleep(60)\n"
    )
    with pytest.raises(KeyboardInterrupt):
        runner(program).run(SPEC, interrupt)
    assert not psutil.pid_exists(started[0])


def test_the_job_is_told_where_large_work_could_go() -> None:
    job = LocalJobRunner(
        {}, logging.getLogger("job"), (sys.executable, "-c", PLAYED_JOB), spark_master="yarn"
    )
    assert seen(job.run(SPEC, ignore))[SPARK_MASTER_VARIABLE] == "yarn"


def test_the_workers_own_nonce_is_not_the_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(OUTPUT_NONCE_VARIABLE, "of another run")
    program = (
        "import os\n"
        'print(\'DELTA_REPORT of another run {"contract_version": 1, "status": "committed"}\')\n'
        "print(len(os.environ['DELTA_MAINTENANCE_OUTPUT_NONCE']))\n"
    )
    with pytest.raises(JobLost) as caught:
        runner(program).run(SPEC, ignore)
    assert caught.value.output[-1] == "32"


def test_two_jobs_have_two_nonces() -> None:
    program = "import os; print(os.environ['DELTA_MAINTENANCE_OUTPUT_NONCE'])"
    outputs = []
    for _ in range(2):
        with pytest.raises(JobLost) as caught:
            runner(program).run(SPEC, ignore)
        outputs.append(caught.value.output)
    assert outputs == [("…",), ("…",)], "and the task's log does not show them"


@pytest.mark.parametrize(
    "report", ["[]", "{", '{"contract_version": 1e999}', "[" * 5_000, '{"n": ' + "9" * 10_000 + "}", "{}"]
)
def test_a_bad_report_is_one_clear_error_and_the_job_is_gone(report: str) -> None:
    program = (
        "import os, sys\n"
        f"print('DELTA_REPORT', os.environ['DELTA_MAINTENANCE_OUTPUT_NONCE'], {report!r}, flush=True)\n"
        "import time; time.sleep(60)\n"
    )
    with pytest.raises(ContractError, match="^This job report "):
        runner(program).run(SPEC, ignore)


def test_a_line_without_an_end_is_not_held() -> None:
    program = "import sys\nfor _ in range(256): sys.stdout.write('x' * (1 << 20))\nprint('\\nlast words')"
    tracemalloc.start()
    try:
        with pytest.raises(JobLost) as caught:
            runner(program).run(SPEC, ignore)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    long, last = caught.value.output
    assert last == "last words"
    assert long.startswith("xxx")
    assert "characters more]" in long
    assert peak < 128 << 20
