"""Event-driven DAGs for ten minutes: `python -m tests.campaigns.tail [--seconds 600] [--no-spark]`.

delta-rs, delta-spark and this provider write to ten tables, five on the local disk and five on an S3 server. Meanwhile the
campaign kills the triggerer three times, restarts the scheduler, pauses and unpauses DAGs, stops the S3 server for a tenth
of the time, and cleans logs: first of tables whose watchers are behind, later of tables whose watchers are up to date.
Afterwards it checks for each table:

1. every version that changed data is in a range that a run was told, or a range reports it as deleted;
2. the ranges join, in order, and end at the end of the log;
3. a range is repeated only if the triggerer was killed or the DAG was paused in between, and the event says so;
4. no run was started by maintenance alone, although for a while there was nothing else;
5. ranges report exactly those deletions that came before the watcher.

The exit code is 1 if a check fails.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from tests.campaigns.tail_writers import SHORT_LOG_RETENTION, RowTable, TableWriter
from tests.support import ROOT
from tests.support.runs.tail_runs import (
    DataVersions,
    LiveAirflow,
    RunReader,
    ToldRanges,
    place_of,
    settle,
    tailed_environment,
    unpause,
)
from tests.support.servers.process import free_port
from tests.support.servers.s3 import MINIO, S3Server

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTLING_SECONDS = 240
#: How long a running watcher may take to look again, and a cleanup of a log, on a busy machine.
_SECONDS_TO_SETTLE, _PATIENCE_SECONDS = 10, 90
_TABLES = 5
#: By the first characters of the table's name: local, and on S3.
_SECONDS_BETWEEN_COMMITS = {"local": 2.0, "s3_": 5.0}
#: Tables whose logs are cleaned while their DAGs are paused, and while the triggerer is dead.
_CLEANED_IN_PAUSE, _CLEANED_IN_CRASH = ("local0", "s3_0"), ("local1", "s3_1")
_CLEANED = (*_CLEANED_IN_PAUSE, *_CLEANED_IN_CRASH)
_SPARK_SETTINGS = {
    # An outage is told at once.
    "spark.hadoop.fs.s3a.attempts.maximum": "2",
    "spark.hadoop.fs.s3a.retry.limit": "2",
    # VACUUM lists in so many tasks: by default 10,000.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
}


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


class Story:
    """What happens to ten tables and their Airflow.

    :ivar interruptions: when the triggerer was killed, or the DAGs paused or unpaused.
    :ivar lost: of each table, the versions after which the log goes on, of cleanings that its watcher came too late for.
    :ivar cleaned: commits that were deleted, from the logs of watchers that were behind, and that were not.
    :ivar troubles: what did not come about.
    """

    def __init__(self, airflow: LiveAirflow, store: MortalS3, tables: dict[str, RowTable]) -> None:
        self.airflow, self.store, self.tables = airflow, store, tables
        self.versions = {name: DataVersions(table) for name, table in tables.items()}
        self.writers = {
            name: TableWriter(table, _SECONDS_BETWEEN_COMMITS[name[:-1]]) for name, table in tables.items()
        }
        self.interruptions: list[datetime] = []
        self.lost: dict[str, list[int]] = {name: [] for name in tables}
        self.cleaned: Counter[str] = Counter()
        self.maintenance_while_quiet = 0
        self.troubles: list[str] = []

    def chapters(self) -> list[tuple[float, str, Callable[[], object]]]:
        """When, as a share of all time, what happens."""
        return [
            (0.10, "the triggerer is killed", self.kill_triggerer),
            (0.20, "nothing but maintenance from now on", lambda: self.maintain_only(on=True)),
            (0.28, "rows again", lambda: self.maintain_only(on=False)),
            (0.32, "the scheduler is started again", self.restart_scheduler),
            (0.40, "the DAGs are paused", lambda: self.pause(paused=True)),
            (0.46, "logs are cleaned while no watcher looks", lambda: self.clean_behind(_CLEANED_IN_PAUSE)),
            (0.49, "the DAGs are unpaused", lambda: self.pause(paused=False)),
            (0.59, "the triggerer is killed, and logs are cleaned before there is another", self.crash_clean),
            (0.68, "the S3 server is down", self.store.stop),
            (0.78, "the S3 server is up", self.store.start),
            (0.88, "logs are cleaned that have been read", self.clean_read),
            (0.96, "the triggerer is killed", self.kill_triggerer),
        ]

    def run(self, seconds: float) -> None:
        started = time.monotonic()
        for writer in self.writers.values():
            writer.start()
        try:
            for moment, what, act in [*self.chapters(), (1.0, "the writers stop", lambda: None)]:
                while time.monotonic() - started < moment * seconds:
                    self.gather()
                    time.sleep(2)
                print(f"{time.monotonic() - started:5.0f} s  {what}", flush=True)
                act()
        finally:
            for writer in self.writers.values():
                writer.stop()
            for writer in self.writers.values():
                writer.join()

    def gather(self) -> None:
        for known in self.versions.values():
            # The store may be down.
            with suppress(Exception):
                known.gather()

    def kill_triggerer(self) -> None:
        self.airflow.kill("triggerer")
        self.interruptions.append(datetime.now(UTC))
        self.airflow.start_component("triggerer")

    def restart_scheduler(self) -> None:
        self.airflow.kill("scheduler", signal.SIGTERM)
        self.airflow.start_component("scheduler")

    def maintain_only(self, *, on: bool) -> None:
        done = sum(_maintenance(table) for table in self.tables.values())
        self.maintenance_while_quiet = done - self.maintenance_while_quiet
        for writer in self.writers.values():
            writer.maintenance_alone = on

    def pause(self, *, paused: bool) -> None:
        # Watchers are ended a while after the one, and begin a while after the other.
        self.interruptions.append(datetime.now(UTC))
        for table in self.tables.values():
            unpause(self.airflow, table, paused=paused)

    def crash_clean(self) -> None:
        self.airflow.kill("triggerer")
        self.interruptions.append(datetime.now(UTC))
        self.clean_behind(_CLEANED_IN_CRASH)
        self.airflow.start_component("triggerer")

    def clean_behind(self, names: tuple[str, ...]) -> None:
        def clean(name: str) -> None:
            table, versions = self.tables[name], self.versions[name]
            place, moved = place_of(self.airflow, table), True
            # A watcher goes on for a moment after its DAG was paused.
            while moved or versions.latest < place + 2:
                table.write_by_delta_rs()
                time.sleep(_SECONDS_TO_SETTLE)
                versions.gather()
                before, place = place, place_of(self.airflow, table)
                moved = place != before
            table.checkpoint()
            count, earliest = table.clean_log_for_good()
            self.cleaned["behind"] += count
            assert earliest > place + 1, f"cleaned up to {earliest}, of which {place} were read"
            self.lost[name].append(earliest)

        self._have_done(names, clean)

    def clean_read(self) -> None:
        def clean(name: str) -> None:
            table, versions = self.tables[name], self.versions[name]
            table.checkpoint()
            versions.gather()
            while place_of(self.airflow, table) < versions.latest:
                time.sleep(1)
            count, _ = table.clean_log_for_good()
            self.cleaned["read"] += count
            assert count, "there was nothing to clean"

        self._have_done(_CLEANED, clean)

    def _have_done(self, names: tuple[str, ...], what: Callable[[str], None]) -> None:
        asked = {name: self.writers[name].ask(partial(what, name)) for name in names}
        for name, one in asked.items():
            try:
                one.result(_PATIENCE_SECONDS)
            except Exception as error:
                self.troubles.append(f"{name}: {type(error).__name__}: {error}")
                print(f"       BAD: {self.troubles[-1]}", flush=True)

    def verdict(self, name: str, found: ToldRanges) -> list[str]:
        """Returns the checks that fail."""
        versions = self.versions[name]
        # A range that was deleted before it could be repeated is reported separately.
        gaps = {first for first, _ in found.cleaned}
        gone_up_to = [last + 1 for _, last in found.cleaned if last + 1 not in gaps]
        last_told = max((one.last for one in found.ranges), default=-1)
        checks = {
            "missing": found.missing(versions.gather()),
            "neither joined nor the same": found.breaks(),
            "out of order": found.out_of_order(),
            "repeated for no reason": found.unexplained_repeats(self.interruptions),
            "runs for maintenance alone": found.runs_without_data,
            "not told until": [v for v in versions.changing if v > last_told][-1:],
            "deletions that were told, and that were to be told": (
                [gone_up_to, self.lost[name]] if gone_up_to != self.lost[name] else []
            ),
        }
        return [f"{what}: {which}" for what, which in checks.items() if which]


def _maintenance(table: RowTable) -> int:
    return sum(count for writer, count in table.commits.items() if "maintenance" in writer)


def report(story: Story, found: dict[str, ToldRanges]) -> bool:
    """Prints the counts; returns whether every check holds."""
    good = not story.troubles
    sums: Counter[str] = Counter()
    for name, table in story.tables.items():
        told, bad = found[name], story.verdict(name, found[name])
        good &= not bad
        repeats = len(told.repeats())
        marked = sum(one.repeated for one in told.ranges)
        gone = ", ".join(f"{first} to {last}" for first, last in told.cleaned) or "none"
        sums += Counter(
            {
                "versions that changed data": len(story.versions[name].changing),
                "other versions": story.versions[name].latest + 1 - len(story.versions[name].changing),
                "runs": told.runs,
                "events": told.events,
                "ranges": len(told.ranges),
                "repeated ranges": repeats,
                "ranges marked as possibly repeated": marked,
            }
        )
        by_writer = ", ".join(f"{count} by {writer}" for writer, count in sorted(table.commits.items()))
        print(
            f"{name}: {len(story.versions[name].changing)} of {story.versions[name].latest + 1} versions changed data "
            f"({by_writer}); {told.runs} runs, {told.events} events, {repeats} ranges repeated ({marked} "
            f"marked), deleted before they were read: {gone}" + "".join(f"\n    BAD: {what}" for what in bad)
        )
    print(", ".join(f"{count} {what}" for what, count in sums.items()))
    print(
        f"{story.cleaned['behind']} commits cleaned from the logs of watchers that were behind, {story.cleaned['read']} "
        f"of watchers that were not; {story.maintenance_while_quiet} maintenance operations while there was nothing else"
    )
    failures = sum((writer.failures for writer in story.writers.values()), Counter())
    for what, count in failures.most_common(8):
        print(f"{count} commits failed: {what}")
    return good


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--seconds", type=float, default=600)
    parser.add_argument("--no-spark", action="store_true", help="leave delta-spark out")
    parser.add_argument("--keep", type=Path, help="a new directory for the tables and Airflow's logs")
    options = parser.parse_args()
    # Ends the block below, which stops all processes.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with ExitStack() as stack:
        scratch = options.keep or Path(stack.enter_context(tempfile.TemporaryDirectory()))
        scratch.mkdir(parents=True, exist_ok=True)
        store = MortalS3(scratch / "minio")
        stack.callback(store.stop)
        time.sleep(3)
        tables = _tables(scratch, store.server)
        if not options.no_spark:
            session = stack.enter_context(_delta_spark(scratch, store.server))
            for table in tables.values():
                table.session = session
        for table in tables.values():
            table.create()
        airflow = stack.enter_context(_running_airflow(scratch, tables, store.server))
        for table in tables.values():
            airflow.wait_for_dag(f"tail_{table.name}")
            unpause(airflow, table)
        story = Story(airflow, store, tables)
        story.run(options.seconds)
        readers = {name: RunReader(airflow, table) for name, table in tables.items()}
        return 0 if report(story, settle(readers, story.versions, _SETTLING_SECONDS)) else 1


def _tables(scratch: Path, server: S3Server) -> dict[str, RowTable]:
    bucket = server.make_bucket()
    tables = [RowTable(f"local{n}", str(scratch / f"local{n}")) for n in range(_TABLES)]
    for n in range(_TABLES):
        remote = RowTable(
            f"s3_{n}", f"s3://{bucket}/s3_{n}", "lake", server.storage_options, server.delta_rs_options
        )
        tables.append(remote)
    for table in tables:
        table.properties = SHORT_LOG_RETENTION if table.name in _CLEANED else {}
    return {table.name: table for table in tables}


@contextmanager
def _delta_spark(scratch: Path, server: S3Server) -> Iterator[SparkSession]:
    from tests.support.environment.delta_spark import delta_spark_jars, start_delta_spark, stop_spark
    from tests.support.mixed_writers.parts import s3_jars

    settings = {**server.spark_conf, **_SPARK_SETTINGS}
    confs = [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    os.environ["PYSPARK_SUBMIT_ARGS"] = shlex.join([*confs, "pyspark-shell"])
    session = start_delta_spark((*delta_spark_jars(), *map(Path, s3_jars())), scratch)
    try:
        yield session
    finally:
        stop_spark(session)


@contextmanager
def _running_airflow(scratch: Path, tables: dict[str, RowTable], server: S3Server) -> Iterator[LiveAirflow]:
    dags = scratch / "dags"
    dags.mkdir()
    shutil.copy(ROOT / "tests/integration/airflow_live/dags/tail_cases.py", dags)
    connection = {"conn_type": "delta", "extra": server.storage_options}
    environment = {
        "AIRFLOW_CONN_LAKE": json.dumps(connection),
        # So soon does a watcher notice that its DAG was unpaused.
        "AIRFLOW__DAG_PROCESSOR__MIN_FILE_PROCESS_INTERVAL": "5",
        **tailed_environment(tables.values()),
    }
    airflow = LiveAirflow(scratch / "airflow", dags, environment)
    try:
        airflow.start()
        yield airflow
    finally:
        airflow.stop()


if __name__ == "__main__":
    sys.exit(main())
