"""The job that a task has submitted and that outlives its process, so that another process finds it.

It is kept in the task's state store: what :meth:`~airflow_delta.runners.detached.DetachedRunner.submit` was told *before* it is called, and the
handle after it. The next try, or the same one after a deferral, goes on with this job. It submits another one only if this one has left no
report, or has failed.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from msgspec import Struct, to_builtins
from msgspec.structs import replace

if TYPE_CHECKING:
    from airflow_delta.run_identity import StateStore

_KEY = "delta_maintenance_job"


class SubmittedJob(Struct, frozen=True):
    """One submission of a run.

    :param submission_id: id of the submission on the cluster and in the table's directory.
    :param runner: the class of the runner, by its full name.
    :param try_number: number of the task's try that submitted it.
    :param handle: handle of the job; ``None``: the runner was called, and its answer is not known.
    :param deadline_ms: time at which the try that waits for the job must give up (``execution_timeout``).
    """

    run_id: str
    submission_id: str
    runner: str
    try_number: int
    handle: dict[str, Any] | None = None
    deadline_ms: int | None = None

    @classmethod
    def new(cls, run_id: str, runner: str, try_number: int, deadline_ms: int | None) -> SubmittedJob:
        return cls(run_id, secrets.token_hex(16), runner, try_number, None, deadline_ms)

    def with_handle(self, handle: dict[str, Any]) -> SubmittedJob:
        return replace(self, handle=handle)

    def with_deadline(self, deadline_ms: int | None) -> SubmittedJob:
        return replace(self, deadline_ms=deadline_ms)


def submitted_job(context: Mapping[str, Any]) -> SubmittedJob | None:
    """The job that a process of this task has submitted last."""
    store: StateStore | None = context.get("task_state_store")
    raw = None if store is None else store.get(_KEY)
    try:
        return SubmittedJob(**raw) if isinstance(raw, dict) else None
    except TypeError:  # another release wrote it: at worst the work is done again
        return None


def recall_job(context: Mapping[str, Any], run_id: str, runner: str) -> SubmittedJob | None:
    """The job of this run that an earlier process has submitted to the same kind of runner."""
    found = submitted_job(context)
    return found if found is not None and (found.run_id, found.runner) == (run_id, runner) else None


def remember_job(context: Mapping[str, Any], job: SubmittedJob) -> None:
    store: StateStore | None = context.get("task_state_store")
    if store is not None:
        store.set(_KEY, to_builtins(job))


def forget_job(context: Mapping[str, Any]) -> None:
    """The next try submits a new one."""
    store: StateStore | None = context.get("task_state_store")
    if store is not None:
        store.set(_KEY, {})
