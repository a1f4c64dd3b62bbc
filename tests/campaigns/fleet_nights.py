"""Nights of a fleet in fast motion, of whose tables a third are written to all the while.

``./dev campaign fleet-nights [--tables 60] [--nights 10] [--disk] [--no-spark]``. delta-rs writes to tables on MinIO, and delta-spark to tables
on the disk, since its commits to S3 need a lock. Each table has many small files and a deletion at first. Those that nobody writes to keep no
removed files, so that VACUUM is due within minutes; the others keep them for the usual week.

Prints what came of it; the exit code is 1 where a row is wrong, a table is not healthy by the policy's own measure when the writers have
ended, a file was deleted unannounced, or writers lost more than one statement for 20 commits. The short form is
tests/scenarios/test_fleet_beside_writers.py.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from tests.support.environment.delta_spark import delta_spark_jars, start_delta_spark, stop_spark
from tests.support.fleet.written_tables import DeltaRs, DeltaSpark, Writer, WrittenTable, unannounced
from tests.support.servers.s3 import MINIO, S3Server, running_minio

from delta_maintenance.fleet.account.night import Night
from delta_maintenance.fleet.policy.reading import policy_of
from delta_maintenance.fleet.run import FleetJob, FleetNight
from delta_maintenance.job import JobSite
from delta_maintenance.progress import SilentProgress

#: Fewer than a checkpoint takes, which would forget the removed files.
_APPENDS = 6
_MOST_LOST = 0.05
#: Seconds between two statements on one table, on average.
_PAUSE_SECONDS = 10.0


class Lake:
    """The places of the tables, and the programs that write to them."""

    def __init__(self, disk: Path, server: S3Server | None, session: Any) -> None:
        self._server, self._disk = server, disk
        self._bucket = None if server is None else server.make_bucket()
        self.options = {} if server is None else server.storage_options
        self.delta_rs = DeltaRs(None if server is None else server.delta_rs_options)
        self.on_disk = DeltaRs()
        self._spark = None if session is None else DeltaSpark(session)

    @property
    def roots(self) -> list[str]:
        return [f"{self._disk}/**", *([] if self._bucket is None else [f"s3://{self._bucket}/**"])]

    def tables(self, number: int) -> tuple[list[WrittenTable], list[WrittenTable]]:
        """Make the tables; return those that are written to all the while, and the others."""
        made = [self._made(one, number) for one in range(number)]
        third = number // 3
        for table in made[third:]:
            self.reader_of(table).keep_no_removed_files(table.address)
        return made[:third], made[third:]

    def _made(self, one: int, number: int) -> WrittenTable:
        by_spark = self._spark is not None and one < number // 6
        root = f"s3://{self._bucket}" if self._bucket and not by_spark else str(self._disk)
        first: Writer = self.on_disk if root == str(self._disk) else self.delta_rs
        table = WrittenTable(f"{root}/table-{one:03}", first)
        for _ in range(_APPENDS):
            table.append()
        table.delete(random.Random(one))
        if by_spark and self._spark is not None:
            table.writer = self._spark
        return table

    def reader_of(self, table: WrittenTable) -> DeltaRs:
        return self.delta_rs if table.address.startswith("s3:") else self.on_disk

    def data_files(self) -> set[str]:
        files = {str(path) for path in self._disk.rglob("*.parquet")}
        if self._server is not None:
            files |= {f"s3://{key}" for key in self._server.keys(str(self._bucket))}
        return {file for file in files if file.endswith(".parquet") and "/_" not in file}


@contextmanager
def writing(tables: Sequence[WrittenTable]) -> Iterator[None]:
    """Let each program write to its tables, in a thread of its own."""
    over = threading.Event()
    failures: list[BaseException] = []

    def work(mine: Sequence[WrittenTable], seed: int) -> None:
        numbers = random.Random(seed)
        try:
            while not over.wait(2 * numbers.random() * _PAUSE_SECONDS / len(mine)):
                numbers.choice(mine).write(numbers)
        except BaseException as error:
            failures.append(error)

    by_writer: dict[int, list[WrittenTable]] = {}
    for table in tables:
        by_writer.setdefault(id(table.writer), []).append(table)
    threads = [
        threading.Thread(target=work, args=(mine, seed)) for seed, mine in enumerate(by_writer.values())
    ]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        over.set()
        for thread in threads:
            thread.join()
    if failures:
        raise failures[0]


def run(lake: Lake, state: str, num_tables: int, num_nights: int) -> bool:
    written, others = lake.tables(num_tables)
    policy = {
        "tables": {"include": lake.roots},
        "healthy": {"small_files": 4},
        "disruption": {"quiet": "0m"},
        "jitter": "0m",
        "other_maintainer": "maintain",
        "trust": {"deletions": "approve"},
    }
    fleet = FleetNight(policy_of(policy), state, JobSite(lake.options), SilentProgress())
    nights: list[Night] = []
    wrong: list[str] = []
    with writing(written):
        for number in range(num_nights):
            before, begun = lake.data_files(), time.monotonic()
            report = fleet.run(lake.roots, FleetJob())
            night = fleet.store.night(report.run_id)
            wrong += [
                f"{file} was deleted unannounced"
                for file in unannounced(before - lake.data_files(), night, nights)
            ]
            wrong += [
                f"{one.table}: {one.run.message}"
                for one in night.outcomes
                if one.run.has_failed and one.run.kind != "conflict"
            ]
            nights.append(night)
            print(_line(number + 1, night, time.monotonic() - begun), flush=True)
    # The writers have ended, so one more night leaves nothing to do.
    fleet.run(lake.roots, FleetJob())
    unhealthy = fleet.plan(lake.roots).figures.num_unhealthy
    for table in (*written, *others):
        if lake.reader_of(table).ids(table.address) != sorted(table.ids):
            wrong.append(f"{table.address} has other rows than its writers left")
    commits, lost = sum(one.commits for one in written), sum(len(one.failed) for one in written)
    print(
        f"{len(written)} of {num_tables} tables written to: {commits} commits, {lost} statements lost ({lost / commits:.3f} a commit)"
    )
    print(f"{unhealthy} tables unhealthy at the end; {len(wrong)} faults", *wrong[:20], sep="\n  ")
    return not wrong and not unhealthy and lost <= _MOST_LOST * commits


def _line(number: int, night: Night, seconds: float) -> str:
    count: Callable[[str], int] = lambda name: sum(one.run.operation == name for one in night.outcomes)  # noqa: E731
    conflicts = sum(one.run.kind == "conflict" for one in night.outcomes)
    return (
        f"night {number}: {len(night.decision.unhealthy)} unhealthy, {count('optimize')} OPTIMIZE, {count('vacuum')} VACUUM, "
        f"{conflicts} lost to writers, {len(night.decision.announced)} announced, {len(night.not_begun)} not begun, {seconds:.0f} s"
    )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--tables", type=int, default=60)
    parser.add_argument("--nights", type=int, default=10)
    parser.add_argument("--disk", action="store_true", help="all tables on the disk, and no MinIO")
    parser.add_argument("--no-spark", action="store_true", help="delta-rs is the only writer")
    options = parser.parse_args()
    with ExitStack() as stack:
        scratch = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        server = session = None
        if not options.disk:
            program = MINIO.find(lambda line: print(line, flush=True))
            server = stack.enter_context(running_minio(program, scratch / "minio"))
        if not options.no_spark:
            session = start_delta_spark(delta_spark_jars(), scratch, runs_long=True)
            stack.callback(stop_spark, session)
        lake = Lake(scratch / "lake", server, session)
        is_well = run(lake, str(scratch / "state"), options.tables, options.nights)
    return 0 if is_well else 1


if __name__ == "__main__":
    sys.exit(main())
