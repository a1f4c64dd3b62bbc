"""A stream of news about some tables, which asks the store once for all triggers that watch the same tables.

Airflow runs one stream for all watchers with the same :data:`StreamKey`. The stream says only *that* a table has reached a
version. Each watcher has a place of its own and reads the commits in between, mostly from what the stream has just read. When
Airflow has stored the events of a round, it tells the stream, and only then do the watchers save their places. Therefore a crash
may repeat events, but loses none.

No two triggers make the same request, and no request runs in the triggerer's loop. A store that fails is asked again less and
less often; the log has one line when the failure begins and one when it is over.
"""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

from airflow.triggers.shared_stream import AdvanceItem, SharedStreamProducer
from msgspec import Struct

from airflow_delta.hooks.watched_store import WatchedStore, watched_store
from delta_log.printable import printable_logger

if TYPE_CHECKING:
    from delta_log.storage.storage import Storage
    from delta_log.tail.commit_follower import CommitFollower
    from delta_log.tail.commit_summary import CommitSummary

log = printable_logger(__name__)

#: Tables as they were given, connection, and seconds between two looks.
StreamKey = tuple[tuple[str, ...], str | None, float]
#: Polls of one stream that wait for a thread or an answer.
_MAX_IN_FLIGHT = 32
#: How often a prefix is searched for new tables, at least.
_SEARCH_SECONDS = 300.0
_RETRY_SECONDS = 10.0
_TOLD_TOGETHER = 200
#: Commits of a table that are kept for its watchers.
_MAX_RECENT = 500

Save = Callable[[], Awaitable[None]]


class Round(Struct, eq=False):
    """Some tables, and the versions that they have reached.

    :param latest: versions that the tables have reached; -1: there is no table (yet).
    :param saves: functions of the watchers that are called when the events of this round are stored.
    """

    latest: dict[str, int]
    saves: list[Save] = []


class WatchedTable(Struct, eq=False):
    """One table of a stream; polled by one thread at a time."""

    uri: str
    store: WatchedStore
    #: Found by a later search of a prefix, not by the first one.
    appeared: bool = False
    failures: int = 0
    #: The store refused its client; the next poll takes another one.
    refused: bool = False
    tail: CommitFollower | None = None
    #: How often the table was found to be another one under the same address.
    lives: int = 0
    #: Replaced as a whole: watchers read it while a thread polls.
    recent: tuple[CommitSummary, ...] = ()

    def poll(self) -> bool:
        """Look for new commits; returns whether there is news. Blocks."""
        from delta_log.errors import LogCleaned, LogReplaced
        from delta_log.tail.commit_follower import CommitFollower

        if self.tail is None:
            self.tail = CommitFollower.at_latest(self.store.open(self.uri))
            return True
        if self.refused:
            self.tail.storage, self.refused = self.store.open(self.uri), False
        self.tail.storage = self.store.follow(self.uri, self.tail.storage)
        try:
            found = self.tail.poll()
        except LogCleaned as cleaned:
            self.tail.skip_to(cleaned.earliest - 1)
            self.recent = ()
            found = self.tail.poll()
        except LogReplaced as replaced:
            self.tail.skip_to(replaced.latest)
            self.recent = ()
            self.lives += 1
            return True
        self.recent = (*self.recent, *found)[-_MAX_RECENT:]
        return bool(found)

    @property
    def latest(self) -> int:
        return -1 if self.tail is None else self.tail.position

    def known_after(self, version: int) -> list[CommitSummary]:
        """The commits after a version, if the stream has just read them; else empty."""
        known = self.recent
        if not known or known[0].version > version + 1:
            return []
        return [commit for commit in known if commit.version > version]


class TableStream(SharedStreamProducer):
    """Polls its tables and tells all watchers of a key about news.

    :param tables: addresses; one that ends with ``/*`` stands for all tables directly below.
    """

    def __init__(self, tables: Sequence[str], delta_conn_id: str | None, poll_interval: float) -> None:
        self.key: StreamKey = (tuple(tables), delta_conn_id, poll_interval)
        self.store = watched_store(delta_conn_id)
        self.poll_interval = poll_interval
        self.tables: dict[str, WatchedTable] = {}
        self._prefixes = [uri[:-2] for uri in tables if uri.endswith("/*")]
        for uri in tables:
            if not uri.endswith("/*"):
                self._add(uri)
        self._due: list[tuple[float, int, WatchedTable | None]] = []
        self._number = 0
        self._announced: set[str] = set()
        self._woken = asyncio.Event()
        self._troubled: dict[str, str] = {}
        self._searched = False

    def _add(self, uri: str, *, appeared: bool = False) -> WatchedTable:
        table = self.tables[uri] = WatchedTable(uri, self.store, appeared)
        return table

    def announce(self, tables: Sequence[str] | None = None) -> None:
        """Tell watchers about these tables (default: all that are known) though nothing may be new."""
        self._announced.update(self.tables if tables is None else tables)
        self._woken.set()

    def announce_later(self, tables: Sequence[str]) -> None:
        """Announce tables after a while, for a failure that may be over by then."""
        asyncio.get_running_loop().call_later(_RETRY_SECONDS, self.announce, tables)

    async def open_stream(self) -> AsyncIterator[tuple[Round, Round]]:
        streams[self.key] = self
        start = time.monotonic()
        for table in self.tables.values():
            self._schedule(start, table)
        if self._prefixes:
            self._schedule(start, None)
        in_flight: dict[asyncio.Future[Any], WatchedTable | None] = {}
        news: set[str] = set()
        try:
            while True:
                self._begin(in_flight)
                await self._wait(in_flight)
                news |= self._collect(in_flight)
                # When very many tables are due, as at the beginning, some are told together.
                if self._is_busy(in_flight) and len(news) < _TOLD_TOGETHER:
                    continue
                if self._announced:
                    news |= {uri for uri in self._announced if uri in self.tables and self.tables[uri].tail}
                    self._announced.clear()
                if news:
                    found = Round({uri: self.tables[uri].latest for uri in sorted(news)})
                    news = set()
                    yield found, found
        finally:
            for future in in_flight:
                future.cancel()

    def _is_busy(self, in_flight: dict[asyncio.Future[Any], WatchedTable | None]) -> bool:
        return (
            len(in_flight) >= _MAX_IN_FLIGHT - 1 and bool(self._due) and self._due[0][0] <= time.monotonic()
        )

    async def advance(self, batch: Sequence[AdvanceItem]) -> None:
        """Have watchers save their places, since the events of these rounds are stored."""
        for item in batch:
            if item.outcome.failed:
                continue
            for save in item.broker_payload.saves:
                try:
                    await save()
                except Exception:
                    log.warning("The place of a watcher could not be kept; trying again.", exc_info=True)
                    self.announce_later(list(item.broker_payload.latest))

    async def aclose(self) -> None:
        if streams.get(self.key) is self:
            del streams[self.key]

    # -- the schedule --------------------------------------------------------------------------------------------

    def _schedule(self, due: float, table: WatchedTable | None) -> None:
        """Note when to poll a table, or, for ``None``, when to search the prefixes."""
        self._number += 1
        heapq.heappush(self._due, (due, self._number, table))

    def _begin(self, in_flight: dict[asyncio.Future[Any], WatchedTable | None]) -> None:
        now = time.monotonic()
        while self._due and self._due[0][0] <= now and len(in_flight) < _MAX_IN_FLIGHT:
            _, _, table = heapq.heappop(self._due)
            work = self.store.submit(self._search) if table is None else self.store.submit(table.poll)
            in_flight[asyncio.wrap_future(work)] = table

    async def _wait(self, in_flight: dict[asyncio.Future[Any], WatchedTable | None]) -> None:
        """Wait for an answer, for the next table that is due, or for a watcher."""
        until_due = max(0.0, self._due[0][0] - time.monotonic()) if self._due else None
        if len(in_flight) >= _MAX_IN_FLIGHT:
            until_due = None
        woken = asyncio.ensure_future(self._woken.wait())
        try:
            await asyncio.wait({*in_flight, woken}, timeout=until_due, return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
        self._woken.clear()

    def _collect(self, in_flight: dict[asyncio.Future[Any], WatchedTable | None]) -> set[str]:
        """Take the answers that have come; returns the tables with news."""
        news: set[str] = set()
        now = time.monotonic()
        for future in [future for future in in_flight if future.done()]:
            table = in_flight.pop(future)
            error = future.exception()
            if table is None:
                self._take_search([] if error else future.result(), error)
                self._schedule(now + max(_SEARCH_SECONDS, self.poll_interval), None)
                continue
            if error is None and future.result():
                news.add(table.uri)
            self._note(table, error)
            self._schedule(now + self._wait_seconds(table), table)
        return news

    def _wait_seconds(self, table: WatchedTable) -> float:
        from delta_log.tail.commit_follower import wait_seconds

        return wait_seconds(self.poll_interval, table.failures, random.random())  # noqa: S311

    def _note(self, table: WatchedTable, error: BaseException | None) -> None:
        """Log one line when a kind of error begins, on any number of tables, and one when it is over."""
        from delta_log.errors import AccessDenied

        if error is None:
            if table.failures:
                table.failures = 0
                self._troubled.pop(table.uri, None)
                if not self._troubled:
                    log.info("All tables of %s answer again.", self._name)
            return
        table.failures += 1
        kind = type(error).__name__
        if kind not in self._troubled.values():
            log.warning("%s Trying again, less and less often.", error)
        self._troubled[table.uri] = kind
        if isinstance(error, AccessDenied):
            # The next poll opens a client with what the connection says by then.
            self.store.forget_credentials()
            table.refused = True

    @property
    def _name(self) -> str:
        return f"connection {self.store.delta_conn_id!r}" if self.store.delta_conn_id else "the watcher"

    # -- tables below a prefix -----------------------------------------------------------------------------------

    def _search(self) -> list[str]:
        return [uri for prefix in self._prefixes for uri in tables_below(self.store.open(prefix))]

    def _take_search(self, found: Sequence[str], error: BaseException | None) -> None:
        if error is not None:
            log.warning("Searching for tables: %s", error)
            return
        for uri in found:
            if uri not in self.tables:
                self._schedule(time.monotonic(), self._add(uri, appeared=self._searched))
        self._searched = True


#: The streams of this process.
streams: dict[StreamKey, TableStream] = {}


def tables_below(storage: Storage) -> list[str]:
    """The addresses of the Delta tables directly below an address."""
    from delta_log.log.file_names import LOG_DIRECTORY

    found: list[str] = []

    def enter(directories: Sequence[str]) -> list[str]:
        found.extend(name.rstrip("/") for name in directories)
        return []

    for _ in storage.list_tree(enter):
        pass
    return [
        f"{storage.uri}/{name}"
        for name in sorted(set(found))
        if next(storage.list_from(f"{name}/{LOG_DIRECTORY}"), None) is not None
    ]
