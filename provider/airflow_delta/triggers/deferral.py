"""The first seconds of a deferral, in which an event would cost the task its try.

The process of a deferred task ends seconds after the deferral. If the task runs again when Airflow's scheduler hears of that end, the
scheduler takes it for the end of the task (``SchedulerJobRunner.process_executor_events``, Airflow 3.3), and fails the task, or sends it
into its next try. So a trigger that has something to tell at once waits for a moment.
"""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

from airflow.sdk.configuration import conf

_SECTION, _OPTION = "delta", "deferral_settle_seconds"
#: Longer than a process takes to end on a busy worker, and the scheduler to hear of it.
_DEFAULT_SECONDS = 10.0
#: For a look after that.
_SECONDS_OF_A_LOOK = 5.0


def settle_seconds() -> float:
    """How long a trigger that has something to tell waits from the beginning of the deferral on, in seconds."""
    return float(conf.getfloat(_SECTION, _OPTION, fallback=_DEFAULT_SECONDS))


def deferral_timeout(seconds: float) -> timedelta:
    """The timeout of a deferral that should end in so many seconds.

    It is long enough for a trigger that finds at once what the task waits for: the event comes after :func:`settle_seconds`.
    """
    return timedelta(seconds=max(seconds, settle_seconds() + _SECONDS_OF_A_LOOK))


class Deferral:
    """The deferral that a trigger serves; made when the trigger begins to run."""

    def __init__(self) -> None:
        self._settled = time.monotonic() + settle_seconds()

    async def settled(self) -> None:
        """Return when the task may be woken."""
        await asyncio.sleep(max(0.0, self._settled - time.monotonic()))
