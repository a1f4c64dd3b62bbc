"""A fleet that runs, and others whose nights the test writes."""

from __future__ import annotations

import os

from airflow.sdk import DAG

from airflow_delta.fleet import delta_fleet

LAKE = os.environ["FLEET_LAKE"]
POLICY = {
    "tables": {"include": [f"{LAKE}/**"]},
    "healthy": {"small_files": 2},
    "disruption": {"quiet": "0m"},
    "other_maintainer": "maintain",
    "jitter": "0m",
    "trust": {"new_table": "auto"},
}

for name in ("fleet", *os.environ["OTHER_FLEETS"].split()):
    with DAG(f"keep_{name}", schedule=None, max_active_runs=1):
        delta_fleet(policy=POLICY, state=f"{LAKE}-state/{name}", asset=name)
