"""Operators that are mapped over tables, as Airflow makes one of them for each."""

from __future__ import annotations

from typing import Any

import pytest
from airflow.sdk import DAG, AssetAlias

from airflow_delta.assets import DATA_ALIAS, MAINTENANCE_ALIAS
from airflow_delta.operators import DeltaOptimizeOperator, DeltaReorgPurgeOperator, DeltaVacuumOperator

TABLES: list[dict[str, Any]] = [
    {"table": "s3://lake/events", "max_bytes": "500GiB", "quiet_minutes": 30},
    {"table": "s3://lake/orders", "max_files": 1000, "where": "day >= '2026-01-01'"},
]


def unmapped(mapped: Any, arguments: list[dict[str, Any]]) -> list[Any]:
    return [mapped.unmap(one) for one in arguments]


@pytest.mark.parametrize("kind", [DeltaOptimizeOperator, DeltaReorgPurgeOperator])
def test_each_table_has_its_own_budgets_and_those_of_all(kind: Any) -> None:
    with DAG("nightly", schedule=None):
        mapped = kind.partial(task_id="rewrite", max_duration=3600, asset_alias="nightly").expand_kwargs(
            TABLES
        )
    first, second = unmapped(mapped, TABLES)
    shared = {"max_duration_seconds": 3600}
    assert first.options() == {**shared, "max_bytes": 500 << 30, "quiet_minutes": 30}
    assert second.options() == {**shared, "max_files": 1000, "where": "day >= '2026-01-01'"}
    assert [operator.table for operator in (first, second)] == [one["table"] for one in TABLES]
    assert first.outlets == second.outlets == [MAINTENANCE_ALIAS, AssetAlias("nightly")]


def test_the_dag_declares_the_aliases_of_mapped_tasks() -> None:
    """Otherwise Airflow makes the row of an alias with its first event, and fails other tasks that end at that moment."""
    given = AssetAlias("given")
    with DAG("nightly", schedule=None, default_args={"outlets": [given]}):
        plain: Any = DeltaVacuumOperator.partial(task_id="plain").expand(table=["s3://lake/events"])
        shared: Any = DeltaOptimizeOperator.partial(
            task_id="shared", asset_alias="nightly", emit_data_asset="true"
        ).expand(table=["s3://lake/events"])
        templated: Any = DeltaOptimizeOperator.partial(
            task_id="templated", asset_alias="{{ ds }}", outlets=AssetAlias("own")
        ).expand(table=["s3://lake/events"])
    assert plain.outlets == [given, MAINTENANCE_ALIAS]
    assert shared.outlets == [given, MAINTENANCE_ALIAS, AssetAlias("nightly"), DATA_ALIAS]
    assert templated.outlets == [AssetAlias("own"), MAINTENANCE_ALIAS]


def test_a_mapped_argument_that_makes_no_sense_is_refused_for_its_table_alone() -> None:
    arguments: list[dict[str, Any]] = [
        {"table": "s3://lake/events"},
        {"table": "s3://lake/orders", "retain_hours": -1},
    ]
    with DAG("nightly", schedule=None):
        mapped: Any = DeltaVacuumOperator.partial(task_id="vacuum").expand_kwargs(arguments)
    assert mapped.unmap(arguments[0]).table == "s3://lake/events"
    with pytest.raises(ValueError, match="retain_hours"):
        mapped.unmap(arguments[1])
