"""Which piece of work a try of a task belongs to, so that a repetition commits nothing twice.

A Delta transaction id is an application id and a version (``txn`` of the protocol). The application id names dag, task,
operation and table, never the run or the map index, for it stays in the table's log for ever. The version is drawn
when a piece of work is first tried and kept in the task's state store; it is the time in microseconds, since a logical
date may be null, and goes backwards in a backfill.

============================================  ==================================================================
a retry, of whatever failure                  the same piece of work: had it committed, nothing is committed again
the task was killed, its worker is gone       the same
cleared after it had failed                   the same
cleared after it had succeeded                a new one: whoever clears it wants it done again
another run, a backfill, another map index    a new one
============================================  ==================================================================

Airflow tells a retry from a clearing only by ``max_tries``, which grows with every clearing.

With the work a secret key is drawn, by which its tries know the manifests that they leave in the table. It is kept beside the
identity, under a name of its own, so that a worker with an earlier release goes on reading the identity.
"""

from __future__ import annotations

import logging
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from delta_maintenance.contract import TransactionId

_KEY, _SECRET_KEY = "delta_maintenance_run", "delta_maintenance_run_key"


class StateStore(Protocol):
    """What is needed of ``context["task_state_store"]``."""

    def get(self, key: str) -> Any: ...

    def set(self, key: str, value: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """One piece of work.

    :param run_id: its name in manifests, logs and commit tags.
    :param max_tries: what the task instance said when this was stored last.
    :param succeeded: whether the task's work was done; Airflow may still have failed to learn it.
    :param secret: the key of the run; never part of a spec, a report or a log.
    """

    app_id: str
    version: int
    run_id: str
    max_tries: int
    succeeded: bool = False
    secret: str = field(default="", repr=False)

    @property
    def transaction(self) -> TransactionId:
        return TransactionId(self.app_id, self.version)


def recall_or_begin(context: Mapping[str, Any], operation: str, table: str, now_us: int) -> RunIdentity:
    """The piece of work that this try of a task goes on with; stored before it is returned."""
    instance = context["ti"]
    app_id = f"airflow:{instance.dag_id}:{instance.task_id}:{operation}:{table}"
    stored = _recall(context)
    if stored is not None and stored.app_id == app_id and not _cleared_since(stored, instance.max_tries):
        return _with_secret(context, stored)
    version = now_us if stored is None else max(now_us, stored.version + 1)
    identity = RunIdentity(app_id, version, f"airflow-{version}-{uuid.uuid4().hex[:8]}", instance.max_tries)
    _remember(context, identity)
    return _with_secret(context, identity)


def mark_succeeded(context: Mapping[str, Any], identity: RunIdentity) -> None:
    _remember(context, replace(identity, succeeded=True, max_tries=context["ti"].max_tries))


def _cleared_since(stored: RunIdentity, max_tries: int) -> bool:
    return stored.succeeded and stored.max_tries != max_tries


def _with_secret(context: Mapping[str, Any], identity: RunIdentity) -> RunIdentity:
    """The work with its key. Where it has none, an earlier release began it: with a new one its manifests are not taken over."""
    store: StateStore | None = context.get("task_state_store")
    raw = None if store is None else store.get(_SECRET_KEY)
    if isinstance(raw, dict) and raw.get("run_id") == identity.run_id and isinstance(raw.get("key"), str):
        return replace(identity, secret=raw["key"])
    secret = secrets.token_hex(32)
    if store is not None:
        store.set(_SECRET_KEY, {"run_id": identity.run_id, "key": secret})
    return replace(identity, secret=secret)


def _recall(context: Mapping[str, Any]) -> RunIdentity | None:
    store: StateStore | None = context.get("task_state_store")
    raw = None if store is None else store.get(_KEY)
    try:
        return RunIdentity(**raw) if isinstance(raw, dict) else None
    except TypeError:  # written by another release: at worst the work is done again
        return None


def _remember(context: Mapping[str, Any], identity: RunIdentity) -> None:
    store: StateStore | None = context.get("task_state_store")
    if store is None:
        logging.getLogger(__name__).warning(
            "Airflow gave this task no state store, so a retry after a commit would do the work again."
        )
        return
    store.set(_KEY, {name: value for name, value in asdict(identity).items() if name != "secret"})
