"""What a notifier knows of a table from earlier runs: XComs of its task, with a key for each table.

Airflow deletes the XComs of a task instance when that is cleared or tried again, so what a try left that does not count any more is
forgotten, too. A table is found by its address: the map index of a mapped task may be another one in each run.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from airflow_delta.monitoring.record import table_id

if TYPE_CHECKING:
    from airflow.sdk import Context

log = logging.getLogger(__name__)


class Memory:
    """A number that a notifier keeps for each table.

    :param name: name of the kind of notifier.
    """

    def __init__(self, name: str) -> None:
        self._name = name

    def recall(self, context: Context, table: str) -> int:
        """The number that was kept last, by this run or an earlier one; 0 if there is none, or if Airflow does not tell it."""
        try:
            found = context["ti"].xcom_pull(key=self._key(table), include_prior_dates=True)
        except Exception:
            # Telling twice is better than not at all.
            log.warning("Airflow does not tell what earlier runs kept for the notifier.", exc_info=True)
            return 0
        kept = [one for one in (found if isinstance(found, list) else [found]) if isinstance(one, Mapping)]
        newest = max(kept, key=lambda one: one.get("time_ms") or 0, default={"number": 0})
        number = newest.get("number")
        return number if isinstance(number, int) else 0

    def keep(self, context: Context, table: str, number: int) -> None:
        value: Any = {"number": number, "time_ms": time.time_ns() // 1_000_000}
        try:
            context["ti"].xcom_push(key=self._key(table), value=value)
        except Exception:
            # A DAG processor, which notifies of tasks that were killed, may not write XComs.
            log.warning(
                "The next run will not know of this one: its XCom could not be written.", exc_info=True
            )

    def _key(self, table: str) -> str:
        return f"delta_{self._name}.{table_id(table)}"
