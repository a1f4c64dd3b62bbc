"""Delta tables in Apache Airflow: hooks, operators, sensors, triggers and assets.

Importing this package, or :mod:`airflow_delta.operators`, loads neither pyarrow nor pyspark: a DAG file is parsed
every few seconds, and the work is done by a job in a process of its own.
"""

from __future__ import annotations
