"""The status of a table as a number, for gauges and notifiers: the greater, the more urgent."""

from __future__ import annotations

from collections.abc import Mapping

#: Part of the metrics' contract: alerts compare with these numbers.
STATUS_NUMBERS: Mapping[str, int] = {"healthy": 0, "unsupported": 1, "attention": 2, "critical": 3}
