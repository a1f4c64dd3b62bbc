"""A DAG for each tailed table, run by its commits. What it was run for, Airflow itself remembers."""

from __future__ import annotations

import json
import os

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetWatcher

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
