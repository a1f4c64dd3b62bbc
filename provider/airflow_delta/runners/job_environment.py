"""The environment of a job, which carries credentials, the run's key and the nonce of its output.

These are not put into the command line, which every user of the machine can read, nor into Spark's configuration, which its UI
and event log show.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from delta_maintenance.entrypoint.run_job import PARENT_PID_VARIABLE, SPARK_MASTER_VARIABLE
from delta_maintenance.job_interface import OUTPUT_NONCE_VARIABLE, RUN_KEY_VARIABLE, STORAGE_OPTIONS_VARIABLE


def job_environment(
    storage_options: Mapping[str, Any],
    spark_master: str | None = None,
    *,
    run_key: str | None = None,
    output_nonce: str | None = None,
    **more: str,
) -> dict[str, str]:
    """The worker's environment, with the variables of this job.

    :param spark_master: Spark master to which ``engine="auto"`` may send work that is too large for this machine.
    :param run_key: the secret that all tries of the run share.
    :param output_nonce: mark of the job's own lines, see :class:`~airflow_delta.runners.job_output.JobOutput`.
    """
    own = (STORAGE_OPTIONS_VARIABLE, SPARK_MASTER_VARIABLE, RUN_KEY_VARIABLE, OUTPUT_NONCE_VARIABLE)
    environment = {name: value for name, value in os.environ.items() if name not in own}
    # A task that is killed cannot stop its job, so the job watches the process of the task.
    environment.update({PARENT_PID_VARIABLE: str(os.getpid()), "PYTHONUNBUFFERED": "1", **more})
    if storage_options:
        environment[STORAGE_OPTIONS_VARIABLE] = json.dumps(dict(storage_options))
    if output_nonce is not None:
        environment[OUTPUT_NONCE_VARIABLE] = output_nonce
    if spark_master is not None:
        environment[SPARK_MASTER_VARIABLE] = spark_master
    if run_key is not None:
        environment[RUN_KEY_VARIABLE] = run_key
    return environment


def python_programs() -> str:
    """The directory with this interpreter's programs: pip puts `spark-submit` there."""
    return str(Path(sys.executable).parent)


#: Beside the task, which holds its slot; and on the cluster.
CLIENT, CLUSTER = "client", "cluster"
DEPLOY_MODES = (CLIENT, CLUSTER)
