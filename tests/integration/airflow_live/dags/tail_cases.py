"""A DAG for each tailed table, run by its commits: what it was run for, Airflow itself remembers. And one that waits."""

from __future__ import annotations

import json
import os
from datetime import timedelta
from typing import Any

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetWatcher

from airflow_delta.sensors import DeltaTableVersionSensor
from airflow_delta.triggers import DeltaTableVersionTrigger

for tailed in json.loads(os.environ.get("TAILED_TABLES", "[]")):
    trigger = DeltaTableVersionTrigger(
        tailed["uri"], tailed.get("conn"), poll_interval=2, start_from="earliest"
    )
    asset = Asset(
        name=f"tailed {tailed['name']}",
        uri=f"x-tailed://tests/{tailed['name']}",
        watchers=[AssetWatcher(name="versions", trigger=trigger)],
    )
    with DAG(f"tail_{tailed['name']}", schedule=[asset], max_active_runs=4):
        EmptyOperator(task_id="consume")

with DAG("wait_in_a_pool", schedule=None, params={"table": "", "baseline": 0}):
    ways: dict[str, dict[str, Any]] = {
        "poked": {"deferrable": False},
        "deferred": {"deferrable": True},
        "skipped": {"deferrable": True, "timeout": 3, "soft_fail": True},
        "ended": {"deferrable": True, "execution_timeout": timedelta(seconds=3)},
    }
    for name, way in ways.items():
        DeltaTableVersionSensor(
            task_id=name,
            pool="waiting",
            table="{{ params.table }}",
            baseline="{{ params.baseline }}",
            poke_interval=1,
            **way,
        )

with DAG("wait_between_looks", schedule=None, params={"table": ""}):
    DeltaTableVersionSensor(
        task_id="rescheduled",
        table="{{ params.table }}",
        mode="reschedule",
        deferrable=False,
        poke_interval=5,
        timeout=600,
        # Under load Airflow 3.3 now and then fails a task that it has just queued again, before any of its code runs. What the
        # sensor itself finds wrong is never tried again.
        retries=2,
        retry_delay=timedelta(seconds=1),
    )
