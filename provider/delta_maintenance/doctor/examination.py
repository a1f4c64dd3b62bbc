"""The examination as a whole: installation, store and Spark, as far as they are asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from delta_log.runtime import Runtime
from delta_maintenance.doctor.check import Examination
from delta_maintenance.doctor.installation import examine_installation
from delta_maintenance.progress import ProgressReporter


def examine(
    table: str | None,
    storage_options: Mapping[str, Any],
    *,
    with_spark: bool,
    master: str | None,
    executor_credentials: str = "job",
    runtime: Runtime,
    progress: ProgressReporter,
) -> dict[str, Any]:
    """Look at everything that a job on this table would need, and return the document.

    :param table: an address; ``None``: no store is looked at.
    :param with_spark: ``True``: start a session and look at its executors.
    :param master: master of the session; ``None``: as for jobs, ``$SPARK_MASTER`` or what Spark's configuration says.
    :param executor_credentials: the setting of jobs that says whether they send storage options to executors.
    """
    examination = Examination()
    is_complete = examine_installation(examination, table)
    if table is not None:
        if is_complete:
            # Imported here, since it loads pyarrow, which may be what is missing.
            from delta_maintenance.doctor.store import examine_store

            examine_store(examination, table, storage_options, runtime)
        else:
            examination.skip(["store.open"], "a library is missing")
    if with_spark:
        from delta_maintenance.doctor.spark import examine_spark

        sends_credentials = bool(storage_options) and executor_credentials == "job"
        examine_spark(examination, master, sends_credentials, progress)
    place = (
        master or os.environ.get("SPARK_MASTER") or os.environ.get("SPARK_REMOTE", "").partition(";")[0]
    ) or None
    return examination.document(table, place if with_spark else None)
