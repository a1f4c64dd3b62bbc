"""What a release leaves behind in places that outlive it, recorded as files: every later release must read them.

``./dev run python -m tests.support.recorded_files RELEASE`` writes ``tests/recorded/RELEASE`` once, before the release. The files are
never written again; ``tests/scenarios/test_recorded_files.py`` reads those of all releases.

======================  =============================================================================================
``specs.jsonl``         the request of each operation, as a job gets it
``reports.jsonl``       the report of each operation, as the XCom of a run of last week holds it
``task_state.json``     what tasks keep in Airflow's state store, by key
``triggers.json``       the triggers of deferred tasks, as Airflow's database holds them
``health.json``         the document of a table's health, as the XCom of a run of last week holds it
``watchers.json``       what watchers keep in the state store of their asset, by trigger and key
``table``               a table in which a killed run has finished one of two bins, and a job in cluster mode is over
======================  =============================================================================================

The address of a table is :data:`PLACE` in all of them.
"""

from __future__ import annotations

import asyncio
import io
import json
import sys
import tempfile
from collections.abc import Iterable, Mapping
from contextlib import redirect_stdout, suppress
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

from airflow_delta.run_identity import mark_succeeded, recall_or_begin
from airflow_delta.runners.drivers.cluster import ClusterJobRunner
from airflow_delta.runners.drivers.driver import DriverLauncher
from airflow_delta.runners.drivers.kubernetes import KubernetesDriver
from airflow_delta.runners.drivers.standalone_master import StandaloneMaster
from airflow_delta.runners.drivers.yarn import YarnResourceManager
from airflow_delta.runners.spark_connect import SparkConnectRunner
from airflow_delta.sensors.baseline import Baselines
from airflow_delta.submitted_job import SubmittedJob, remember_job
from airflow_delta.testing import FakeAssetStateStore, FakeStateStore
from airflow_delta.triggers import DeltaDeletionVectorRatioTrigger, DeltaTableVersionTrigger
from airflow_delta.triggers.job import DeltaJobTrigger
from airflow_delta.triggers.table_event_trigger import TableEventTrigger
from airflow_delta.triggers.table_health import DeltaTableHealthTrigger
from airflow_delta.watch_memory import shard_key, shard_of
from delta_log import Table
from delta_maintenance.cli.main import main
from delta_maintenance.contract import JobReport, JobSpec, TransactionId
from delta_maintenance.engine.connect.detached_rewrite import DetachedRewrite
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.operations import OPERATIONS
from delta_maintenance.progress import SilentProgress
from delta_maintenance.status_file import StatusFile
from tests.support import ROOT
from tests.support.runs.maintenance_runs import RUN_KEY, WatchedEngine, run
from tests.support.runs.triggerer import Triggerer
from tests.support.tables.written_log import add, deletion_vector, write_log

RECORDED = ROOT / "tests" / "recorded"
PLACE = "s3://lake/events"
#: The run that was killed in the recorded table, and the one whose job was over before its task could see it.
KILLED_RUN, FINISHED_RUN = "killed-run", "finished-run"
SUBMISSION = "5b" * 16
CLUSTER_RUNNER = "airflow_delta.runners.drivers.cluster.runner_of"
#: The user of the Spark Connect session in which a rewrite was begun.
USER = "airflow"
TASK = {"dag_id": "nightly", "task_id": "optimize", "run_id": "manual__1", "map_index": -1, "max_tries": 2}


class Killed(Exception):
    pass


def releases() -> list[Path]:
    return sorted(path for path in RECORDED.iterdir() if path.is_dir())


def task_context(store: FakeStateStore) -> dict[str, Any]:
    """The context of a try of the recorded task."""
    return {"ti": SimpleNamespace(**TASK), "task_state_store": store}


def handle(run_id: str, driver: dict[str, str]) -> dict[str, Any]:
    """That of a job in cluster mode, as its runner makes it of the launcher's."""
    return {"driver": driver, "table": PLACE, "run_id": run_id, "submission_id": SUBMISSION}


#: The launchers of drivers, and the handle that each gives of one.
LAUNCHED: list[tuple[DriverLauncher, dict[str, str]]] = [
    (StandaloneMaster("spark://master:7077"), {"driver_id": "driver-20260101000000-0000"}),
    (
        YarnResourceManager("yarn"),
        {"submission_id": SUBMISSION, "application_id": "application_1700000000000_0001"},
    ),
    (KubernetesDriver("k8s", "spark"), {"namespace": "spark", "pod": f"delta-maintenance-{SUBMISSION}"}),
]


def record(directory: Path) -> None:
    directory.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as home:
        _lines(directory / "specs.jsonl", (json.loads(spec.to_json()) for spec in _specs()))
        _lines(directory / "reports.jsonl", _reports(Path(home)))
        _json(directory / "health.json", _health(Path(home)))
        _json(directory / "task_state.json", _task_state())
        _json(directory / "triggers.json", [trigger.serialize() for trigger in _triggers()])
        _json(directory / "watchers.json", asyncio.run(_watchers(Path(home))))
        _table(directory / "table")


def _specs() -> Iterable[JobSpec]:
    for operation in OPERATIONS:
        yield JobSpec(operation, PLACE, "airflow-1-0")
    yield JobSpec(
        "optimize",
        PLACE,
        "airflow-1-0",
        options={"where": "day >= '2026-01-01'", "target_size_bytes": 1 << 28, "full": True},
        engine="spark",
        transaction=TransactionId(
            "airflow:nightly:optimize:optimize:s3://lake/events", 1_700_000_000_000_000
        ),
        memory_limit_bytes=1 << 30,
        parallelism=2,
        dry_run=True,
        allowed_roots={"connection 'lake'": ["s3://lake"]},
        tags={"airflow.dag_id": "nightly"},
    )


def _reports(home: Path) -> Iterable[dict[str, Any]]:
    for operation in OPERATIONS:
        for dry_run in (True, False):
            table = home / f"{operation}-{dry_run}"
            _small_files(table)
            yield _report(JobSpec(operation, str(table), "run", engine="local", dry_run=dry_run))
    yield _report(JobSpec("optimize", str(home / "absent"), "run", engine="local"))


def _report(spec: JobSpec) -> dict[str, Any]:
    report: JobReport = run_job(spec, JobSite(), SilentProgress())
    raw: dict[str, Any] = json.loads(report.to_json().replace(spec.table, PLACE))
    return raw


def _health(home: Path) -> dict[str, Any]:
    table = home / "health"
    _small_files(table)
    output = io.StringIO()
    with redirect_stdout(output):
        assert main(["health", str(table), "--json"]) == 0
    raw: dict[str, Any] = json.loads(output.getvalue().replace(str(table), PLACE))
    return raw


def _task_state() -> dict[str, Any]:
    store = FakeStateStore()
    context = task_context(store)
    identity = recall_or_begin(context, "optimize", PLACE, 1_700_000_000_000_000)
    mark_succeeded(context, identity)
    job = handle(identity.run_id, LAUNCHED[0][1])
    remember_job(context, SubmittedJob(identity.run_id, SUBMISSION, CLUSTER_RUNNER, 1, job))
    Baselines(context, PLACE).begin(7)  # type: ignore[arg-type]
    return {key: json.loads(text) for key, text in store._values.items()}


def _triggers() -> list[Any]:
    return [
        DeltaTableVersionTrigger(
            PLACE, "lake", 30.0, start_from="earliest", operations=["WRITE"], min_rows=7
        ),
        DeltaTableVersionTrigger(
            PLACE, baseline=7, data_change_only=False, awaited={"version": 9}, on_cleaned="continue"
        ),
        DeltaDeletionVectorRatioTrigger(PLACE, "lake", 60.0, ratio=0.1),
        DeltaTableHealthTrigger(PLACE, "lake", 60.0, small_files=100),
        *(
            DeltaJobTrigger(
                *ClusterJobRunner(launcher, delta_conn_id="lake").serialize(), handle(FINISHED_RUN, driver)
            )
            for launcher, driver in LAUNCHED
        ),
        DeltaJobTrigger(*SparkConnectRunner("spark_connect", "lake").serialize(), _rewrite().to_dict()),
    ]


def _rewrite() -> DetachedRewrite:
    begun = DetachedRewrite.named(SUBMISSION, USER).begun(
        bins=2, bytes_in=1 << 20, read_version=1, started_ms=1_700_000_000_000, facts={"foreign": None}
    )
    return replace(begun, spark={"application_id": "app-1", "ui_url": None, "version": "4.2.0"})


async def _watchers(home: Path) -> dict[str, dict[str, Any]]:
    versions, deleted = home / "versions", home / "deleted"
    write_versions(versions, 1)
    write_log(deleted, [_with_deleted_rows()], partition_by={"day": "string"})
    return {
        "versions": await _kept(
            DeltaTableVersionTrigger(str(versions), poll_interval=0.05, start_from="earliest"), versions
        ),
        "deleted_rows": await _kept(
            DeltaDeletionVectorRatioTrigger(str(deleted), poll_interval=0.05, ratio=0.1), deleted
        ),
        "health": await _kept(
            DeltaTableHealthTrigger(str(versions), poll_interval=0.05, commits_since_checkpoint=1), versions
        ),
    }


async def _kept(trigger: TableEventTrigger, table: Path) -> dict[str, Any]:
    """What a watcher has kept when Airflow has stored its first event."""
    store = FakeAssetStateStore()
    async with Triggerer(trigger, store) as triggerer:
        await triggerer.until(1)
        await triggerer.wait_for(lambda: any(str(table) in value for value in store.values.values()))
        # Once more, so that the outcome of the event itself is kept.
        await asyncio.sleep(1)
    return moved(store.values, str(table), PLACE)


def moved(state: Mapping[str, str], table: str, to: str) -> dict[str, Any]:
    """The state of a watcher, as if its table had another address: the address chooses the entry."""
    found: dict[str, Any] = {}
    for key, text in state.items():
        value = json.loads(text)
        prefix, _, shard = key.rpartition(".")
        if shard.isdigit() and table in value:
            assert int(shard) == shard_of(table), "the place of a table in the state store has changed"
            found[shard_key(prefix, shard_of(to))] = {to: value[table]}
        else:
            found[key] = value
    return found


def write_versions(table: Path, last: int) -> None:
    """Adds commits with data to a table, up to a version."""
    first = Table(str(table)).snapshot().version + 1 if table.exists() else 0
    for number in range(first, last + 1):
        write_deltalake(str(table), pa.table({"id": [number]}), mode="append")


def _with_deleted_rows() -> dict[str, Any]:
    stats = {"stats": '{"numRecords":10}', "deletionVector": deletion_vector(5, 5)}
    return add("a.parquet", 100, {"day": "a"}, **stats)


def _small_files(table: Path) -> None:
    for number in range(2):
        rows = pa.table({"id": [2 * number, 2 * number + 1], "part": ["x", "y"]})
        write_deltalake(str(table), rows, mode="append", partition_by=["part"])


def _table(table: Path) -> None:
    _small_files(table)

    def kill(number: int) -> None:
        raise Killed

    with suppress(Killed):
        run(table, run_id=KILLED_RUN, engine=WatchedEngine(kill))
    report = JobReport(
        "optimize", PLACE, "committed", run_id=FINISHED_RUN, version=7, metrics={"numAddedFiles": 2}
    )
    status = StatusFile(Table(str(table)).storage, FINISHED_RUN, SUBMISSION)
    status.write(RUN_KEY, progress={"done_bins": 1, "total_bins": 2}, report=report.to_dict())


def _lines(file: Path, values: Iterable[dict[str, Any]]) -> None:
    file.write_text("".join(f"{json.dumps(value, sort_keys=True)}\n" for value in values))


def _json(file: Path, value: Any) -> None:
    file.write_text(json.dumps(value, indent=2, sort_keys=True) + "\n")


if __name__ == "__main__":
    record(RECORDED / sys.argv[1])
