"""Give the files of a load the statistics that its writer left out, so that queries can skip them."""

from __future__ import annotations

# [START analyze_after_load]
from airflow.sdk import DAG, Asset

from airflow_delta.operators import DeltaAnalyzeOperator

with DAG("analyze_after_load", schedule=[Asset("s3://lake/events")]):
    DeltaAnalyzeOperator(task_id="analyze", table="s3://lake/events", max_files=100_000)
# [END analyze_after_load]
