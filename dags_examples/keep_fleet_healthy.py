"""Keep all tables of a lake healthy by a policy."""

from __future__ import annotations

# [START keep_fleet_healthy]
from airflow.sdk import DAG

from airflow_delta.fleet import delta_fleet

POLICY = {
    "version": 1,
    "tables": {"include": ["s3://lake/**"], "exclude": ["**/tmp_*"]},
    "window": "22:00-06:00 Europe/Berlin",
    "jitter": "0m",  # the pool bounds how many tables begin at once
}

with DAG("keep_fleet_healthy", schedule="0 22 * * *", catchup=False, max_active_runs=1):
    delta_fleet(policy=POLICY, state="s3://lake-admin/fleet", delta_conn_id="lake", pool="delta_maintenance")
# [END keep_fleet_healthy]
