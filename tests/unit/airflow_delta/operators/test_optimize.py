from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import AssetAlias
from airflow.sdk.exceptions import AirflowException, AirflowFailException
from tests.support.tables.hostile_text import CONTROLS, FORGED_LINE

from airflow_delta.assets import MAINTENANCE_ALIAS, maintenance_asset
from airflow_delta.operators import DeltaOptimizeOperator
from airflow_delta.runners.job_output import JobProgress
from airflow_delta.runners.job_runner import JobCannotStart, JobLost, JobRunner
from airflow_delta.testing import FakeJobRunner, FakeStateStore, committed
from delta_log.errors import NoCredentials
from delta_maintenance.contract import ErrorReport, JobReport, JobSpec
from delta_maintenance.errors import error_report

MakeContext = Callable[..., dict[str, Any]]


class Operator(DeltaOptimizeOperator):
    """With runners that run nothing."""

    def __init__(
        self, *, local: FakeJobRunner | None = None, spark: FakeJobRunner | None = None, **kwargs: Any
    ) -> None:
        super().__init__(**{"task_id": "optimize", "table": "s3://lake/events", **kwargs})
        self.local, self.spark = local or FakeJobRunner(), spark or FakeJobRunner()

    def local_runner(self, storage_options: Mapping[str, Any]) -> JobRunner:
        return self.local

    def spark_runner(self, storage_options: Mapping[str, Any]) -> JobRunner:
        return self.spark


def run(operator: Operator, context: dict[str, Any]) -> dict[str, Any]:
    # Airflow refuses an execute() that its task runner did not call.
    return DeltaOptimizeOperator.execute.__wrapped__(operator, context)  # type: ignore[attr-defined, no-any-return]


def events(context: dict[str, Any]) -> list[Any]:
    return list(context["outlet_events"][MAINTENANCE_ALIAS].asset_alias_events)


def report(spec: JobSpec, status: str, **facts: Any) -> JobReport:
    return JobReport(spec.operation, spec.table, status, run_id=spec.run_id, **facts)


def failed(**error: Any) -> Callable[[JobSpec], JobReport]:
    return lambda spec: report(spec, "failed", error=ErrorReport(**error))


def test_what_is_wanted_reaches_the_job(make_context: MakeContext) -> None:
    runner = FakeJobRunner(committed)
    operator = Operator(
        local=runner,
        where="day >= '2026-01-01'",
        target_size="256MiB",
        max_deleted_rows_ratio="0.1",
        full="True",
        engine="local",
        parallelism="2",
        memory_limit="2GiB",
    )
    run(operator, make_context())
    (spec,) = runner.specs
    assert spec.options == {
        "where": "day >= '2026-01-01'",
        "target_size_bytes": 256 << 20,
        "max_deleted_rows_ratio": 0.1,
        "full": True,
    }
    assert (spec.table, spec.engine, spec.parallelism, spec.memory_limit_bytes) == (
        "s3://lake/events",
        "local",
        2,
        2 << 30,
    )
    assert spec.tags == {
        "airflow.dag_id": "nightly",
        "airflow.task_id": "optimize",
        "airflow.run_id": "manual__1",
    }


@pytest.mark.parametrize(
    ("given", "expected"), [(True, True), ("true", True), ("False", False), (False, False)]
)
def test_a_dry_run_is_told_to_the_job(make_context: MakeContext, given: bool | str, expected: bool) -> None:
    runner = FakeJobRunner(lambda spec: report(spec, "planned"))
    run(Operator(local=runner, engine="local", dry_run=given), make_context())
    assert [spec.dry_run for spec in runner.specs] == [expected]


def test_the_report_is_the_xcom_and_a_commit_an_event_of_the_maintenance_asset(
    make_context: MakeContext,
) -> None:
    context = make_context()
    operator = Operator(local=FakeJobRunner(lambda spec: committed(spec, 7, numAddedFiles=2)), engine="local")
    result = run(operator, context)
    assert (result["status"], result["version"], result["metrics"]) == ("committed", 7, {"numAddedFiles": 2})
    (event,) = events(context)
    assert event.dest_asset_key.name == maintenance_asset("s3://lake/events").name
    assert (event.extra["version"], event.extra["metrics"]) == (7, {"numAddedFiles": 2})
    assert operator.outlets == [AssetAlias("delta-maintenance")]


@pytest.mark.parametrize("status", ["nothing_to_do", "planned"])
def test_without_a_commit_there_is_no_event(make_context: MakeContext, status: str) -> None:
    context = make_context()
    run(Operator(local=FakeJobRunner(lambda spec: report(spec, status)), engine="local"), context)
    assert events(context) == []


def test_a_retry_has_the_transaction_of_the_try_before(make_context: MakeContext) -> None:
    store = FakeStateStore()
    runner = FakeJobRunner(JobLost("killed"), lambda spec: report(spec, "already_done", version=4))
    operator = Operator(local=runner, engine="local")
    with pytest.raises(AirflowException, match="killed"):
        run(operator, make_context(store))
    context = make_context(store)
    run(operator, context)
    first, second = runner.specs
    assert (first.transaction, first.run_id) == (second.transaction, second.run_id)
    key, again = runner.run_keys
    assert key == again
    assert key is not None
    assert key not in first.to_json()
    assert events(context)[0].extra["version"] == 4, "the try that committed did not live to tell"


def test_large_work_goes_over_to_spark(make_context: MakeContext) -> None:
    local = FakeJobRunner(lambda spec: report(spec, "needs_spark", engine_reason="900 GiB"))
    spark = FakeJobRunner(committed)
    assert run(Operator(local=local, spark=spark), make_context())["status"] == "committed"
    assert (local.specs[0].engine, spark.specs[0].engine) == ("auto", "spark")
    assert local.specs[0].transaction == spark.specs[0].transaction


def test_engine_spark_goes_straight_there(make_context: MakeContext) -> None:
    local, spark = FakeJobRunner(), FakeJobRunner(committed)
    run(Operator(local=local, spark=spark, engine="spark"), make_context())
    assert (len(local.specs), len(spark.specs)) == (0, 1)


@pytest.mark.parametrize(
    ("outcome", "final"),
    [
        (failed(kind="refused", type="NotATable", message="no table", retryable=False), True),
        (failed(kind="conflict", type="ConcurrentDeleteRead", message="lost", retryable=True), False),
        (failed(kind="failed", type="StorageError", message="down", retryable=True), False),
        (failed(kind="failed", type="LiveFilesMissing", message="gone", retryable=False), True),
        (failed(kind="failed", type="Unforeseen", message="said nothing of a repetition"), False),
        (JobCannotStart("no spark-submit"), True),
        (JobLost("exit code 1", ("boom",)), False),
    ],
)
def test_only_what_would_fail_again_is_not_retried(
    make_context: MakeContext, outcome: Any, final: bool
) -> None:
    context = make_context()
    with pytest.raises(AirflowException) as caught:
        run(Operator(local=FakeJobRunner(outcome), engine="local"), context)
    assert isinstance(caught.value, AirflowFailException) is final
    assert events(context) == []


def test_a_refusal_names_table_reason_and_type(make_context: MakeContext) -> None:
    runner = FakeJobRunner(failed(kind="refused", type="UnsupportedFeature", message="feature x"))
    with pytest.raises(
        AirflowFailException, match=r"OPTIMIZE of s3://lake/events: feature x \[UnsupportedFeature\]"
    ):
        run(Operator(local=runner, engine="local"), make_context())


@pytest.mark.parametrize(
    ("delta_conn_id", "told"),
    [
        ("lake", "Put them into connection 'lake', or give machine"),
        (
            None,
            r"Put them into a connection that delta_conn_id names \(this task has none\), or give machine",
        ),
    ],
)
def test_an_error_about_credentials_names_the_connection(
    make_context: MakeContext, monkeypatch: pytest.MonkeyPatch, delta_conn_id: str | None, told: str
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_LAKE", '{"conn_type": "delta"}')
    error = error_report(NoCredentials("s3://lake/events", "Unable to locate credentials"))
    operator = Operator(
        local=FakeJobRunner(lambda spec: report(spec, "failed", error=error)),
        engine="local",
        delta_conn_id=delta_conn_id,
    )
    with pytest.raises(AirflowFailException, match=told):
        run(operator, make_context())


def test_an_error_of_spark_names_the_connection_and_the_master(
    make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AIRFLOW_CONN_BIG", '{"conn_type": "spark", "host": "spark://cluster", "port": 7077}')
    runner = FakeJobRunner(failed(type="SparkUnavailable", message="The cluster has given no executor."))
    operator = Operator(spark=runner, engine="spark", spark_conn_id="big")
    with pytest.raises(
        AirflowException, match="This is the Spark of connection 'big', master spark://cluster:7077"
    ):
        run(operator, make_context())


def test_progress_stands_in_the_task_log(
    make_context: MakeContext, capsys: pytest.CaptureFixture[str]
) -> None:
    runner = FakeJobRunner(committed, progress=[JobProgress(1, 2, 5, 10, "day=1")])
    run(Operator(local=runner, engine="local"), make_context())
    assert "day=1" in capsys.readouterr().out


def test_killing_the_task_stops_the_job(make_context: MakeContext) -> None:
    runner = FakeJobRunner(committed)
    operator = Operator(local=runner, engine="local")
    operator.on_kill()
    run(operator, make_context())
    operator.on_kill()
    assert runner.stops == 1


@pytest.mark.parametrize(
    "arguments",
    [
        {"table": " "},
        {"engine": "warp"},
        {"target_size": "huge"},
        {"memory_limit": True},
        {"memory_limit": "9" * 400},
        {"memory_limit": 10**5000},
        {"target_size": "9" * 400 + ".5GiB"},
        {"parallelism": "²"},
        {"parallelism": "9" * 5000},
        {"max_files": 10**5000},
        {"max_deleted_rows_ratio": 10**400},
        {"approved_plan": "{'a': " * 5000},
        {"parallelism": 0},
        {"max_deleted_rows_ratio": 2},
        {"full": "perhaps"},
        {"dry_run": 7},
        {"spark_conf": "spark.a=b"},
        {"where": 5},
        {"table": "relative/path"},
        {"output": "plan.json"},
        {"spark_binary": "{{ params.binary }}"},
        {"spark_conf": "{{ params.conf }}"},
    ],
)
def test_a_senseless_argument_is_refused_when_the_dag_is_parsed(arguments: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(arguments))):
        DeltaOptimizeOperator(**{"task_id": "optimize", "table": "/t", **arguments})


def test_a_senseless_rendered_template_fails_for_good_and_before_any_job(make_context: MakeContext) -> None:
    operator = Operator(target_size="{{ params.size }}", engine="local")
    operator.target_size = "huge"
    with pytest.raises(AirflowFailException, match="target_size: 'huge'"):
        run(operator, make_context())
    assert operator.local.specs == []


def test_every_template_field_is_an_attribute_and_every_argument_but_a_program_is_templated() -> None:
    operator = DeltaOptimizeOperator(task_id="optimize", table="/t")
    fields = DeltaOptimizeOperator.template_fields
    assert set(fields) == set(operator.arguments) - {"spark_binary", "cluster_application"}
    assert all(hasattr(operator, name) for name in fields)


def test_templates_that_render_to_nothing_are_absent_where_less_is_done_without_them() -> None:
    operator = DeltaOptimizeOperator(task_id="optimize", table="/t")
    operator.target_size, operator.parallelism, operator.batch_size = "None", " ", ""
    assert operator.options() == {}
    assert operator.value_of("parallelism") is None


def test_sizes_mean_what_they_mean_in_table_properties() -> None:
    operator = DeltaOptimizeOperator(task_id="optimize", table="/t")
    for text in ("128mb", "128MiB", "128 M", 128 << 20):
        operator.target_size = text
        assert operator.options()["target_size_bytes"] == 128 << 20


@pytest.mark.parametrize("kind", ["refused", "failed"])
def test_what_a_report_quotes_reaches_airflow_as_one_printable_line(
    make_context: MakeContext, kind: str
) -> None:
    runner = FakeJobRunner(failed(kind=kind, type=CONTROLS, message=f"{FORGED_LINE}{CONTROLS}"))
    with pytest.raises(AirflowException, match="forged line") as caught:
        run(Operator(local=runner), make_context())
    assert str(caught.value).isprintable()


def test_auto_with_a_spark_connection_that_does_not_exist_fails_before_the_job(
    make_context: MakeContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_NIGHTLY_SPARK", raising=False)
    operator = DeltaOptimizeOperator(task_id="optimize", table="/t", spark_conn_id="nightly_spark")
    with pytest.raises(AirflowFailException, match="no Airflow connection 'nightly_spark'"):
        run(operator, make_context())  # type: ignore[arg-type]


@pytest.mark.parametrize("connection", [None, '{"conn_type": "spark", "host": "local[*]"}'])
def test_auto_without_a_default_spark_connection_warns_once(
    make_context: MakeContext,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    connection: str | None,
) -> None:
    monkeypatch.delenv("AIRFLOW_CONN_SPARK_DEFAULT", raising=False)
    if connection is not None:
        monkeypatch.setenv("AIRFLOW_CONN_SPARK_DEFAULT", connection)
    operator = DeltaOptimizeOperator(task_id="optimize", table=str(tmp_path))
    with pytest.raises(AirflowFailException, match="NotATable"):
        run(operator, make_context())  # type: ignore[arg-type]
    warning = "a rewrite of more than 16.0 GiB would fail"
    assert capsys.readouterr().out.count(warning) == (1 if connection is None else 0)
