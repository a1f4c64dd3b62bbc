"""Base of the event triggers: it watches tables through a shared stream, and keeps its place in Airflow's asset state.

A subclass says what an event tells of a table that has reached a version. What it has to remember of a table is a JSON value.
The values are kept in a fixed number of entries of the asset's state store (:mod:`airflow_delta.watch_memory`), where the UI shows
them and can reset them.

A watcher may know more than it remembers. It remembers the outcome of a round only after Airflow has stored the events of that
round and of all rounds before it, and only if the watcher still runs a while later.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator, Hashable, Sequence
from functools import partial
from importlib import import_module
from typing import TYPE_CHECKING, Any, ClassVar
from weakref import WeakKeyDictionary

from airflow.triggers.base import BaseEventTrigger, TriggerEvent

from airflow_delta.hooks.watched_store import WatchedStore, watched_store
from airflow_delta.triggers.table_stream import TableStream, streams
from airflow_delta.watch_memory import SHARDS, shard_key, shard_of
from delta_log.catalog.table_name import TableName
from delta_log.errors import InvalidRequest
from delta_log.printable import printable_logger
from delta_log.storage.table_uri import require_absolute

if TYPE_CHECKING:
    from airflow_delta.triggers.table_stream import Round, StreamKey, WatchedTable

log = printable_logger(__name__)

#: How long a watcher works at one round; the remaining tables are announced to it again. It is well below the time after which
#: Airflow takes a watcher for dead ([triggerer] shared_stream_ack_timeout).
_SECONDS_PER_ROUND = 60.0
_MOST_SECONDS_BETWEEN_RECALLS = 5.0

#: By event loop, what one watcher at a time holds while it reads and writes an entry.
_writers: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Lock] = WeakKeyDictionary()


def _writing_places() -> asyncio.Lock:
    return _writers.setdefault(asyncio.get_running_loop(), asyncio.Lock())


class TableEventTrigger(BaseEventTrigger):
    """Watches one table or several for an asset, or waits for one table on behalf of a task.

    :param table: address of a table, or several, or names in a catalog; an address that ends with ``/*`` stands for all tables
        directly below.
    :param delta_conn_id: connection of type ``delta``; ``None``: the triggerer's own identity.
    :param poll_interval: seconds between two looks at a table.
    :param queue: queue of the triggerers that run the watcher, from Airflow 3.4 on; ``None``: triggerers without queues.
    """

    #: Prefix of the keys in the asset's state store: one of :data:`airflow_delta.watch_memory.PREFIXES`.
    state_prefix: str
    #: An event that comes before Airflow has made a run of the previous event is handed over only with the next one. Therefore
    #: a round has one event for all its tables, and the scheduler gets some time between two events.
    seconds_between_events: ClassVar[float] = 5.0
    #: When a DAG has just been paused and its watcher still runs, Airflow drops an event and reports it as stored. Therefore an
    #: event counts as stored only if the watcher still runs this much later.
    seconds_until_settled: ClassVar[float] = 30.0

    def __init__(
        self,
        table: str | Sequence[str],
        delta_conn_id: str | None = None,
        poll_interval: float = 30.0,
        *,
        queue: str | None = None,
    ) -> None:
        super().__init__(queue=queue)  # type: ignore[no-untyped-call]
        # Airflow 3.3 takes any argument, and knows no queues of watchers.
        if queue is not None and not hasattr(self, "queue"):
            raise ValueError(
                f"queue={queue!r} needs Airflow 3.4: before, triggerers with --queues run no watchers."
            )
        tables = [table] if isinstance(table, str) else list(table)
        if not tables or not all(str(uri).strip() for uri in tables):
            raise ValueError(f"table={table!r} is not the address of a table, or a list of such.")
        try:
            for uri in tables:
                if TableName.parse(uri) is None:
                    require_absolute(uri)
        except InvalidRequest as error:
            raise ValueError(str(error)) from None
        if not poll_interval > 0:
            raise ValueError(f"poll_interval={poll_interval!r} is not a number of seconds above 0.")
        self.table = table
        self.tables = tuple(uri if uri.endswith("/*") else uri.rstrip("/") or "/" for uri in tables)
        self.delta_conn_id = delta_conn_id
        self.poll_interval = float(poll_interval)
        #: The outcome of this round, by table.
        self._outcomes: dict[str, Any] = {}
        #: What to keep, by table; and the tables of which it has changed since it was saved.
        self._remembered: dict[str, Any] = {}
        self._changed: set[str] = set()
        self._is_first_run = True
        self._last_event = -math.inf
        self._troubled: dict[str, str] = {}
        #: Outcomes of rounds whose events Airflow has reported as stored, each with the time from which on that counts;
        #: ascending.
        self._unsettled: deque[tuple[float, dict[str, Any]]] = deque()
        self._settling: asyncio.Task[None] | None = None

    def serialize(self) -> tuple[str, dict[str, Any]]:
        kind, queue = type(self), getattr(self, "queue", None)
        arguments = {
            "table": self.table if isinstance(self.table, str) else list(self.table),
            "delta_conn_id": self.delta_conn_id,
            "poll_interval": self.poll_interval,
        }
        # Airflow finds its row of a watcher by these arguments alone, and keeps the queue of the row.
        return f"{kind.__module__}.{kind.__qualname__}", (
            arguments if queue is None else {**arguments, "queue": queue}
        )

    @property
    def store(self) -> WatchedStore:
        return watched_store(self.delta_conn_id)

    # -- the stream ----------------------------------------------------------------------------------------------

    def shared_stream_key(self) -> Hashable | None:
        """The key by which Airflow shares a stream between watchers; ``None`` for a task, which :meth:`run` serves alone."""
        if self.task_instance is not None:
            return None
        return (self.tables, self.delta_conn_id, self.poll_interval)

    @classmethod
    def create_shared_stream_producer(cls, kwargs: dict[str, Any]) -> TableStream:
        own = cls(**kwargs)
        return TableStream(own.tables, own.delta_conn_id, own.poll_interval)

    async def filter_shared_stream(self, shared_stream: AsyncIterator[Round]) -> AsyncIterator[TriggerEvent]:
        try:
            async for event in self._watch(shared_stream):
                yield event
        finally:
            if self._settling is not None:
                self._settling.cancel()

    async def _watch(self, shared_stream: AsyncIterator[Round]) -> AsyncIterator[TriggerEvent]:
        # Importing pyarrow takes time, and all triggers share this thread.
        await asyncio.to_thread(import_module, "delta_log.tail.commit_follower")
        await self._recall()
        key: StreamKey = (self.tables, self.delta_conn_id, self.poll_interval)
        if key in streams:  # It runs for other watchers already, and will not repeat its news by itself.
            streams[key].announce()
        async for found in shared_stream:
            stream = streams[key]
            await asyncio.sleep(self._last_event + self.seconds_between_events - time.monotonic())
            outcomes = self._outcomes = {}
            found_in_all: list[dict[str, Any]] = []
            deadline = time.monotonic() + _SECONDS_PER_ROUND
            for uri, latest in found.latest.items():
                if time.monotonic() > deadline:
                    stream.announce([uri])
                    continue
                # Airflow starts a watcher that raises again every two seconds, without end.
                try:
                    async for payload in self.tell(stream.tables[uri], latest, deadline):
                        found_in_all.append(payload)  # noqa: PERF401 - an error leaves what was found
                    if self.is_behind(uri, latest):
                        stream.announce([uri])
                    self._troubled.pop(uri, None)
                except Exception as error:  # noqa: BLE001
                    self._complain(uri, error)
                    stream.announce_later([uri])
            if found_in_all:
                yield TriggerEvent({"found": found_in_all})  # type: ignore[no-untyped-call]
                self._last_event = time.monotonic()
            believed = self._last_event + self.seconds_until_settled
            found.saves.append(partial(self._stored, believed, outcomes))

    async def tell(self, table: WatchedTable, latest: int, deadline: float) -> AsyncIterator[dict[str, Any]]:
        """The payloads for a table that has reached a version. All payloads of a round go into one event.

        :param latest: version that the table has reached; -1: there is no table (yet).
        :param deadline: time of :func:`time.monotonic` after which to stop.
        """
        nothing: Sequence[dict[str, Any]] = ()
        for payload in nothing:
            yield payload

    def outcome(self, table: str, value: Any) -> None:
        """Note how far :meth:`tell` has come with a table; :meth:`settled` gets it when the events are stored."""
        self._outcomes[table] = value

    def settled(self, table: str, outcome: Any) -> Any:
        """The value to remember for a table, now that the events up to an outcome are stored."""
        return outcome

    async def _stored(self, believed: float, outcomes: dict[str, Any]) -> None:
        """Take note that Airflow has stored the events of a round.

        :param believed: time of :func:`time.monotonic` from which on that counts.
        """
        self._unsettled.append((believed, outcomes))
        await self._settle_due()
        if self._unsettled and (self._settling is None or self._settling.done()):
            self._settling = asyncio.create_task(self._settle_others())

    async def _settle_due(self) -> None:
        while self._unsettled and self._unsettled[0][0] <= time.monotonic():
            _, outcomes = self._unsettled.popleft()
            for table, value in outcomes.items():
                self.remember(table, self.settled(table, value))
        await self.save()

    async def _settle_others(self) -> None:
        while self._unsettled:
            await asyncio.sleep(max(0.0, self._unsettled[0][0] - time.monotonic()))
            try:
                await self._settle_due()
            except Exception as error:  # noqa: BLE001 - of a state store; the next save makes up for it
                log.warning("The place of a watcher could not be kept: %s", error)

    def is_behind(self, table: str, latest: int) -> bool:
        """Whether :meth:`tell` stopped before it had looked at everything."""
        return False

    def _complain(self, table: str, error: Exception) -> None:
        """Log an error of a table, unless it is the same as the last one."""
        if self._troubled.get(table) != str(error):
            log.warning("%s: %s Trying again now and then.", table, error)
            self._troubled[table] = str(error)

    # -- memory --------------------------------------------------------------------------------------------------

    def recalled(self, table: str) -> Any:
        """The remembered value of a table; ``None`` where there is none."""
        return self._remembered.get(table)

    def remember(self, table: str, value: Any) -> None:
        """Remember a value for a table; the next :meth:`save` writes it."""
        if self._remembered.get(table) != value:
            self._remembered[table] = value
            self._changed.add(table)

    def _accessors(self) -> list[Any]:
        """The state store of each asset that this trigger serves.

        Airflow runs equal triggers of several assets as one. Its accessors want an asset as a subscript, and a trigger is never
        told its assets, so the private table of accessors is the only list of them. Where an Airflow release has no such table,
        the accessors themselves serve a trigger of a single asset.
        """
        stores = self.asset_state_store
        if stores is None:
            return []
        return list(getattr(stores, "_by_name", {}).values()) or [stores]

    async def _recall(self) -> None:
        """Read what earlier watchers of these assets have saved; waits until the state store answers."""
        if self.asset_state_store is None:
            log.warning(
                "Airflow gave this watcher no state store, so a restart of the triggerer loses its place."
            )
            return
        shards = {shard_of(uri) for uri in self.tables}
        if any(uri.endswith("/*") for uri in self.tables):
            shards = set(range(SHARDS))
        while True:
            try:
                for accessor in self._accessors():
                    # For an asset that is not active yet, Airflow reads nothing without an error, but refuses to write. So
                    # "nothing found" counts only after a write that worked.
                    await accessor.aset(f"{self.state_prefix}.watched", value=True)
                    self._is_first_run &= await accessor.aget(f"{self.state_prefix}.started") is None
                    for shard in sorted(shards):
                        self._take(await accessor.aget(shard_key(self.state_prefix, shard)) or {})
            except Exception as error:  # noqa: BLE001 - a state store may raise anything
                self._complain("The place of a watcher is not there yet", error)
                await asyncio.sleep(min(self.poll_interval, _MOST_SECONDS_BETWEEN_RECALLS))
            else:
                return

    def _take(self, places: dict[str, Any]) -> None:
        for uri, value in places.items():
            known = self._remembered.get(uri)
            self._remembered[uri] = value if known is None else self.earlier(known, value)

    def earlier(self, one: Any, other: Any) -> Any:
        """The one of two remembered values that repeats events rather than loses some."""
        return min(one, other)

    async def save(self) -> None:
        """Write what has changed to the state store of each asset.

        Other tables of an entry may belong to another watcher of the same asset, and stay as they are in the store.

        :raises Exception: the state store failed; the next call writes what this one could not.
        """
        async with _writing_places():
            changed, self._changed = self._changed, set()
            of_shards: dict[int, dict[str, Any]] = {}
            for table in sorted(changed):
                of_shards.setdefault(shard_of(table), {})[table] = self._remembered[table]
            try:
                for accessor in self._accessors():
                    for shard, places in sorted(of_shards.items()):
                        key = shard_key(self.state_prefix, shard)
                        await accessor.aset(key, {**(await accessor.aget(key) or {}), **places})
                    if self._is_first_run:
                        await accessor.aset(f"{self.state_prefix}.started", value=True)
            except BaseException:
                self._changed |= changed
                raise
            self._is_first_run = False
