"""The tests that every launcher of drivers has to pass, see :class:`airflow_delta.runners.drivers.driver.DriverLauncher`."""

from __future__ import annotations

import hashlib
import json
import secrets
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from airflow_delta.runners.detached import JobHandle
from airflow_delta.runners.drivers.driver import DriverLauncher, DriverPhase, DriverRequest, DriverState
from delta_maintenance.contract import RUN_KEY_VARIABLE

#: Ends well if its environment holds the secret with that SHA-256.
_PROGRAM = f"""import hashlib, os, sys, time
time.sleep(float(sys.argv[1]))
secret = os.environ.get({RUN_KEY_VARIABLE!r}, "").encode()
sys.exit(0 if hashlib.sha256(secret).hexdigest() == sys.argv[2] else 3)
"""


class DriverLauncherContract:
    """Tests the promises of a launcher on a running cluster.

    A subclass gives the fixtures ``launcher`` and ``program_directory``. The latter is a directory in which a program of some lines is put
    that the drivers run; the cluster's machines find it there. It needs no Spark.

    :cvar seconds_to_end: how long a driver may take from its start to its end on this cluster.
    :cvar seconds_at_work: how long the driver works that is ended.
    :cvar spark_conf: Spark properties of the drivers.
    """

    seconds_to_end = 120.0
    seconds_at_work = 600.0
    seconds_between_looks = 0.2
    spark_conf: dict[str, str] = {}  # noqa: RUF012 - a subclass replaces it

    def application_in(self, directory: Path) -> str:
        """Return the program's address as the cluster finds it, for a program in the directory."""
        return str(directory / "driver.py")

    def test_a_driver_with_its_secret_ends_well_and_is_known_to_an_equal_launcher(
        self, launcher: DriverLauncher, program_directory: Path
    ) -> None:
        request = self._request(program_directory, seconds=0)
        handle = launcher.start(request)
        secret = request.environment[RUN_KEY_VARIABLE]
        assert secret not in json.dumps(handle), "a handle is stored where others read it"
        assert secret not in repr(request)
        path, kwargs = launcher.serialize()
        assert secret not in json.dumps(kwargs)
        module, _, name = path.rpartition(".")
        equal: DriverLauncher = getattr(import_module(module), name)(**json.loads(json.dumps(kwargs)))
        assert equal.serialize() == (path, kwargs)
        assert equal.place == launcher.place
        state = self._end_of(equal, json.loads(json.dumps(handle)))
        assert state.phase is DriverPhase.SUCCEEDED, state
        found = launcher.find(request.submission_id)
        assert found is None or launcher.state(found).phase.is_over
        launcher.end(handle)  # it is over: nothing happens

    def test_a_driver_that_fails_is_seen_to_have_failed(
        self, launcher: DriverLauncher, program_directory: Path
    ) -> None:
        handle = launcher.start(self._request(program_directory, seconds=0, digest="another"))
        assert self._end_of(launcher, handle).phase in (DriverPhase.FAILED, DriverPhase.GONE)

    def test_a_driver_at_work_is_ended_and_ending_it_twice_is_harmless(
        self, launcher: DriverLauncher, program_directory: Path
    ) -> None:
        handle = launcher.start(self._request(program_directory, seconds=self.seconds_at_work))
        assert not launcher.state(handle).phase.is_over
        launcher.end(handle)
        assert self._end_of(launcher, handle).phase in (DriverPhase.FAILED, DriverPhase.GONE)
        launcher.end(handle)

    def test_a_driver_that_was_never_started_is_not_found(self, launcher: DriverLauncher) -> None:
        assert launcher.find(secrets.token_hex(16)) is None

    def test_an_unknown_driver_is_no_error(self, launcher: DriverLauncher, unknown_handle: JobHandle) -> None:
        """``unknown_handle`` is a fixture, too: a handle as this launcher makes them, of a driver that does not exist."""
        assert launcher.state(unknown_handle).phase in (DriverPhase.GONE, DriverPhase.UNKNOWN)
        launcher.end(unknown_handle)

    def _request(self, directory: Path, seconds: float, digest: str = "") -> DriverRequest:
        (directory / "driver.py").write_text(_PROGRAM, encoding="utf-8")
        secret = secrets.token_hex(32)
        return DriverRequest(
            name="contract of launchers",
            submission_id=secrets.token_hex(16),
            application=self.application_in(directory),
            arguments=[str(seconds), digest or hashlib.sha256(secret.encode()).hexdigest()],
            environment={RUN_KEY_VARIABLE: secret},
            spark_conf=self.spark_conf,
        )

    def _end_of(self, launcher: DriverLauncher, handle: dict[str, Any]) -> DriverState:
        """Wait until the driver is over; one that the cluster does not know yet may still appear."""
        deadline = time.monotonic() + self.seconds_to_end
        looks_while_gone = 0
        while True:
            state = launcher.state(handle)
            looks_while_gone = looks_while_gone + 1 if state.phase is DriverPhase.GONE else 0
            if looks_while_gone > 3 or (state.phase.is_over and state.phase is not DriverPhase.GONE):
                return state
            assert time.monotonic() < deadline, f"not over in {self.seconds_to_end} s: {state}"
            time.sleep(self.seconds_between_looks)
