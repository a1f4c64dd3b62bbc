"""Rewrite the partitions of a table in which many rows are marked as deleted, as soon as a limit is passed."""

from __future__ import annotations

# [START purge_deleted_rows]
from airflow.sdk import DAG, Asset, AssetWatcher

from airflow_delta.operators import DeltaReorgPurgeOperator
from airflow_delta.triggers import DeltaDeletionVectorRatioTrigger

TABLE = "s3://lake/events"
RATIO = 0.1

deleted_rows = Asset(
    name="lake events with many deleted rows",
    uri=f"x-deleted-rows:{TABLE}",
    watchers=[
        AssetWatcher(
            name="ratio", trigger=DeltaDeletionVectorRatioTrigger(TABLE, poll_interval=60, ratio=RATIO)
        ),
    ],
)

with DAG("purge_deleted_rows", schedule=[deleted_rows], catchup=False, max_active_runs=1):
    DeltaReorgPurgeOperator(
        task_id="purge",
        table=TABLE,
        where="{{ (triggering_asset_events.values() | first | last).extra.payload.found[-1].where or 'true' }}",
        max_deleted_rows_ratio=RATIO,
    )
# [END purge_deleted_rows]
