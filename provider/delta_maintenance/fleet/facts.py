"""What a survey knows about the tables of a fleet."""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from delta_maintenance.contract import ErrorReport
from delta_maintenance.health.facts import HealthFacts


class SurveyedTable(Struct, frozen=True, tag="read"):
    """A table that could be read.

    :param table: address, as discovery found it.
    :param seen_ms: the last moment at which a survey found that `facts` describe the newest version.
    :param facts: facts of the newest version, read at ``facts.measured_ms``.
    :param properties: properties of the table in this version.
    :param partition_columns: logical names of the columns by which the table is partitioned.
    """

    table: str
    seen_ms: int
    facts: HealthFacts
    properties: Mapping[str, str] = {}
    partition_columns: tuple[str, ...] = ()


class UnreadTable(Struct, frozen=True, tag="unread"):
    """A table, or a place where one was expected, that could not be read.

    :param table: address, as discovery found it.
    :param seen_ms: time of the attempt.
    """

    table: str
    seen_ms: int
    error: ErrorReport
