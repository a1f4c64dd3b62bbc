"""A night's work at the tables that the test of many tables names."""

from __future__ import annotations

import json
import os

from airflow.sdk import DAG

from airflow_delta.operators import DeltaOptimizeOperator, DeltaTableHealthOperator

TABLES = json.loads(os.environ["PAGE_TABLES"])

with DAG("night", schedule=None, max_active_tasks=4):
    DeltaOptimizeOperator.partial(task_id="optimize", engine="local").expand(table=TABLES["optimized"])
    DeltaTableHealthOperator.partial(task_id="health").expand(table=TABLES["broken"])
