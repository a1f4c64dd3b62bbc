"""The beginning of a record: as much of an event as tells which others it replaces, and two figures of which the fleet shows a trend.

Most events of the last days are older than another one of the same kind. They are not parsed in full.
"""

from __future__ import annotations

import msgspec

from airflow_delta.monitoring.fleet import TrendPoint


class _Report(msgspec.Struct):
    operation: str


class _Merge(msgspec.Struct, rename="camel"):
    num_files_to_merge: int | None = None


class _Facts(msgspec.Struct, rename="camel"):
    num_files: int | None = None
    optimize: _Merge | None = None


class _Reading(msgspec.Struct):
    facts: _Facts | None = None


class RecordHead(msgspec.Struct):
    """As much of an event as tells which others it replaces, and the figures of which the fleet shows a trend."""

    table: str
    kind: str
    report: _Report | None = None
    health: _Reading | None = None

    @property
    def operation(self) -> str:
        return self.kind if self.report is None else self.report.operation

    def trend_point(self, time_ms: int, dag_id: str) -> TrendPoint | None:
        """``None``: it is no reading of health."""
        facts = None if self.health is None else self.health.facts
        if facts is None:
            return None
        small = None if facts.optimize is None else facts.optimize.num_files_to_merge
        return TrendPoint(time_ms, dag_id, facts.num_files, small)


_DECODER = msgspec.json.Decoder(RecordHead)


def read_head(content: str | None) -> RecordHead | None:
    """
    :param content: JSON text of an event; ``None``: it has none.
    :return: ``None``: most likely it is no record.
    """
    try:
        return _DECODER.decode(content or "null")
    except msgspec.MsgspecError:
        return None
