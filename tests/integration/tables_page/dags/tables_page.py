"""Health and maintenance of the tables that the test of the page names."""

from __future__ import annotations

import json
import os

from airflow.sdk import DAG

from airflow_delta.operators import (
    DeltaCheckpointOperator,
    DeltaOptimizeOperator,
    DeltaTableHealthOperator,
    DeltaVacuumOperator,
)

TABLES = json.loads(os.environ["PAGE_TABLES"])

# Several tasks end at a time, though nobody has told of a table before: the scheduler has made the asset of the page.
with DAG("read_health", schedule=None, max_active_tasks=4):
    DeltaTableHealthOperator.partial(task_id="health", small_files=5, reclaimable_size=0).expand(
        table=TABLES["read"]
    )

with DAG("look_after_tables", schedule=None, max_active_tasks=4):
    DeltaOptimizeOperator.partial(task_id="optimize", engine="local").expand(table=TABLES["optimized"])
    DeltaVacuumOperator.partial(task_id="vacuum", engine="local").expand(table=TABLES["vacuumed"])
    DeltaCheckpointOperator.partial(task_id="checkpoint").expand(table=TABLES["checkpointed"])
