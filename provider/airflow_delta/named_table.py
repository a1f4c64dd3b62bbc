"""Where a task's table is that is given by its name in a catalog.

The name is looked up in the process of the task, where the connection is, once for each try. The job gets the address alone: it needs
neither the catalog nor its client library, and the allowed roots hold for the address that it opens.

The address is kept in the task's state store. A task that was deferred goes on at the place to which its job was sent, even if the catalog
does not answer by then. Another try looks the name up again. If the table has moved meanwhile, that try works at the new place, and
leaves a job that an earlier try has sent to the old one to itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from airflow_delta.hooks.delta_table import DeltaTableHook
from airflow_delta.run_identity import StateStore
from airflow_delta.runners.job_runner import TaskLog
from airflow_delta.submitted_job import forget_job
from delta_log.printable import printable
from delta_log.storage.table_uri import is_name, one_spelling

_KEY = "delta_table_location"


def located(
    context: Mapping[str, Any], hook: DeltaTableHook, table: str, log: TaskLog, *, is_resumed: bool
) -> str:
    """Return the address of the table of a task; of one that is given by its address, that address.

    :param is_resumed: whether the try has begun already, and was deferred.
    :raises AirflowFailException: the place lies outside of the allowed roots, or in another store than the connection's.
    :raises DeltaLogError: the catalog has no such Delta table, refuses, or does not answer.
    """
    if not is_name(table):
        hook.require_allowed(table)
        return table
    name, earlier = one_spelling(table), _recall(context, table)
    if is_resumed and earlier is not None:
        hook.require_allowed(earlier)
        return earlier
    location = hook.locate(table)
    log.info("%s is at %s.", name, printable(location))
    if earlier not in (None, location):
        log.warning(
            "An earlier try of this task found %s at %s. This try works at the new place.",
            name,
            printable(str(earlier)),
        )
        forget_job(context)
    store: StateStore | None = context.get("task_state_store")
    if store is not None and location != earlier:
        store.set(_KEY, {"table": name, "location": location})
    return location


def _recall(context: Mapping[str, Any], table: str) -> str | None:
    store: StateStore | None = context.get("task_state_store")
    raw = None if store is None else store.get(_KEY)
    if (
        isinstance(raw, dict)
        and raw.get("table") == one_spelling(table)
        and isinstance(raw.get("location"), str)
    ):
        return str(raw["location"])
    return None
