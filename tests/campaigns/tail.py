"""Event-driven DAGs at length: `python -m tests.campaigns.tail [--seconds 600] [--no-spark]`.

Ten tables, five on the local disk and five on an S3 server, are committed to by delta-rs, delta-spark and ours, while the
triggerer is killed three times, the scheduler started again, the DAGs paused and unpaused, the S3 server down for a
tenth of the time, and logs cleaned. Then the runs are reckoned: every version that changed data has to be in a range,
ranges may only be repeated as a whole, and no run may be for maintenance alone. Exit code 1 where something does not hold.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path

from tests.servers.process import free_port
from tests.servers.s3 import MINIO, S3Server
from tests.tail_runs import (
    ROOT,
    DataVersions,
    LiveAirflow,
    TailedTable,
    Writers,
    settle,
    tailed_environment,
    unpause,
)

_SETTLING_SECONDS = 240
_KEPT_COMMITS = 60


class MortalS3:
    """An S3 server that can be down for a while, at one address."""

    def __init__(self, scratch: Path) -> None:
        self._scratch, self._port = scratch, free_port()
        (scratch / "data").mkdir(parents=True)
        self._program = MINIO.find(lambda line: print(line, flush=True))
        self.server = S3Server(f"http://127.0.0.1:{self._port}")
        self.start()

    def start(self) -> None:
        environment = {
            "MINIO_ROOT_USER": self.server.key,
            "MINIO_ROOT_PASSWORD": self.server.secret,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
            "HOME": str(self._scratch),
        }
        command = [*self._program, "server", "--quiet", "--address", f"127.0.0.1:{self._port}"]
        with (self._scratch / "server.log").open("ab") as log:
            self._process = subprocess.Popen(
                [*command, str(self._scratch / "data")],
                env={**os.environ, **environment},
                stdout=log,
                stderr=log,
            )

    def stop(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()


def main() -> int:  # noqa: PLR0915 - one story, from its beginning to its end
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--no-spark", action="store_true", help="leave delta-spark out")
    options = parser.parse_args()
    # So that nothing is left behind whoever ends it.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        store = MortalS3(scratch / "minio")
        stack.callback(store.stop)
        time.sleep(3)
        bucket = store.server.make_bucket()
        local = [TailedTable(f"local{n}", str(scratch / f"local{n}")) for n in range(5)]
        remote = [TailedTable.on_s3(f"s3_{n}", bucket, store.server, "lake") for n in range(5)]
        tables = {table.name: table for table in (*local, *remote)}
        for table in tables.values():
            table.create()
        airflow = stack.enter_context(running_airflow(scratch, list(tables.values()), store.server))
        for table in tables.values():
            airflow.wait_for_dag(f"tail_{table.name}")
            unpause(airflow, table)
        versions = {name: DataVersions(table) for name, table in tables.items()}
        writers = Writers(tables, {name: 5 if name.startswith("s3") else 2 for name in tables})
        if not options.no_spark:
            from tests.delta_spark import delta_spark_jars, start_delta_spark

            writers.session = start_delta_spark(delta_spark_jars(), scratch)
            stack.callback(writers.session.stop)
        writers.start()
        stack.callback(writers.stop)
        cleaned = 0

        def gather() -> None:
            for known in versions.values():
                with suppress(Exception):  # the store is down
                    known.gather()

        def kill_triggerer() -> None:
            airflow.kill("triggerer")
            airflow.start_component("triggerer")

        def restart_scheduler() -> None:
            airflow.kill("scheduler", signal.SIGTERM)
            airflow.start_component("scheduler")

        def clean_logs() -> None:
            nonlocal cleaned
            gather()
            cleaned += sum(table.clean_log(_KEPT_COMMITS) for table in tables.values())

        def pause(*, paused: bool) -> None:
            for table in tables.values():
                unpause(airflow, table, paused=paused)

        story: list[tuple[float, str, Callable[[], object]]] = [
            (0.15, "the triggerer is killed", kill_triggerer),
            (0.28, "the scheduler is started again", restart_scheduler),
            (0.38, "the DAGs are paused", lambda: pause(paused=True)),
            (0.45, "the DAGs are unpaused", lambda: pause(paused=False)),
            (0.52, "the triggerer is killed", kill_triggerer),
            (0.62, "the S3 server is down", store.stop),
            (0.72, "the S3 server is up", store.start),
            (0.82, "logs are cleaned", clean_logs),
            (0.88, "the triggerer is killed", kill_triggerer),
        ]
        started = time.monotonic()
        for moment, what, act in story:
            while time.monotonic() - started < moment * options.seconds:
                gather()
                time.sleep(2)
            print(f"{time.monotonic() - started:5.0f} s  {what}", flush=True)
            act()
        while time.monotonic() - started < options.seconds:
            gather()
            time.sleep(2)
        writers.stop()
        found = settle(airflow, tables, versions, _SETTLING_SECONDS)
        failed = False
        for name, table in tables.items():
            reckoning = found[name]
            missing = reckoning.missing(versions[name].gather())
            overlaps = reckoning.overlaps()
            bad = bool(missing or overlaps or reckoning.runs_without_data)
            failed |= bad
            by_writer = ", ".join(f"{count} by {writer}" for writer, count in sorted(table.commits.items()))
            print(
                f"{name}: {len(versions[name].changing)} versions that changed data ({by_writer}); "
                f"{reckoning.runs} runs, {reckoning.events} events, {reckoning.repeats} repeated "
                f"({reckoning.marked_repeats} marked as possibly repeated), "
                f"{reckoning.runs_without_data} runs without data"
                + (f"; MISSING {missing[:10]}, OVERLAPS {overlaps[:10]}" if bad else "")
            )
        print(
            f"{cleaned} commits cleaned from the logs, {writers.failures} commits lost to others or an outage"
        )
        return int(failed)


class running_airflow:  # noqa: N801 - reads as a function in a with statement
    def __init__(self, scratch: Path, tables: list[TailedTable], server: S3Server) -> None:
        import json

        dags = scratch / "dags"
        dags.mkdir()
        shutil.copy(ROOT / "tests/integration/airflow_live/dags/tail_cases.py", dags)
        connection = {"conn_type": "delta", "extra": server.storage_options}
        environment = {
            "AIRFLOW_CONN_LAKE": json.dumps(connection),
            "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5",
            **tailed_environment(tables),
        }
        self._airflow = LiveAirflow(scratch / "airflow", dags, environment)

    def __enter__(self) -> LiveAirflow:
        self._airflow.start()
        return self._airflow

    def __exit__(self, *_: object) -> None:
        self._airflow.stop()


if __name__ == "__main__":
    sys.exit(main())
