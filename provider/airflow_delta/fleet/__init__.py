"""A fleet of tables kept healthy by a policy: a ready group of tasks for a DAG, and an operator for a single table.

Importing this package loads neither pyarrow nor the policy's reader: what a task needs it imports when it runs.
"""

from __future__ import annotations

from airflow_delta.fleet.maintenance import DeltaMaintenanceOperator
from airflow_delta.fleet.task_group import delta_fleet

__all__ = ["DeltaMaintenanceOperator", "delta_fleet"]
