"""The tables of the corpus as one fleet: found, surveyed, and surveyed again."""

from __future__ import annotations

from collections import Counter

import pytest
from msgspec.structs import replace
from tests.support.environment.corpus import Corpus

from delta_log import DeltaLogError, Table
from delta_log.runtime import Runtime
from delta_log.storage.local.local_storage import LocalStorage
from delta_log.storage.storage import Storage
from delta_log.testing import FaultyStorage
from delta_maintenance.fleet.discovery import FoundTable, discover
from delta_maintenance.fleet.survey import Survey, survey
from delta_maintenance.fleet.survey_memory import SurveyMemory
from delta_maintenance.health.facts import HealthFacts, PlannedRewrite
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.health.reading import read_health

NOW_MS = 1_800_000_000_000
OPTIONS = HealthOptions(compact_log=True)


def test_a_survey_reads_each_table_as_health_does_and_the_next_one_asks_once_a_table(corpus: Corpus) -> None:
    found = discover([f"{corpus}/**"])
    assert not found.unlisted
    assert not found.without_tables
    assert {table.table for table in found.tables} == {
        str(log.parent) for log in corpus.rglob("_delta_log") if log.is_dir()
    }
    first, _ = surveyed(found.tables, None)
    unread = {one.table: one.error.type for one in first.unread}
    read = {one.table: one.facts for one in first.tables}
    assert len(read) >= 80
    for table in found.tables:
        if table.table in read:
            expected = read_health(Table(table.location), OPTIONS, NOW_MS)
            assert read[table.table] == slim(expected), table.table
        else:
            with pytest.raises(DeltaLogError) as refused:
                read_health(Table(table.location), OPTIONS, NOW_MS)
            assert unread[table.table] == type(refused.value).__name__
    second, calls = surveyed([table for table in found.tables if table.table in read], first.memory)
    assert second.tables == first.tables
    assert second.num_read == 0
    assert set(calls.values()) == {1}


def surveyed(
    tables: list[FoundTable] | tuple[FoundTable, ...], memory: SurveyMemory | None
) -> tuple[Survey, Counter[str]]:
    """A survey, and how many calls it made for each table."""
    calls: Counter[str] = Counter()

    def opened(address: str) -> Storage:
        return FaultyStorage(LocalStorage(address), lambda name, key: calls.update([address]))

    return (
        survey(
            tables,
            lambda address, properties: OPTIONS,
            memory,
            runtime=Runtime(now_ms=lambda: NOW_MS),
            open_table=opened,
        ),
        calls,
    )


def slim(facts: HealthFacts) -> HealthFacts:
    """The facts without what a survey leaves out."""

    def without(rewrite: PlannedRewrite | None) -> PlannedRewrite | None:
        return rewrite and replace(rewrite, merged_by_partition={})

    files = facts.files
    layout = files.layout and replace(files.layout, rewrite=without(files.layout.rewrite))
    return replace(
        facts,
        files=replace(files, optimize=without(files.optimize), purge=without(files.purge), layout=layout),
    )
