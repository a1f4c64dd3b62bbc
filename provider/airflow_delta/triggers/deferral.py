"""The first seconds of a deferral, in which an event would cost the task its try.

The process of a deferred task ends seconds after the deferral. If the task runs again when Airflow's scheduler hears of that end, the
scheduler takes it for the end of the task (``SchedulerJobRunner.process_executor_events``, Airflow 3.3), and fails the task, or sends it
into its next try. So a trigger that has something to tell at once waits for a moment.
"""

from __future__ import annotations

import asyncio
import time

#: Longer than a process takes to end on a busy worker, and the scheduler to hear of it.
SECONDS_TO_SETTLE = 10.0


class Deferral:
    """The deferral that a trigger serves; made when the trigger begins to run."""

    def __init__(self) -> None:
        self._began = time.monotonic()

    async def settled(self) -> None:
        """Return when the task may be woken."""
        await asyncio.sleep(max(0.0, self._began + SECONDS_TO_SETTLE - time.monotonic()))
