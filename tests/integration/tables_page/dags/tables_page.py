"""Health and maintenance of the tables that the test of the page names."""

from __future__ import annotations

import json
import os

from airflow.providers.standard.operators.empty import EmptyOperator
from airflow.sdk import DAG, Asset, AssetWatcher, Param

from airflow_delta.operators import (
    DeltaCheckpointOperator,
    DeltaOptimizeOperator,
    DeltaTableHealthOperator,
    DeltaVacuumOperator,
)
from airflow_delta.sensors import DeltaTableVersionSensor
from airflow_delta.triggers import DeltaTableVersionTrigger

TABLES = json.loads(os.environ["PAGE_TABLES"])

# Several tasks end at a time, though no task has told of a table before: the scheduler has made the asset of the page.
with DAG("read_health", schedule=None, max_active_tasks=4):
    DeltaTableHealthOperator.partial(task_id="health", small_files=5, reclaimable_size=0).expand(
        table=TABLES["read"]
    )

with DAG("read_again", schedule=None, max_active_tasks=4):
    DeltaTableHealthOperator.partial(task_id="health", small_files=5, reclaimable_size=0).expand(
        table=TABLES["read_again"]
    )

with DAG("wait_for_table", schedule=None):
    DeltaTableVersionSensor.partial(task_id="wait", version=0).expand(table=TABLES["awaited"])

watched = Asset(
    name="news of sessions",
    uri="x-versions://tests/sessions",
    watchers=[
        AssetWatcher(name="versions", trigger=DeltaTableVersionTrigger(TABLES["watched"], poll_interval=2))
    ],
)

with DAG("follow_sessions", schedule=[watched]):
    EmptyOperator(task_id="consume")

# The asset of a table's data, and an asset of no table.
with DAG(
    "follow_orders",
    schedule=[Asset(name="orders", uri=f"file://{TABLES['vacuumed'][1]}"), Asset("x-reports://monthly")],
):
    EmptyOperator(task_id="consume")

# The setting maintenance_dag names it.
with DAG("maintain_table", schedule=None, params={"table": Param("", type="string")}):
    DeltaOptimizeOperator(task_id="optimize", table="{{ params.table }}", engine="local")

with DAG("look_after_tables", schedule=None, max_active_tasks=4):
    DeltaOptimizeOperator.partial(task_id="optimize", engine="local").expand(table=TABLES["optimized"])
    DeltaVacuumOperator.partial(task_id="vacuum", engine="local").expand(table=TABLES["vacuumed"])
    DeltaCheckpointOperator.partial(task_id="checkpoint").expand(table=TABLES["checkpointed"])
    DeltaOptimizeOperator.partial(task_id="plan", dry_run=True).expand(table=TABLES["planned"])
