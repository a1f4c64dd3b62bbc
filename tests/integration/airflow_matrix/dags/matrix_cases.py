"""Makes the DAGs of the matrix, for files with one call each. What befalls a task is said by files beside its table."""

from __future__ import annotations

import json
import os
import signal
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from airflow.sdk import DAG, Param

from airflow_delta.operators import (
    DeltaCheckpointOperator,
    DeltaOptimizeOperator,
    DeltaReorgPurgeOperator,
    DeltaVacuumOperator,
)

if TYPE_CHECKING:
    from airflow.sdk import Context

OPERATORS: dict[str, Any] = {
    "optimize": DeltaOptimizeOperator,
    "purge": DeltaReorgPurgeOperator,
    "vacuum": DeltaVacuumOperator,
    "checkpoint": DeltaCheckpointOperator,
}
#: The tables of the tests are too young for a checkpoint to be due.
ARGUMENTS: dict[str, dict[str, Any]] = {"checkpoint": {"if_due": False}}
#: By way of running, the arguments of its operators.
WAYS: dict[str, dict[str, Any]] = json.loads(os.environ["MATRIX_WAYS"])
#: As good as any where a limit should be met while the job is held up.
LIMIT = timedelta(seconds=25)
#: The same for a DAG run, which begins earlier than its task. It is so long that a task is not just being deferred when it ends: until a
#: trigger has begun, Airflow tells nobody that a deferred task was ended.
RUN_LIMIT = timedelta(seconds=50)


def beside(context: Context, name: str) -> Path:
    table = Path(context["params"]["table"])
    return table.with_name(f"{table.name}.{name}")


def begin(context: Context) -> None:
    """Tell which process runs the task, in each of its slots; end it as by a lack of memory in the slot that the test has chosen."""
    slots = beside(context, "slots")
    with slots.open("a") as file:
        file.write(f"{os.getpid()}\n")
    # An outage ends when the test says so.
    while context["ti"].try_number > 1 and beside(context, "not_yet").exists():
        time.sleep(0.2)
    chosen = beside(context, "killed_slot")
    if chosen.exists() and int(chosen.read_text()) == len(slots.read_text().splitlines()):
        os.kill(os.getpid(), signal.SIGKILL)


def end(context: Context, result: Any) -> None:
    """End the process when the work is done, once, if the test wants it."""
    try:
        beside(context, "killed_at_end").unlink()
    except FileNotFoundError:
        return
    os.kill(os.getpid(), signal.SIGKILL)


def define_dags(operation: str, way: str) -> None:
    """Make the DAGs of one operation in one way: without a limit, with one for the task, and with one for the run."""
    arguments = WAYS[way]
    for limit in ("", "execution", "run"):
        with DAG(
            "_".join(filter(None, (operation, way.replace(" ", "_"), limit))),
            schedule=None,
            start_date=datetime(2024, 1, 1, tzinfo=UTC),
            params={"table": Param("", type="string")},
            dagrun_timeout=RUN_LIMIT if limit == "run" else None,
        ):
            OPERATORS[operation](
                task_id="maintain",
                table="{{ params.table }}",
                retries=0 if limit == "execution" else 1,
                retry_delay=timedelta(seconds=1),
                execution_timeout=LIMIT if limit == "execution" else None,
                pre_execute=begin,
                post_execute=end,
                **ARGUMENTS.get(operation, {}),
                **arguments,
            )
