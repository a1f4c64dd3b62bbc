"""`./dev demo`: Airflow compacts a Delta table of several hundred small files through Spark, and delta-rs checks it.

Exit code 0: it did, and the rows are the same; 1: it did not, and what is known of it stands above.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from demo_table import TableState, read_commit, read_state, write_small_files
from live_airflow import LiveAirflow, LiveAirflowError

REPOSITORY = Path(__file__).resolve().parent.parent
DAG, TASK = "nightly_optimize", "optimize"
#: Reads the health of tables, and optimizes those that need it.
HEALTH_DAG = "maintain_what_is_needed"
SPARK = '{"conn_type": "spark", "host": "local[*]"}'
_PROGRESS = re.compile(r"(chosen at|partitions,|left:|rewriting:|committing) .*")

_T = TypeVar("_T")
_COLOUR = sys.stdout.isatty() and "NO_COLOR" not in os.environ


class DemoFailedError(Exception):
    """The demo did not show what it should; the message says what was seen instead."""


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="./dev demo", description=__doc__.split("\n")[0] if __doc__ else None
    )
    parser.add_argument("--keep", action="store_true", help="leave Airflow's UI up until Ctrl-C")
    keep = parser.parse_args().keep
    signal.signal(signal.SIGTERM, _interrupt)
    home = Path(tempfile.mkdtemp(prefix="airflow-delta-demo-"))
    settings = {
        "AIRFLOW_CONN_SPARK_DEFAULT": SPARK,
        # Soon after midnight Airflow would also start the night's run, of a table that is not here.
        "AIRFLOW__SCHEDULER__USE_JOB_SCHEDULE": "False",
    }
    airflow = LiveAirflow(home / "airflow", REPOSITORY / "dags_examples", settings)
    airflow.home.mkdir()
    started = time.monotonic()
    try:
        run(airflow, home / "events")
        print(f"\n{_bold('Done')} in {time.monotonic() - started:.0f} s.")
        if keep:
            _fill_page(airflow, [home / "events", home / "orders"])
            _keep_up(airflow, home)
        return 0
    except (DemoFailedError, LiveAirflowError) as error:
        print(f"\n{_bold('The demo failed.')} {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nInterrupted.", file=sys.stderr)
        return 1
    finally:
        # A second Ctrl-C must not leave half of it running.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        airflow.stop()
        shutil.rmtree(home, ignore_errors=True)


def run(airflow: LiveAirflow, table: Path) -> None:
    _step("Writing a partitioned table with delta-rs, in many small files", lambda: write_small_files(table))
    before = read_state(table)
    print(f"    {before.num_files} files, {before.num_rows:,} rows in {table}")
    _step("Starting Airflow (scheduler, DAG processor, triggerer, API server)", airflow.start)
    _step(f"Waiting for the DAG {DAG}", lambda: airflow.wait_for_dag(DAG))
    run_id = airflow.trigger(DAG, conf={"table": str(table)})
    print(f"{_arrow()} Triggered over the REST API: run {run_id}")
    state, seconds = _follow(airflow, run_id)
    if state != "success":
        raise DemoFailedError(
            f"The run ended as {state}. The end of its task's log:\n{_log_tail(airflow, run_id)}"
        )
    report = airflow.xcom(DAG, run_id, TASK)
    print(f"    the task took {seconds:.0f} s")
    after = _step("Reading all rows again with delta-rs", lambda: read_state(table))
    _show(before, after, report, read_commit(table))
    _check(before, after, read_state(table, before.version), report)
    print(
        f"\n{_arrow()} The rows are the same: {after.num_rows:,} rows, sha256 {after.digest[:16]}… before and after."
    )


def _check(before: TableState, after: TableState, before_again: TableState, report: dict[str, Any]) -> None:
    if after.digest != before.digest or after.num_rows != before.num_rows:
        raise DemoFailedError("delta-rs reads other rows than before.")
    if before_again != before:
        raise DemoFailedError(f"Version {before.version} is no longer what it was.")
    if after.version != before.version + 1 or report.get("version") != after.version:
        raise DemoFailedError(
            f"One new version was expected; there are {before.version} and {after.version}."
        )
    if after.num_files * 10 > before.num_files:
        raise DemoFailedError(f"{before.num_files} files became {after.num_files}; far fewer were expected.")


def _follow(airflow: LiveAirflow, run_id: str) -> tuple[str, float]:
    """Shows what the task's log says of its progress, as it says it."""
    shown = 0
    deadline = time.monotonic() + 900
    while True:
        state = airflow.run_state(DAG, run_id)
        progress = [line for line in airflow.task_log(DAG, run_id, TASK, 1) if _PROGRESS.fullmatch(line)]
        for line in progress[shown:]:
            print(f"    {line}", flush=True)
        shown = max(shown, len(progress))
        if state in ("success", "failed"):
            return state, airflow.task(DAG, run_id, TASK)["duration"] or 0.0
        if time.monotonic() > deadline:
            raise DemoFailedError(f"The run is still {state} after 15 minutes.\n{_log_tail(airflow, run_id)}")
        time.sleep(1)


def _show(before: TableState, after: TableState, report: dict[str, Any], commit: dict[str, Any]) -> None:
    rows = [
        ("", "before", "after"),
        ("version", f"{before.version}", f"{after.version}"),
        ("files", f"{before.num_files:,}", f"{after.num_files:,}"),
        ("bytes", f"{before.size_bytes:,}", f"{after.size_bytes:,}"),
        ("bytes per file", f"{before.mean_file_bytes:,}", f"{after.mean_file_bytes:,}"),
        ("rows", f"{before.num_rows:,}", f"{after.num_rows:,}"),
    ]
    print()
    for number, (name, left, right) in enumerate(rows):
        line = f"    {name:<16}{left:>14}{right:>14}"
        print(_bold(line) if number == 0 else line)
    print(
        f"\n    {_bold('commit ' + str(after.version))}: {commit.get('operation')} by {commit.get('engineInfo', 'unknown')}"
    )
    for name, value in report.get("metrics", {}).items():
        if isinstance(value, int | float):
            print(f"    {name:<32}{value:>12,}")


def _log_tail(airflow: LiveAirflow, run_id: str) -> str:
    lines = airflow.task_log(DAG, run_id, TASK, 1)[-30:]
    return "\n".join(f"    {line}" for line in lines) or f"    (no log)\n{airflow.log_tail('scheduler')}"


def _step(what: str, do: Callable[[], _T]) -> _T:
    print(f"{_arrow()} {what} …", flush=True)
    started = time.monotonic()
    result = do()
    print(f"    {time.monotonic() - started:.1f} s", flush=True)
    return result


def _fill_page(airflow: LiveAirflow, tables: list[Path]) -> None:
    """Let tasks tell of a table that was maintained and of one that was not, so that the page has both."""
    write_small_files(tables[-1])
    conf = {"tables": [str(table) for table in tables]}

    def look() -> None:
        run_id = airflow.trigger(HEALTH_DAG, conf=conf)
        state = airflow.wait_for_run(HEALTH_DAG, run_id)
        if state != "success":
            raise DemoFailedError(
                f"The run of {HEALTH_DAG} ended as {state}.\n{airflow.story(HEALTH_DAG, run_id)}"
            )

    _step("Reading the health of two tables, for the page Delta tables", look)


def _keep_up(airflow: LiveAirflow, home: Path) -> None:
    print(f"\nAirflow stays up: {_bold(airflow.url)}  user {airflow.user}, password {airflow.password}")
    print(f"Its page Delta tables: {_bold(f'{airflow.url}/plugin/delta-tables')}")
    print(f"The tables are in {home}. Ctrl-C ends all of it.", flush=True)
    try:
        signal.pause()
    except KeyboardInterrupt:
        print()


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _arrow() -> str:
    return _bold("=>")


def _bold(text: str) -> str:
    return f"\033[1m{text}\033[0m" if _COLOUR else text


if __name__ == "__main__":
    sys.exit(main())
