"""How much memory a running task takes on its worker. ``./dev bench task_memory`` (a real Airflow, some minutes).

Each kind of task runs alone. What counts is the proportional memory (PSS: a page that processes share counts in parts) of the scheduler
and all processes below it, LocalExecutor's workers among them, above what they had before the task: Airflow's supervisor and task
process, the job beside them, and Spark.

2026-11-28, 2 cores that others used, too; Airflow 3.3.2 with LocalExecutor, Spark 4.2.0, pyarrow 26.0.1; 400 MiB rewritten by two
threads, whose row groups were copied as bytes:

====================================  ====
task                                  MB
====================================  ====
bash                                  50
sensor, which looks every second      103
local_nothing                         78
local_work                            169
health                                81
vacuum                                78
spark_client                          856
====================================  ====

Before the health task and the sensors kept pyarrow from importing pandas, a health task took 101.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

import deltalake
import numpy as np
import psutil  # type: ignore[import-untyped]
import pyarrow as pa

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT / ".dev"))

from live_airflow import LiveAirflow  # noqa: E402  (found by the path above)

_KINDS = {
    "bash": "BashOperator(task_id='task', bash_command='sleep 8')",
    "sensor": "DeltaTableHealthSensor(task_id='task', table=SMALL, small_files=1000, poke_interval=1, timeout=10, soft_fail=True)",
    "local_nothing": "DeltaOptimizeOperator(task_id='task', table=SMALL, engine='local')",
    "local_work": "DeltaOptimizeOperator(task_id='task', table=LARGE, engine='local', full=True, parallelism=2)",
    "health": "DeltaTableHealthOperator(task_id='task', table=SMALL)",
    "vacuum": "DeltaVacuumOperator(task_id='task', table=LARGE, engine='local')",
    "spark_client": "DeltaOptimizeOperator(task_id='task', table=LARGE, engine='spark', full=True, target_size='64MiB')",
}
_DAG = """
from airflow.providers.standard.operators.bash import BashOperator
from airflow.sdk import DAG
from airflow_delta.operators import DeltaOptimizeOperator, DeltaTableHealthOperator, DeltaVacuumOperator
from airflow_delta.sensors import DeltaTableHealthSensor

SMALL, LARGE = {small!r}, {large!r}
"""


def main(arguments: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description="Memory of a task")
    parser.add_argument("--megabytes", type=int, default=400, help="size of the table that is rewritten")
    parser.add_argument("--rounds", type=int, default=5, help="runs of each task")
    given = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as directory:
        home = Path(directory)
        small, large = home / "small", home / "large"
        _write(small, files=1, megabytes=1)
        _write(large, files=8, megabytes=given.megabytes)
        (home / "dags").mkdir()
        text = _DAG.format(small=str(small), large=str(large))
        for kind, call in _KINDS.items():
            text += f"with DAG({kind!r}, schedule=None):\n    {call}\n"
        (home / "dags" / "kinds.py").write_text(text)
        settings = {"AIRFLOW_CONN_SPARK_DEFAULT": '{"conn_type": "spark", "host": "local[2]"}'}
        airflow = LiveAirflow(home / "airflow", home / "dags", settings)
        try:
            airflow.start()
            for kind in _KINDS:
                airflow.wait_for_dag(kind)
            _measure(airflow, "bash")  # starts the executor's worker
            print(f"{'task':<16} {'MB':>6}  state")
            for kind in _KINDS:
                found = [_measure(airflow, kind) for _ in range(given.rounds)]
                megabytes = statistics.median(megabytes for megabytes, _ in found)
                states = ", ".join(sorted({state for _, state in found}))
                print(f"{kind:<16} {megabytes:>6.0f}  {states}", flush=True)
        finally:
            airflow.stop()


def _write(table: Path, files: int, megabytes: int) -> None:
    random = np.random.default_rng(7)
    # Eight bytes of noise in each value.
    rows = megabytes * (1 << 20) // files // 8 // 4
    for _ in range(files):
        columns = {f"x{n}": random.random(rows) for n in range(4)}
        deltalake.write_deltalake(str(table), pa.table(columns), mode="append")


def _measure(airflow: LiveAirflow, kind: str) -> tuple[float, str]:
    """The megabytes of a task at its peak, and how its run ended."""
    scheduler = airflow._processes["scheduler"].pid
    time.sleep(3)
    idle = statistics.median(_megabytes(scheduler) for _ in range(3))
    ended, peak = threading.Event(), idle

    def watch() -> None:
        nonlocal peak
        while not ended.wait(0.02):
            peak = max(peak, _megabytes(scheduler))

    thread = threading.Thread(target=watch)
    thread.start()
    try:
        state = airflow.wait_for_run(kind, airflow.trigger(kind))
    finally:
        ended.set()
        thread.join()
    return peak - idle, state


def _megabytes(pid: int) -> float:
    """The proportional memory of a process and all below it."""
    total = 0
    process = psutil.Process(pid)
    for each in (process, *process.children(recursive=True)):
        try:
            lines = Path(f"/proc/{each.pid}/smaps_rollup").read_text().splitlines()
        except OSError:  # it has ended
            continue
        total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


if __name__ == "__main__":
    main()
