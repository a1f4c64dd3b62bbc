"""The part of Airflow's triggerer that runs a watcher, built on Airflow's own manager of shared streams."""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Self

from airflow.triggers.shared_stream import SharedStreamManager

from airflow_delta.testing import FakeAssetStateStore
from airflow_delta.triggers.table_event_trigger import TableEventTrigger
from tests.support.environment.patience import PATIENCE_SECONDS

#: Far more than any wait takes: how long a test waits before it fails.


def in_a_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Runs a test that is a coroutine."""

    @functools.wraps(test)
    def run(*arguments: Any, **fixtures: Any) -> None:
        async def story() -> None:
            await test(*arguments, **fixtures)

        asyncio.run(story())

    return run


class Triggerer:
    """Runs one watcher until its block ends, or until :meth:`crash`.

    :param stores: the state stores of the assets that the trigger serves.
    :param manager: the manager of another triggerer, to share its stream.
    """

    def __init__(
        self,
        trigger: TableEventTrigger,
        *stores: FakeAssetStateStore,
        manager: SharedStreamManager | None = None,
        trigger_id: int = 1,
    ) -> None:
        self.trigger, self.trigger_id = trigger, trigger_id
        # A scheduler needs time between events; here is none.
        trigger.seconds_between_events = 0.0  # type: ignore[misc]
        # The pause of a DAG takes time to settle; here is no DAG.
        trigger.seconds_until_settled = 0.0  # type: ignore[misc]
        trigger.asset_state_store = _Assets(stores) if stores else None  # type: ignore[assignment]
        self.manager = manager or SharedStreamManager(ack_timeout=60)
        #: The ranges of all events, in order.
        self.events: list[dict[str, Any]] = []
        #: Whether Airflow's database stores the events.
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
        """Ends the watcher; events that are not stored by now are lost."""
        self._task.cancel()
        with suppress(asyncio.CancelledError):
            await self._task
        await self.manager.unsubscribe(self.trigger_id, self._key)

    async def _run(self, stream: Any) -> None:
        async for event in self.trigger.filter_shared_stream(stream):
            seq = self.manager.bind_pending_event(trigger_id=self.trigger_id, key=self._key)
            assert seq is not None, "an event without a pending round would be lost by a crash"
            self.events += event.payload["found"]
            self._unconfirmed.append(seq)
            self.confirm()

    def confirm(self) -> None:
        if self.persists:
            self.manager.confirm_persisted(self._unconfirmed)
            self._unconfirmed = []

    async def until(self, number: int) -> list[dict[str, Any]]:
        """Waits for this number of ranges and returns all."""
        await self.wait_for(lambda: len(self.events) >= number)
        return self.events

    async def wait_for(self, condition: Any) -> None:
        deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
        while not condition():
            if self._task.done():
                self._task.result()
            assert asyncio.get_running_loop().time() < deadline, f"events: {self.events}"
            await asyncio.sleep(0.01)


class _Assets:
    def __init__(self, stores: tuple[FakeAssetStateStore, ...]) -> None:
        self._by_name = {f"asset {number}": store for number, store in enumerate(stores)}
