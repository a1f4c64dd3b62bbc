"""What tasks have reported of all tables, and what watchers remember of them: what queries hand to readers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from airflow_delta.monitoring.fleet import TableRecords
from airflow_delta.monitoring.record import Source


@dataclass(frozen=True, slots=True)
class BrokenRecord:
    """An entry of a state store that has the key of a record, and is none."""

    time_ms: int
    source: Source
    why: str


@dataclass(frozen=True, slots=True, eq=False)
class ReportedState:
    """It never changes; with news comes another one, whose tables without news are the same objects.

    :param tables: records by :func:`~airflow_delta.monitoring.record.table_id`.
    :param dags: DAGs that have reported of a table.
    """

    tables: Mapping[str, TableRecords] = field(default_factory=dict)
    broken: Sequence[BrokenRecord] = ()
    dags: frozenset[str] = frozenset()
