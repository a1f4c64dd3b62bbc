"""The tables of one Airflow connection, shared by all triggers of a triggerer: one client and a few threads.

Storage is synchronous, and the triggerer has one thread for all triggers. Therefore every call of a store runs in a thread that
belongs to its connection. A store that hangs holds up only its own tables.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import copy_context
from functools import cache
from typing import TYPE_CHECKING, TypeVar

from airflow_delta.hooks.delta_table import DeltaTableHook

if TYPE_CHECKING:
    from delta_log.storage.pool import StoragePool
    from delta_log.storage.storage import Storage

#: Requests at once, for each connection.
THREADS = 16
_SECONDS_BETWEEN_CLIENTS = 30.0
_Result = TypeVar("_Result")


class WatchedStore:
    """Opens the tables of a connection. Made by :func:`watched_store`."""

    def __init__(self, delta_conn_id: str | None) -> None:
        self.delta_conn_id = delta_conn_id
        self._pool: StoragePool | None = None
        self._hook = DeltaTableHook(delta_conn_id)
        self._opened_at = 0.0
        self._opening = threading.Lock()
        self._threads = ThreadPoolExecutor(THREADS, f"delta-{delta_conn_id or 'ambient'}")

    def open(self, table_uri: str) -> Storage:
        """Blocks: call it in a thread of :meth:`submit`'s.

        :raises AirflowFailException: there is no such connection, or it must not or cannot open the address.
        """
        with self._opening:
            pool = self._pool
            if pool is None:
                from delta_log.storage.pool import StoragePool

                hook = DeltaTableHook(self.delta_conn_id)
                pool = self._pool = StoragePool(hook.storage_options)
                self._hook, self._opened_at = hook, time.monotonic()
            hook = self._hook
        hook.require_allowed(table_uri)
        return pool.open(table_uri)

    def forget_credentials(self) -> None:
        """Have the next call ask Airflow for the connection again, which may have been corrected since the store refused it.

        This happens at most once in a while, since a store refuses many tables together.
        """
        if time.monotonic() - self._opened_at > _SECONDS_BETWEEN_CLIENTS:
            self._pool = None

    def submit(self, work: Callable[..., _Result], *arguments: object) -> Future[_Result]:
        # With the caller's context: Airflow's triggerer tells by it whose log a line belongs to.
        return self._threads.submit(copy_context().run, work, *arguments)

    async def run(self, work: Callable[..., _Result], *arguments: object) -> _Result:
        """The result of a call that blocks."""
        return await asyncio.wrap_future(self.submit(work, *arguments))


@cache
def watched_store(delta_conn_id: str | None) -> WatchedStore:
    """The only one of this process for a connection."""
    return WatchedStore(delta_conn_id)
