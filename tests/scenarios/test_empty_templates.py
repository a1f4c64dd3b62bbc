"""A template that came out empty never does more than was asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from airflow.sdk.exceptions import AirflowFailException

from airflow_delta.operators import (
    DeltaAnalyzeOperator,
    DeltaCheckpointOperator,
    DeltaDoctorOperator,
    DeltaDropFeatureOperator,
    DeltaExpireOperator,
    DeltaGenerateOperator,
    DeltaOptimizeOperator,
    DeltaReorgPurgeOperator,
    DeltaRepairOperator,
    DeltaRestoreOperator,
    DeltaTableHealthOperator,
    DeltaVacuumOperator,
)
from airflow_delta.operators.arguments import CheckedArguments
from airflow_delta.sensors import (
    DeltaDeletionVectorRatioSensor,
    DeltaTableHealthSensor,
    DeltaTableVersionSensor,
)
from airflow_delta.testing import FakeJobRunner, committed

MakeContext = Callable[..., dict[str, Any]]
EMPTY = ["", " ", "\n", "None", " None "]

KINDS: dict[str, Callable[..., Any]] = {
    "optimize": DeltaOptimizeOperator,
    "purge": DeltaReorgPurgeOperator,
    "vacuum": DeltaVacuumOperator,
    "checkpoint": DeltaCheckpointOperator,
    "drop feature": lambda **more: DeltaDropFeatureOperator(feature="deletionVectors", **more),
    "expire": lambda **more: DeltaExpireOperator(column="at", **more),
    "restore": DeltaRestoreOperator,
    "generate": DeltaGenerateOperator,
    "repair": DeltaRepairOperator,
    "analyze": DeltaAnalyzeOperator,
    "reading": DeltaTableHealthOperator,
    "doctor": DeltaDoctorOperator,
    "version": DeltaTableVersionSensor,
    "ratio": DeltaDeletionVectorRatioSensor,
    "health": lambda **more: DeltaTableHealthSensor(small_files=1, **more),
}
#: By operator or sensor, the attributes that refuse an empty text.
REFUSING = {
    "optimize": "table delta_conn_id emit_data_asset spark_conn_id engine executor_credentials dry_run memory_limit where verify remap approved_plan full "
    "max_bytes max_files max_duration quiet_minutes hot_partitions zorder_by layout by own_cubes commit_when after_max_wait",
    "purge": "table delta_conn_id emit_data_asset spark_conn_id engine executor_credentials dry_run memory_limit where verify remap approved_plan "
    "max_bytes max_files max_duration quiet_minutes hot_partitions commit_when after_max_wait",
    "vacuum": "table delta_conn_id emit_data_asset spark_conn_id engine executor_credentials dry_run memory_limit retain_hours retention_check lite where "
    "require_proof approved_plan quarantine keep_versions keep_last",
    "checkpoint": "table delta_conn_id emit_data_asset engine executor_credentials dry_run full if_due compact_log cleanup_log repair_checksum",
    "drop feature": "table delta_conn_id emit_data_asset spark_conn_id engine executor_credentials dry_run memory_limit feature",
    "expire": "table delta_conn_id emit_data_asset engine executor_credentials dry_run column whole_files max_rows",
    "restore": "table delta_conn_id emit_data_asset engine executor_credentials dry_run",
    "generate": "table delta_conn_id emit_data_asset engine executor_credentials dry_run where",
    "repair": "table delta_conn_id emit_data_asset engine executor_credentials dry_run remove_missing approved_plan",
    "analyze": "table delta_conn_id emit_data_asset engine executor_credentials dry_run where every_file max_files",
    "reading": "table delta_conn_id compact_log queries",
    "doctor": "table delta_conn_id executor_credentials",
    "version": "table delta_conn_id start_from baseline version newer_than transaction data_change_only operations "
    "partitions on_cleaned",
    "ratio": "table delta_conn_id per_partition file_ratio",
    "health": "table delta_conn_id small_file_size",
}
#: Those that protect nothing: an empty text means that they are absent.
ABSENT = {
    "optimize": "emit_events asset_alias target_size max_deleted_rows_ratio batch_size on_broken_source output_uri parallelism spark_conf spark_binary deploy_mode cluster_application min_file_size max_file_size rewrite seal_size max_wait",
    "vacuum": "inventory neighbours output_uri purge_quarantine_hours parallelism spark_conf spark_binary deploy_mode cluster_application",
    "checkpoint": "policy top_format",
    "drop feature": "parallelism",
    "expire": "older_than before",
    # A run without any of them is refused.
    "restore": "to_version to_timestamp undo_run",
    "generate": "",
    "repair": "lost_vectors output_uri",
    "analyze": "",
    "reading": "small_files deleted_rows_ratio reclaimable_size expired_log_files layout_gain target_size min_file_size",
    "doctor": "spark_conn_id",
    "version": "min_rows",
    "ratio": "ratio files size",
    "health": "small_files commits_since_checkpoint tombstones",
}
SAFETY = [
    ("optimize", "dry_run"),
    ("checkpoint", "dry_run"),
    ("vacuum", "dry_run"),
    ("expire", "dry_run"),
    ("drop feature", "dry_run"),
    ("vacuum", "retention_check"),
    ("vacuum", "require_proof"),
    ("vacuum", "quarantine"),
]


def cases(table: Mapping[str, str]) -> list[tuple[str, str]]:
    return [(kind, name) for kind, names in table.items() for name in names.split()]


def made(kind: str) -> CheckedArguments:
    found = KINDS[kind](task_id="t", table="s3://lake/events")
    assert isinstance(found, CheckedArguments)
    return found


@pytest.mark.parametrize("empty", EMPTY)
@pytest.mark.parametrize(("kind", "name"), cases(REFUSING))
def test_an_empty_text_is_refused_where_it_would_do_more(kind: str, name: str, empty: str) -> None:
    task = made(kind)
    setattr(task, name, empty)
    with pytest.raises(ValueError) as caught:
        task.value_of(name)
    written = task.arguments[name].argument
    assert str(caught.value).startswith(f"{written}: ")


@pytest.mark.parametrize("empty", EMPTY)
@pytest.mark.parametrize(("kind", "name"), cases(ABSENT))
def test_an_empty_text_is_absent_where_it_does_no_more(kind: str, name: str, empty: str) -> None:
    task = made(kind)
    setattr(task, name, empty)
    assert task.value_of(name) is None


@pytest.mark.parametrize(
    "kind",
    [
        "optimize",
        "vacuum",
        "checkpoint",
        "drop feature",
        "expire",
        "restore",
        "generate",
        "repair",
        "analyze",
        "reading",
        "doctor",
        "version",
        "ratio",
        "health",
    ],
)
def test_every_argument_is_in_one_of_the_two_tables(kind: str) -> None:
    listed = {name for table in (REFUSING, ABSENT) for name in table[kind].split()}
    assert set(made(kind).arguments) - listed <= {
        "spark_conn_id",
        "memory_limit",
        "parallelism",
        "spark_conf",
        "spark_binary",
        "deploy_mode",
        "cluster_application",
        "emit_events",
        "asset_alias",
    }


@pytest.mark.parametrize(("kind", "name"), SAFETY)
def test_only_the_word_false_takes_a_protection_away(kind: str, name: str) -> None:
    task = made(kind)
    value: object
    for value in (False, "false", "False", " FALSE "):
        setattr(task, name, value)
        assert task.value_of(name) is False
    for value in (True, "true", "True", "yes", "on", "1", 1):
        setattr(task, name, value)
        assert task.value_of(name) is True
    for value in ("no", "off", "0", 0, None, "", "falsch", 7, []):
        setattr(task, name, value)
        with pytest.raises(ValueError, match="Write (false, or true|true or false|one of these)"):
            task.value_of(name)


def test_the_words_of_the_other_switches_are_few() -> None:
    task = made("optimize")
    for value, meant in {
        "true": 1,
        "YES": 1,
        "on": 1,
        "1": 1,
        1: 1,
        "false": 0,
        "No": 0,
        "off": 0,
        "0": 0,
        0: 0,
    }.items():
        task.full = value  # type: ignore[attr-defined]
        assert task.value_of("full") is bool(meant)


def test_every_partition_is_asked_for_by_a_predicate() -> None:
    task = made("purge")
    task.where = ""  # type: ignore[attr-defined]
    with pytest.raises(
        AirflowFailException, match="where: '' is empty.*template.*every partition.*where='true'"
    ):
        task.check_all()
    task.where = "true"  # type: ignore[attr-defined]
    task.check_all()


def test_an_empty_switch_starts_no_job(make_context: MakeContext) -> None:
    runner = FakeJobRunner(committed)

    class Operator(DeltaVacuumOperator):
        def local_runner(self, storage_options: Mapping[str, Any]) -> FakeJobRunner:
            return runner

    operator = Operator(task_id="t", table="/t", retain_hours="0", retention_check="{{ params.absent }}")
    operator.retention_check = ""
    with pytest.raises(AirflowFailException, match="retention_check: '' .*rendered to nothing"):
        DeltaVacuumOperator.execute.__wrapped__(operator, make_context())  # type: ignore[attr-defined]
    assert runner.specs == []


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        ("optimize", "where"),
        ("optimize", "approved_plan"),
        ("vacuum", "approved_plan"),
        ("version", "version"),
    ],
)
def test_what_renders_to_none_is_as_empty_as_an_empty_text(kind: str, name: str) -> None:
    """So do templates of a DAG with native rendering, and references to the output of a task that pushed none."""
    from airflow.sdk import DAG

    with DAG("native", schedule=None, render_template_as_native_obj=True):
        task = KINDS[kind](task_id="task", table="/data/t", **{name: "{{ params.value }}"})
    with pytest.raises(AirflowFailException, match=f"{name}: None is empty"):
        task.render_template_fields({"params": {"value": None}})


def test_none_in_the_dag_file_means_absent() -> None:
    task = DeltaOptimizeOperator(task_id="task", table="/data/t", where=None)
    task.render_template_fields({})
    task.check_all()
    assert "where" not in task.options()
