"""Trigger for new versions of a table; for assets (``AssetWatcher``), and for :class:`~airflow_delta.sensors.DeltaTableVersionSensor`."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from airflow.triggers.base import TriggerEvent

from airflow_delta import watch_memory
from airflow_delta.triggers.deferral import Deferral
from airflow_delta.triggers.table_event_trigger import TableEventTrigger
from delta_log.printable import printable_logger

if TYPE_CHECKING:
    from airflow_delta.triggers.table_stream import WatchedTable
    from airflow_delta.triggers.table_wait import TableWait
    from delta_log.tail.commit_follower import CommitFollower
    from delta_log.tail.commit_summary import CommitFilter, CommitSummary
    from delta_log.tail.version_range import Awaited, Place, Progress

log = printable_logger(__name__)

_MAX_COMMITS = 500


class DeltaTableVersionTrigger(TableEventTrigger):
    """Fires when commits have come to a table, with the range of versions.

    With ``Asset(…, watchers=[AssetWatcher(name=…, trigger=DeltaTableVersionTrigger(…))])``, a DAG that is scheduled on
    the asset runs when data has arrived. The ranges of a table's events follow each other without a gap, in order; after
    a crash of the triggerer one may come twice, with the same first version.

    :param start_from: place to start from when nothing is remembered: ``latest``, ``earliest`` or a version.
    :param data_change_only: switch to wait for changes of data, not for maintenance.
    :param operations: names of the only operations that count, such as ``["WRITE", "MERGE"]``.
    :param partitions: raw value or values for each column of the partitions that a commit must touch to count.
    :param min_rows: number of rows that the commits must have together.
    :param baseline: version after which a sensor looks. The parameters below are for a sensor, too.
    :param awaited: further conditions on a commit: ``version``, ``newer_than_ms``, ``transaction``.
    :param on_cleaned: ``fail`` or ``continue`` where commits were deleted before they were read.

    Further parameters: :class:`~airflow_delta.triggers.table_event_trigger.TableEventTrigger`.
    """

    state_prefix = watch_memory.VERSIONS

    def __init__(  # noqa: PLR0913 - each is an option of its own, by keyword
        self,
        table: str | Sequence[str],
        delta_conn_id: str | None = None,
        poll_interval: float = 30.0,
        *,
        start_from: int | str = "latest",
        data_change_only: bool = True,
        operations: Sequence[str] | None = None,
        partitions: Mapping[str, Any] | None = None,
        min_rows: int = 0,
        baseline: int | None = None,
        awaited: Mapping[str, Any] | None = None,
        on_cleaned: str = "fail",
        queue: str | None = None,
    ) -> None:
        super().__init__(table, delta_conn_id, poll_interval, queue=queue)
        if start_from not in ("latest", "earliest") and not isinstance(start_from, int):
            raise ValueError(f"start_from={start_from!r} is neither latest, earliest nor a version.")
        self.start_from = start_from
        self.data_change_only = data_change_only
        self.operations = operations
        self.partitions = partitions
        self.min_rows = min_rows
        self.baseline = baseline
        self.awaited = awaited
        self.on_cleaned = on_cleaned
        self._progress: dict[str, tuple[Progress, int]] = {}
        #: By table: the place up to which Airflow has stored all events; the last versions of the ranges that it may not have
        #: stored yet; and the ones among these that an earlier watcher has told.
        self._places: dict[str, Place] = {}
        self._pending: dict[str, list[int]] = {}
        self._untold: dict[str, list[int]] = {}
        #: By table: how often it had been made anew when it was seen last.
        self._lives: dict[str, int] = {}

    def serialize(self) -> tuple[str, dict[str, Any]]:
        path, kwargs = super().serialize()
        more = {
            "start_from": self.start_from,
            "data_change_only": self.data_change_only,
            "operations": list(self.operations) if self.operations is not None else None,
            "partitions": dict(self.partitions) if self.partitions is not None else None,
            "min_rows": self.min_rows,
            "baseline": self.baseline,
            "awaited": dict(self.awaited) if self.awaited is not None else None,
            "on_cleaned": self.on_cleaned,
        }
        return path, {**kwargs, **more}

    def _filter(self) -> CommitFilter:
        from delta_log.tail.commit_summary import CommitFilter

        return CommitFilter.of(
            data_change_only=self.data_change_only,
            operations=self.operations,
            partitions=self.partitions,
            min_rows=self.min_rows,
        )

    # -- for an asset --------------------------------------------------------------------------------------------

    async def tell(self, table: WatchedTable, latest: int, deadline: float) -> AsyncIterator[dict[str, Any]]:
        from delta_log.tail.version_range import Place, Progress

        uri = table.uri
        progress, position = self._progress.get(uri) or await self._start(table, latest)
        if await self._is_replaced(table, latest, position):
            log.warning("%s ends before version %d: it was made anew.", uri, position)
            progress, position = Progress(Place.after(-1)), -1
            self._places[uri], self._untold[uri], self._pending[uri] = progress.place, [], []
        self._lives[uri] = table.lives
        self._progress[uri] = progress, position
        self.outcome(uri, progress.place)
        while position < latest:
            untold = self._untold[uri]
            progress, position, commits = await self._read_on(
                table, progress, position, untold[0] if untold else None
            )
            progress, told = progress.with_commits(commits, self._filter())
            if told is None and untold and position == untold[0]:
                # The log has lost what an earlier watcher told, or was about to tell.
                progress, told = progress.closed(position)
            if told is not None:
                # Saved before the event is sent, so that the same range is told after a crash.
                if not untold:
                    self._pending[uri].append(told.last)
                self.remember(uri, self._kept(uri))
                await self.save()
                yield {**told.to_dict(uri), "repeated": bool(untold)}
            del untold[:1]
            self._progress[uri] = progress, position
            self.outcome(uri, progress.place)
            if not (commits or told) or time.monotonic() > deadline:
                break

    def settled(self, table: str, outcome: Any) -> list[int]:
        self._places[table] = outcome
        self._pending[table] = [last for last in self._pending[table] if last > outcome.told]
        return self._kept(table)

    def _kept(self, table: str) -> list[int]:
        """A place, and the last versions of the ranges after it that Airflow may not have stored yet."""
        place = self._places[table]
        return [place.told, place.seen, *self._pending[table]]

    async def _is_replaced(self, table: WatchedTable, latest: int, position: int) -> bool:
        """Whether the place belongs to the log of another table, which had this address before."""
        from delta_log.errors import LogCleaned, LogReplaced
        from delta_log.tail.commit_follower import CommitFollower

        life = self._lives.get(table.uri)
        if life is not None or latest >= position:
            # A watcher reads to the end of the log, which may be ahead of the stream.
            return life is not None and life != table.lives
        storage = await self.store.run(self.store.open, table.uri)
        try:
            await self.store.run(CommitFollower(storage, position).poll, 1)
        except LogReplaced:
            return True
        except LogCleaned:
            return False
        return False

    def is_behind(self, table: str, latest: int) -> bool:
        return self._progress[table][1] < latest

    async def _start(self, table: WatchedTable, latest: int) -> tuple[Progress, int]:
        from delta_log.tail.version_range import Place, Progress

        known = self.recalled(table.uri)
        if known is not None:
            told, seen, *pending = known
            place = Place(told, seen)
        else:
            place, pending = Place.after(await self._first_position(table, latest)), []
        self._places[table.uri] = place
        self._pending[table.uri], self._untold[table.uri] = list(pending), list(pending)
        return Progress(place), place.seen

    async def _first_position(self, table: WatchedTable, latest: int) -> int:
        from delta_log.tail.commit_follower import start_position

        # A table that appears below a prefix is new as a whole.
        if table.appeared or (not self._is_first_run and table.uri not in self.tables):
            return -1
        if self.start_from == "latest":
            return latest
        storage = await self.store.run(self.store.open, table.uri)
        return await self.store.run(start_position, storage, self.start_from)

    async def _read_on(
        self, table: WatchedTable, progress: Progress, position: int, telling: int | None
    ) -> tuple[Progress, int, list[CommitSummary]]:
        """Read further commits; there are none only if the log changed meanwhile.

        :param telling: version up to which exactly to read.
        """
        from delta_log.errors import LogCleaned
        from delta_log.tail.commit_follower import CommitFollower

        commits = table.known_after(position) if telling is None else []
        if not commits:
            storage = await self.store.run(self.store.open, table.uri)
            try:
                commits = await self.store.run(_commits_to, CommitFollower(storage, position), telling)
            except LogCleaned as cleaned:
                log.warning("%s", cleaned)
                gone = cleaned.earliest - 1 if telling is None else min(telling, cleaned.earliest - 1)
                progress = progress.without(position + 1, gone)
                position = gone
                if position == telling:
                    return progress, position, []
                commits = await self.store.run(_commits_to, CommitFollower(storage, position), telling)
        return progress, commits[-1].version if commits else position, commits

    # -- for a task ----------------------------------------------------------------------------------------------

    def wait(self) -> TableWait:
        """The waiting itself; a sensor that is not deferred uses it in its task."""
        from airflow_delta.triggers.table_wait import TableWait

        return TableWait(
            self.tables[0],
            self.store,
            baseline=self.baseline if self.baseline is not None else -1,
            commit_filter=self._filter,
            awaited=self._awaited,
            on_cleaned=self.on_cleaned,
        )

    async def run(self) -> AsyncIterator[TriggerEvent]:
        wait, deferral = self.wait(), Deferral()
        while True:
            outcome = await self.store.run(wait.look)
            if outcome is not None:
                await deferral.settled()
                yield TriggerEvent(outcome)  # type: ignore[no-untyped-call]
                return
            await asyncio.sleep(wait.seconds(self.poll_interval, random.random()))  # noqa: S311

    def _awaited(self) -> Awaited | None:
        from delta_log.tail.version_range import Awaited

        if not self.awaited:
            return None
        transaction = self.awaited.get("transaction")
        return Awaited(
            version=self.awaited.get("version"),
            newer_than_ms=self.awaited.get("newer_than_ms"),
            transaction=(transaction[0], transaction[1]) if transaction else None,
        )


def _commits_to(tail: CommitFollower, last: int | None) -> list[CommitSummary]:
    """Some commits, or all commits up to a version if one is given."""
    if last is None:
        return tail.poll()
    found: list[CommitSummary] = []
    while tail.position < last:
        more = tail.poll(min(_MAX_COMMITS, last - tail.position))
        if not more:
            break
        found += more
    return found
