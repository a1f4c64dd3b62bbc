"""The tasks of a fleet's run, as a group for a DAG."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, cast

from airflow.sdk import TaskGroup

from airflow_delta.fleet.account import DeltaFleetAccountOperator
from airflow_delta.fleet.approval import DeltaFleetApprovalOperator
from airflow_delta.fleet.decide import DeltaFleetDecideOperator
from airflow_delta.fleet.maintain import DeltaFleetMaintainOperator
from airflow_delta.notifications.fleet_report import DeltaFleetReportNotifier, When
from airflow_delta.notifications.sending import Send


def delta_fleet(  # noqa: PLR0913 - each is an argument that a DAG file may give
    *,
    policy: str | Mapping[str, Any],
    state: str,
    delta_conn_id: str | None = None,
    pool: str | None = None,
    group_id: str = "fleet",
    memory_limit: int | str = "1GiB",
    parallelism: int | str | None = None,
    spark_above: int | str | None = None,
    spark_conn_id: str | None = None,
    spark_conf: dict[str, Any] | None = None,
    executor_credentials: str = "job",
    deferrable: bool | None = None,
    asset: str = "fleet",
    report_to: Send | Sequence[Send] = (),
    alert_to: Send | Sequence[Send] = (),
    approval_timeout: timedelta = timedelta(hours=20),
    default_args: Mapping[str, Any] | None = None,
) -> TaskGroup:
    """Keep the tables of a policy healthy: a group of tasks for a DAG with ``max_active_runs=1``.

    ===========  ====================================================================================================
    task         does
    ===========  ====================================================================================================
    ``decide``   surveys all tables, and decides what this run does; changes no table
    ``maintain`` does the work, mapped: large tables have a task each, small ones share tasks
    ``account``  keeps what came of it, and reports; fails for what is new alone, whatever became of the others
    ``approve``  asks a person about deletions, where the policy says so and some wait; skipped otherwise
    ===========  ====================================================================================================

    Nothing waits for ``approve``: what is approved is done by the next run.

    :param policy: path of the policy's file, absolute or beside the DAG file, or the policy's members as a dictionary. It is read when
        the tasks run. (templated)
    :param state: directory in which the fleet keeps its memory, an absolute path or a URI. (templated)
    :param delta_conn_id: connection with the credentials of the stores; default: the identity of the machine. (templated)
    :param pool: pool of all tasks of the group.
    :param group_id: id of the group.
    :param memory_limit: ceiling for the memory of a rewrite in the process of a task. (templated)
    :param parallelism: threads of a rewrite, or Spark tasks, at a time; default: what the machine or cluster has. (templated)
    :param spark_above: size above which a rewrite runs on Spark; default: all work is done in the processes of the tasks. (templated)
    :param spark_conn_id: connection that names the Spark master for these rewrites; default: a Spark session of its own beside the
        task, with all processors of the machine. (templated)
    :param spark_conf: properties of a Spark job; they need ``spark_conn_id``. (its values templated)
    :param executor_credentials: credentials of Spark's executors, ``job`` or ``ambient``, as for
        :class:`~airflow_delta.operators.optimize.DeltaOptimizeOperator`. (templated)
    :param deferrable: switch to give up the worker slot while a rewrite runs on a cluster; default:
        ``[operators] default_deferrable``.
    :param asset: name of the asset ``delta-maintenance:<asset>``, which gets an event when a run is over. Its state store has what the page
        *Delta tables* shows of the fleet, so each fleet needs one of its own.
    :param report_to: notifiers that get the report of each run, see
        :class:`~airflow_delta.notifications.fleet_report.DeltaFleetReportNotifier`.
    :param alert_to: notifiers that get the report of a run with alerts alone: failures that are new, tables that are unhealthy longer than
        ``within``, a window that took more than its budget, a run without a report.
    :param approval_timeout: time for which ``approve`` waits for an answer. The run of the DAG is not over before, so it is shorter than
        the time between two runs.
    :param default_args: further arguments of all tasks, such as ``retries`` and callbacks.
    :raises ValueError: the DAG may have several runs at once, which would share one memory.
    """
    arguments: Any = {**({} if pool is None else {"pool": pool}), **(default_args or {})}
    access: dict[str, Any] = {"state": state, "delta_conn_id": delta_conn_id}
    with TaskGroup(group_id, default_args=arguments) as group:
        _require_one_run(group)
        decide = DeltaFleetDecideOperator(task_id="decide", policy=policy, asset=asset, **access)
        maintain = DeltaFleetMaintainOperator.partial(
            task_id="maintain",
            map_index_template="{{ task.title }}",
            memory_limit=memory_limit,
            parallelism=parallelism,
            spark_above=spark_above,
            spark_conn_id=spark_conn_id,
            spark_conf=spark_conf,
            executor_credentials=executor_credentials,
            deferrable=deferrable,
            **access,
        ).expand_kwargs(cast("Any", decide.output))
        account = DeltaFleetAccountOperator(
            task_id="account",
            decided_by=decide.task_id,
            asset=asset,
            trigger_rule="all_done",
            **access,
            **_callbacks(report_to, alert_to),
        )
        approve = DeltaFleetApprovalOperator(
            task_id="approve",
            decided_by=decide.task_id,
            response_timeout=approval_timeout,
            **access,
        )
        decide >> [maintain, approve]
        [decide, maintain] >> account
    return group


def _require_one_run(group: TaskGroup) -> None:
    dag = group.dag
    if dag.max_active_runs != 1:
        raise ValueError(
            f"The DAG {dag.dag_id} may have {dag.max_active_runs} runs at once, and the runs of a fleet share one memory. Give the DAG "
            "max_active_runs=1."
        )


def _callbacks(report_to: Send | Sequence[Send], alert_to: Send | Sequence[Send]) -> dict[str, Any]:
    """The callbacks by which the report is sent, whether the run is red or not."""
    whens: tuple[tuple[Any, When], ...] = ((report_to, "always"), (alert_to, "alerts"))
    notifiers = [DeltaFleetReportNotifier(send, when=when) for send, when in whens if callable(send) or send]
    return {"on_success_callback": notifiers, "on_failure_callback": notifiers} if notifiers else {}
