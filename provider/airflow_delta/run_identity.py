"""The piece of work that a try of a task belongs to, so that a repetition commits nothing twice.

A Delta transaction id is an application id and a version (``txn`` of the protocol). The application id names dag, task,
operation and table, the table in one spelling of its address, or by the name in a catalog that the task was given. It stays in the
table's log for ever, so it names neither the run nor the map index. The version is drawn at the first try of a piece
of work and kept in the task's state store. It is the time in microseconds; a logical date would not do, since it may be null and
goes backwards in a backfill.

============================================  ==================================================================
a retry, after any failure                    the same piece of work: had it committed, nothing is committed again
the task was killed, its worker is gone       the same
cleared after it had failed                   the same
cleared after it had succeeded                a new one: the user wants it done again
another run, a backfill, another map index    a new one
============================================  ==================================================================

Airflow tells a retry from a clearing only by ``max_tries``, which grows with every clearing.

A secret key is drawn together with the version. By this key a try recognises the manifests that earlier tries left in the table.
The key is kept beside the identity, under a name of its own, so that a worker with an earlier release can still read the identity.
"""

from __future__ import annotations

import logging
import secrets
import uuid
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Protocol

from delta_log.storage.table_uri import one_spelling
from delta_maintenance.contract import TransactionId

_KEY, _SECRET_KEY = "delta_maintenance_run", "delta_maintenance_run_key"


class StateStore(Protocol):
    """The part of ``context["task_state_store"]`` that is used here."""

    def get(self, key: str) -> Any: ...

    def set(self, key: str, value: Any) -> None: ...


@dataclass(frozen=True, slots=True)
class RunIdentity:
    """One piece of work.

    :param run_id: name of the run in manifests, logs and commit tags.
    :param max_tries: ``max_tries`` of the task instance when the identity was stored last.
    :param succeeded: whether the work was done; Airflow may still have failed to learn it.
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
    """The piece of work that this try of a task continues, or a new one; it is stored before it is returned."""
    instance = context["ti"]
    app_id = f"airflow:{instance.dag_id}:{instance.task_id}:{operation}:{one_spelling(table)}"
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
    """The work with its key. Work that an earlier release began has no key; it gets a new one, and its manifests are not used."""
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
    except TypeError:  # Another release wrote it: at worst the work is done again.
        return None


def _remember(context: Mapping[str, Any], identity: RunIdentity) -> None:
    store: StateStore | None = context.get("task_state_store")
    if store is None:
        logging.getLogger(__name__).warning(
            "Airflow gave this task no state store, so a retry after a commit would do the work again."
        )
        return
    store.set(_KEY, {name: value for name, value in asdict(identity).items() if name != "secret"})
