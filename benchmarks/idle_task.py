"""What a task costs that has nothing to do, taken apart. ``./dev bench idle_task`` (a real Airflow, some minutes).

The tasks run one after the other, on a LocalExecutor. Times are measured by Airflow (``start_date`` and ``end_date`` of the task
instance: how long it holds its slot) and by the task itself, which tells when its operator begins and ends, and when its job does. The
table has one file, one checkpoint and a commit after it; its connection is in Airflow's database. The parts of a job were measured in a
process that takes the same steps.

2026-11-28, 2 cores at a load of 2.7, Airflow 3.3.2, SQLite, pyarrow 26.0.1; medians of five runs, seconds:

===========================================  ========  ==========  ======  ======  ======
part                                         optimize  checkpoint  vacuum  health  python
===========================================  ========  ==========  ======  ======  ======
Airflow starts the task, reads the DAG file  0.11      0.11        0.11    0.10    0.14
arguments, connection, identity of the run   0.03      0.03        0.03
the job's process                            0.20      0.18        0.22
report, events                               0.02      0.02        0.02
the operator itself                                                        0.19    0.01
XCom, and Airflow ends the task              0.01      0.01        0.01    0.01    0.00
from its start to its end                    0.38      0.35        0.39    0.31    0.14
===========================================  ========  ==========  ======  ======  ======

The job's process of optimize: Python 0.01, pyarrow with NumPy 0.08, our modules 0.08, the log 0.01 (0.10 on S3 with 20 ms for each
answer), plan and report 0.01, its end 0.03. At a load of 10.7 all parts took three to four times as long (optimize: 1.47). Before
health kept pyarrow from importing pandas, its operator took 0.36.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import vacuum_latency

ROOT = Path(__file__).resolve().parents[1]
sys.path[:0] = [str(ROOT / ".dev"), str(ROOT)]

from tests.support.servers.s3 import MINIO, running_minio  # noqa: E402

from live_airflow import LiveAirflow  # noqa: E402  (found by the path above)

_DAG = """
import json, time
from pathlib import Path
from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG
from airflow_delta.operators import (
    DeltaCheckpointOperator, DeltaOptimizeOperator, DeltaTableHealthOperator, DeltaVacuumOperator
)

def mark(context, what):
    with (Path({marks!r}) / context["run_id"]).open("a") as file:
        file.write(json.dumps([what, time.time()]) + "\\n")

class Timed:
    def execute(self, context):
        self.told = context
        mark(context, "operator")
        try:
            return super().execute(context)
        finally:
            mark(context, "operator ends")

class WithJob(Timed):
    def local_runner(self, storage_options):
        runner = super().local_runner(storage_options)
        run, context = runner.run, self.told

        def timed(*arguments, **more):
            mark(context, "job")
            try:
                return run(*arguments, **more)
            finally:
                mark(context, "job ends")

        runner.run = timed
        return runner

class Python(Timed, PythonOperator): pass
class Optimize(WithJob, DeltaOptimizeOperator): pass
class Checkpoint(WithJob, DeltaCheckpointOperator): pass
class Vacuum(WithJob, DeltaVacuumOperator): pass
class Health(Timed, DeltaTableHealthOperator): pass

common = dict(task_id="task", table={table!r}, delta_conn_id="lake")
for name, make in dict(
    python=lambda: Python(task_id="task", python_callable=print),
    optimize=lambda: Optimize(engine="local", **common),
    checkpoint=lambda: Checkpoint(engine="local", **common),
    vacuum=lambda: Vacuum(engine="local", **common),
    health=lambda: Health(**common),
).items():
    with DAG(name, schedule=None):
        make()
"""
#: Added to every answer of the object store.
_LATENCY_MS = 20
_KINDS = ("python", "optimize", "checkpoint", "vacuum", "health")
#: The moments between which each part lies. A task without a job has one part instead of three.
_PARTS = {
    "queued: Airflow's scheduler and executor": ("queued", "start"),
    "Airflow starts the task, reads the DAG file": ("start", "operator"),
    "arguments, connection, identity of the run": ("operator", "job"),
    "the job's process": ("job", "job ends"),
    "report, events": ("job ends", "operator ends"),
    "the operator itself": ("operator alone", "operator ends"),
    "XCom, and Airflow ends the task": ("operator ends", "end"),
    "from its start to its end": ("start", "end"),
}
_JOB = """
import json, sys, time
marks = [time.time()]
def mark(): marks.append(time.time())
from delta_maintenance.process.fast_start import start_fast
start_fast()
import pyarrow.parquet
mark()
from delta_log.table import Table
from delta_maintenance.contract import JobSpec
from delta_maintenance.job import JobSite, run_on
from delta_maintenance.progress import ProgressLines
import delta_maintenance.optimize.run
mark()
uri, options = sys.argv[1], json.loads(sys.argv[2])
table = Table(uri, options)
mark()
table.snapshot()
mark()
report = run_on(table, JobSpec("optimize", uri, "idle"), JobSite(options), ProgressLines(sys.stderr))
mark()
assert report.status == "nothing_to_do", report
print(marks)
"""
_JOB_PARTS = (
    "Python starts",
    "import of pyarrow with NumPy",
    "import of our own modules",
    "client of the store",
    "the table's log",
    "plan (with a second look at the log) and report",
    "the process ends",
)


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="A task with nothing to do")
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        table, marks = home / "table", home / "marks"
        _write(table)
        marks.mkdir()
        (home / "dags").mkdir()
        (home / "dags" / "kinds.py").write_text(_DAG.format(table=str(table), marks=str(marks)))
        airflow = LiveAirflow(home / "airflow", home / "dags")
        try:
            airflow.start()
            airflow.command("connections", "add", "lake", "--conn-type", "delta")
            times = {
                kind: [_task(airflow, kind, marks) for _ in range(given.rounds + 1)][1:] for kind in _KINDS
            }
        finally:
            airflow.stop()
        print(
            f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}, medians of {given.rounds} runs, seconds\n"
        )
        _print(
            "part",
            _KINDS,
            {part: [_between(times[kind], *ends) for kind in _KINDS] for part, ends in _PARTS.items()},
        )
        jobs = {"disk": [_job(str(table), {}) for _ in range(given.rounds + 1)][1:]}
        (home / "minio").mkdir()
        jobs[f"S3, {_LATENCY_MS} ms"] = _on_s3(table, home / "minio", given.rounds)
        rows = {
            part: [statistics.median(one[at] for one in runs) for runs in jobs.values()]
            for at, part in enumerate(_JOB_PARTS)
        }
        rows["in all"] = [statistics.median(map(sum, runs)) for runs in jobs.values()]
        _print("part of a job", list(jobs), rows)


def _write(table: Path) -> None:
    for _ in range(3):
        deltalake.write_deltalake(str(table), pa.table({"id": range(1000)}), mode="append")
    opened = deltalake.DeltaTable(str(table))
    opened.optimize.compact()
    opened.create_checkpoint()
    deltalake.DeltaTable(str(table)).alter.set_table_properties({"delta.appendOnly": "false"})


def _task(airflow: LiveAirflow, kind: str, marks: Path) -> dict[str, float]:
    """When each part of one task began and ended."""
    run_id = airflow.trigger(kind)
    state = airflow.wait_for_run(kind, run_id)
    if state != "success":
        raise SystemExit(airflow.story(kind, run_id))
    task = airflow.task(kind, run_id, "task")
    told = dict(json.loads(line) for line in (marks / run_id).read_text().splitlines())
    if "job" not in told:
        told["operator alone"] = told["operator"]
    airflows = {"queued": "queued_when", "start": "start_date", "end": "end_date"}
    return {**told, **{name: datetime.fromisoformat(task[key]).timestamp() for name, key in airflows.items()}}


def _between(times: Sequence[Mapping[str, float]], begin: str, end: str) -> float | None:
    if begin not in times[0] or end not in times[0]:
        return None
    return statistics.median(one[end] - one[begin] for one in times)


def _on_s3(table: Path, home: Path, rounds: int) -> list[list[float]]:
    """The same with the table in an object store."""
    with running_minio(MINIO.find(lambda line: print(line, flush=True)), home) as server:
        bucket = server.make_bucket()
        for path in filter(Path.is_file, table.rglob("*")):
            server.put(f"{bucket}/table/{path.relative_to(table).as_posix()}", path.read_bytes())
        with vacuum_latency.at_a_distance(server.endpoint, _LATENCY_MS) as far:
            options = dataclasses.replace(server, endpoint=far.endpoint).storage_options
            return [_job(f"s3://{bucket}/table", options) for _ in range(rounds + 1)][1:]


def _job(uri: str, options: Mapping[str, Any]) -> list[float]:
    started = time.time()
    command = [sys.executable, "-P", "-c", _JOB, uri, json.dumps(options)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    moments = [started, *json.loads(done.stdout), time.time()]
    return [after - before for before, after in pairwise(moments)]


def _print(what: str, columns: Sequence[str], rows: Mapping[str, Sequence[float | None]]) -> None:
    print(f"{what:<50}" + "".join(f"{column:>12}" for column in columns))
    for name, values in rows.items():
        cells = ("" if value is None else f"{value:.2f}" for value in values)
        print(f"{name:<50}" + "".join(f"{cell:>12}" for cell in cells))
    print()


if __name__ == "__main__":
    main()
