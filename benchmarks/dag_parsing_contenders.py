"""The contenders of ``dag_parsing.py``. A DAG processor has Airflow's SDK and its serialisation loaded before it parses a file."""

from __future__ import annotations

import time
from typing import Any

import airflow.sdk
from airflow.sdk import DAG, AssetAlias
from airflow.serialization.serialized_objects import DagSerialization

# Loaded lazily otherwise, at the expense of the first contender.
assert airflow.sdk.BaseOperator is not None
assert airflow.sdk.BaseSensorOperator is not None

_ALIAS = AssetAlias("delta-maintenance")


def import_operators() -> list[str]:
    import airflow_delta.operators

    return airflow_delta.operators.__all__


def import_sensors() -> list[str]:
    import airflow_delta.assets
    import airflow_delta.sensors
    import airflow_delta.triggers

    return airflow_delta.sensors.__all__


def import_spark_submit() -> list[str]:
    from airflow.providers.apache.spark.operators import spark_submit

    return [spark_submit.SparkSubmitOperator.__name__]


def import_bash() -> list[str]:
    from airflow.providers.standard.operators import bash

    return [bash.BashOperator.__name__]


def made_optimize(tasks: int) -> dict[str, Any]:
    return _measured(_optimize, tasks, serialize=False)


def made_bash(tasks: int) -> dict[str, Any]:
    return _measured(_bash, tasks, serialize=False)


def made_bash_with_outlet(tasks: int) -> dict[str, Any]:
    return _measured(_bash_with_outlet, tasks, serialize=False)


def serialized_bash_with_outlet(tasks: int) -> dict[str, Any]:
    return _measured(_bash_with_outlet, tasks, serialize=True)


def serialized_optimize(tasks: int) -> dict[str, Any]:
    return _measured(_optimize, tasks, serialize=True)


def serialized_bash(tasks: int) -> dict[str, Any]:
    return _measured(_bash, tasks, serialize=True)


def _optimize(number: int) -> None:
    from airflow_delta.operators import DeltaOptimizeOperator

    DeltaOptimizeOperator(
        task_id=f"task_{number}", table=f"s3://lake/table_{number}", where="day = '{{ ds }}'", engine="local"
    )


def _bash(number: int) -> None:
    from airflow.providers.standard.operators.bash import BashOperator

    BashOperator(
        task_id=f"task_{number}", bash_command=f"echo {number}", env={"day": "{{ ds }}"}, append_env=True
    )


def _bash_with_outlet(number: int) -> None:
    from airflow.providers.standard.operators.bash import BashOperator

    BashOperator(
        task_id=f"task_{number}",
        bash_command=f"echo {number}",
        env={"day": "{{ ds }}"},
        cwd="/tmp",  # noqa: S108 - nothing is run
        outlets=[_ALIAS],
    )


def _measured(make: Any, tasks: int, *, serialize: bool) -> dict[str, Any]:
    with DAG("warm", schedule=None):
        make(0)
    start = _clocks()
    with DAG("many", schedule=None) as dag:
        for number in range(tasks):
            make(number)
    if serialize:
        start = _clocks()
        DagSerialization.to_dict(dag)
    wall, cpu = (end - begin for end, begin in zip(_clocks(), start, strict=True))
    return {"measured_seconds": wall, "measured": {"cpu": cpu}, "tasks": len(dag.task_dict)}


def _clocks() -> tuple[float, float]:
    """Wall and processor seconds."""
    return time.perf_counter(), time.process_time()
