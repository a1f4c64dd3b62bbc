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
from delta_log.printable import printable_logger
from delta_log.storage.schemes import NAMED_TABLE_OPTIONS
from delta_log.storage.table_uri import is_name

if TYPE_CHECKING:
    from delta_log.storage.opening import StoragePool
    from delta_log.storage.storage import Storage

log = printable_logger(__name__)

#: Requests at once, for each connection.
THREADS = 16
_SECONDS_BETWEEN_CLIENTS = 30.0
#: How long a name is taken to lead where it led.
_SECONDS_BETWEEN_LOOKUPS = 300.0
_Result = TypeVar("_Result")


class WatchedStore:
    """Opens the tables of a connection. Made by :func:`watched_store`."""

    def __init__(self, delta_conn_id: str | None) -> None:
        self.delta_conn_id = delta_conn_id
        self._pool: StoragePool | None = None
        self._hook = DeltaTableHook(delta_conn_id)
        self._opened_at = 0.0
        self._opening = threading.Lock()
        #: By name: where it led, and when that was found.
        self._located: dict[str, tuple[str, float]] = {}
        self._threads = ThreadPoolExecutor(THREADS, f"delta-{delta_conn_id or 'ambient'}")

    def open(self, table_uri: str) -> Storage:
        """Blocks: call it in a thread of :meth:`submit`'s.

        :raises AirflowFailException: there is no such connection, or it must not or cannot open the address.
        :raises DeltaLogError: the catalog has no such Delta table, refuses, or does not answer.
        """
        with self._opening:
            pool = self._pool
            if pool is None:
                from delta_log.storage.opening import StoragePool

                hook = DeltaTableHook(self.delta_conn_id)
                pool = self._pool = StoragePool(hook.storage_options)
                self._hook, self._opened_at = hook, time.monotonic()
            hook = self._hook
        location = self._location(hook, table_uri)
        hook.require_allowed(location)
        options = hook.opening_options(table_uri)
        return pool.open(location, {name: options[name] for name in NAMED_TABLE_OPTIONS if name in options})

    def follow(self, table_uri: str, storage: Storage) -> Storage:
        """The storage of a table that is open already: another one if its name leads elsewhere by now. Blocks."""
        if not is_name(table_uri):
            return storage
        here = self.open(table_uri)
        return storage if here.uri == storage.uri else here

    def _location(self, hook: DeltaTableHook, table_uri: str) -> str:
        """
        :raises DeltaLogError: the catalog has no such Delta table, refuses, or does not answer.
        """
        if not is_name(table_uri):
            return table_uri
        known, found_at = self._located.get(table_uri, (None, 0.0))
        if known is not None and time.monotonic() - found_at < _SECONDS_BETWEEN_LOOKUPS:
            return known
        # Imported here, since a DAG file may import this module.
        from delta_log.errors import StorageError

        try:
            location = hook.locate(table_uri)
        except StorageError as error:
            if known is None or not error.retryable:
                raise
            # An outage of the catalog does not move a table.
            location = known
        if location != known:
            log.info("%s is at %s.", table_uri, location)
        self._located[table_uri] = (location, time.monotonic())
        return location

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
