"""Processes of an interrupted run of the tests are found by a variable of their environment."""

from __future__ import annotations

import os
import subprocess
import uuid

from tests.support.environment.leftovers import end_processes_with

_VARIABLE = "RUN_OF_THIS_TEST"


def start(script: str, value: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        ["/bin/sh", "-c", f"{script} echo ready; while :; do sleep 0.1; done"],
        env={**os.environ, _VARIABLE: value},
        stdout=subprocess.PIPE,
        start_new_session=True,
    )


def test_processes_of_a_run_are_ended_also_those_that_ignore_a_request_and_no_others() -> None:
    ours, others = uuid.uuid4().hex, uuid.uuid4().hex
    polite, deaf, foreign = start("", ours), start("trap '' TERM;", ours), start("", others)
    try:
        for process in (polite, deaf, foreign):
            assert process.stdout is not None
            process.stdout.readline()
        end_processes_with(_VARIABLE, ours)
        # Only that they end: psutil may have taken their exit statuses.
        polite.wait(60)
        deaf.wait(60)
        assert foreign.poll() is None
    finally:
        for process in (polite, deaf, foreign):
            process.kill()
            process.communicate()
