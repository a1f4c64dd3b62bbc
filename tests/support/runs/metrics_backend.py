"""A backend of Airflow's metrics that remembers what it is sent."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest


class Recorder:
    """
    :param fault: raised instead of remembering.
    """

    def __init__(self, fault: Exception | None = None) -> None:
        self.sent: list[tuple[str, str, float, dict[str, str]]] = []
        self._fault = fault

    def incr(self, stat: str, count: int = 1, *, tags: dict[str, str]) -> None:
        self._note("counter", stat, count, tags)

    def timing(self, stat: str, dt: float, *, tags: dict[str, str]) -> None:
        self._note("timer", stat, dt, tags)

    def gauge(self, stat: str, value: float, *, tags: dict[str, str] | None = None) -> None:
        self._note("gauge", stat, value, tags or {})

    def _note(self, kind: str, stat: str, value: float, tags: dict[str, str]) -> None:
        if self._fault is not None:
            raise self._fault
        self.sent.append((kind, stat, value, tags))

    def gauges(self) -> dict[str, float]:
        """The last value of each gauge by its name."""
        return {stat: value for kind, stat, value, _ in self.sent if kind == "gauge"}


@pytest.fixture
def send_metrics_to() -> Iterator[Callable[[Any], None]]:
    """Makes something the backend of Airflow's metrics for the length of a test."""
    from airflow.sdk._shared.observability.metrics.base_stats_logger import NoStatsLogger
    from airflow.sdk.observability import stats

    yield lambda backend: stats.initialize(factory=lambda: backend, export_legacy_names=True)
    stats.initialize(factory=NoStatsLogger, export_legacy_names=False)
