"""Take a table feature out of a table's protocol, so that older readers can read the table. Triggered by hand."""

from __future__ import annotations

# [START drop_feature]
from airflow.sdk import DAG, Param

from airflow_delta.operators import DeltaDropFeatureOperator

with DAG(
    "drop_feature",
    schedule=None,
    params={
        "table": Param("s3://lake/events", type="string", description="Address of a Delta table"),
        "feature": Param("deletionVectors", type="string", description="Table feature to drop"),
    },
):
    DeltaDropFeatureOperator(
        task_id="drop_feature",
        table="{{ params.table }}",
        feature="{{ params.feature }}",
        retries=3,
    )
# [END drop_feature]
