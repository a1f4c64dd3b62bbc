"""A job's Spark application: its name, its Java options, and whether this process is its driver."""

from __future__ import annotations

import os

from delta_log.printable import printable
from delta_maintenance.contract import JobSpec

#: Columns of UIs, and labels that resource managers make of the name, are short.
MAX_CHARACTERS = 160
_MAX_TASK_CHARACTERS = 80
#: Java options of a Spark that runs in the process of its driver, for one short job: no optimising compiler, and a serial
#: collector. With one compiler alone a JVM reserves 48 MiB for compiled code; when they are full, as after some minutes of many
#: different queries, it compiles nothing more.
EMBEDDED_JAVA_OPTIONS = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"


def application_name(spec: JobSpec) -> str:
    """Name operation, table and, for a job of Airflow, the task: ``OPTIMIZE s3://lake/events (nightly.optimize)``.

    A long table's address loses its beginning, and a long task's name too, since their ends tell more. Credentials are hidden.
    """
    dag_id, task_id = spec.tags.get("airflow.dag_id"), spec.tags.get("airflow.task_id")
    task = f" ({_end(printable(f'{dag_id}.{task_id}'), _MAX_TASK_CHARACTERS)})" if dag_id and task_id else ""
    operation = printable(spec.operation)[:20].upper()
    room = MAX_CHARACTERS - len(operation) - len(task) - 1
    return f"{operation} {_end(printable(spec.table), room)}{task}"


def _end(text: str, room: int) -> str:
    return text if len(text) <= room else f"…{text[1 - room :]}"


def is_spark_driver() -> bool:
    """Tell whether spark-submit started this process. It then sets the master and the configuration."""
    return "PYSPARK_GATEWAY_PORT" in os.environ
