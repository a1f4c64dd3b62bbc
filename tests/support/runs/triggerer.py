"""The part of Airflow's triggerer that runs a watcher, around Airflow's own manager of shared streams."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Self

from airflow.triggers.shared_stream import SharedStreamManager

from airflow_delta.testing import FakeAssetStateStore
from airflow_delta.triggers.table_event_trigger import TableEventTrigger

_PATIENCE_SECONDS = 20.0


def in_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """A test that is a coroutine."""

    @functools.wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        async def story() -> None:
            await test(*arguments, **fixtures)

        asyncio.run(story())

    return run


class Triggerer:
    """Runs one watcher until its block ends, or :meth:`crash`.

    :param stores: of the assets that the trigger serves.
    :param manager: of another triggerer, whose stream is then shared.
    """

    def __init__(
        self,
        trigger: TableEventTrigger,
        *stores: FakeAssetStateStore,
        manager: SharedStreamManager | None = None,
        trigger_id: int = 1,
    ) -> None:
        self.trigger, self.trigger_id = trigger, trigger_id
        # There is no scheduler that would need time.
        trigger.seconds_between_events = 0.0  # type: ignore[misc]
        # No DAG is paused.
        trigger.seconds_until_settled = 0.0  # type: ignore[misc]
        trigger.asset_state_store = _Assets(stores) if stores else None  # type: ignore[assignment]
        self.manager = manager or SharedStreamManager(ack_timeout=60)
        #: All that the events have told.
        self.events: list[dict[str, Any]] = []
        #: Airflow's database takes events.
        self.persists = True
        self._unconfirmed: list[int] = []

    async def __aenter__(self) -> Self:
        self._key = self.trigger.shared_stream_key()
        stream = self.manager.subscribe(trigger_id=self.trigger_id, trigger=self.trigger, key=self._key)
        self._task = asyncio.create_task(self._run(stream))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.crash()

    async def crash(self) -> None:
        """What Airflow has not stored by now, it never will."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self.manager.unsubscribe(self.trigger_id, self._key)

    async def _run(self, stream: Any) -> None:
        async for event in self.trigger.filter_shared_stream(stream):
            seq = self.manager.bind_pending_event(trigger_id=self.trigger_id, key=self._key)
            assert seq is not None, "an event that no round stands behind would be lost by a crash"
            self.events += event.payload["found"]
            self._unconfirmed.append(seq)
            self.confirm()

    def confirm(self) -> None:
        if self.persists:
            self.manager.confirm_persisted(self._unconfirmed)
            self._unconfirmed = []

    async def until(self, number: int) -> list[dict[str, Any]]:
        """The events, when there are so many."""
        await self.wait_for(lambda: len(self.events) >= number)
        return self.events

    async def wait_for(self, condition: Any) -> None:
        deadline = asyncio.get_running_loop().time() + _PATIENCE_SECONDS
        while not condition():
            if self._task.done():
                self._task.result()
            assert asyncio.get_running_loop().time() < deadline, f"events: {self.events}"
            await asyncio.sleep(0.01)


class _Assets:
    def __init__(self, stores: tuple[FakeAssetStateStore, ...]) -> None:
        self._by_name = {f"asset {number}": store for number, store in enumerate(stores)}
