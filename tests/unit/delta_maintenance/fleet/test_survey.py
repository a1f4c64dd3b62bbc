from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.tables.memory_lake import MemoryLake
from tests.support.tables.small_tables import write_days

from delta_log.errors import InvalidRequest
from delta_log.log.log_segment import find_log_segment
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.testing import MemoryStorage
from delta_log.testing.faulty_storage import TornListings
from delta_log.upkeep.log_inventory import list_everything
from delta_maintenance.contract import JobSpec
from delta_maintenance.fleet.discovery import FoundTable
from delta_maintenance.fleet.facts import SurveyedTable
from delta_maintenance.fleet.survey import REREAD_DAYS, Survey, is_to_be_read_again, survey
from delta_maintenance.fleet.survey_memory import SurveyMemory
from delta_maintenance.health.facts import FileFacts, FileTotal, HealthFacts, LogFacts, RemovedFiles
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.health.reading import read_facts
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.log_upkeep.plan.checkpoint import ReplayCost, plan_checkpoint
from delta_maintenance.progress import SilentProgress

HEAD = "s3://lake"
DAY_MS = 86_400_000
#: A moment at which no table of these tests is in the last days of its period.
NOW_MS = 1_800_000_000_000


def standard(address: str, properties: Mapping[str, str]) -> HealthOptions:
    return HealthOptions()


class Fleet:
    """Tables on a disk that are copied into a bucket in memory."""

    def __init__(self, directory: Path) -> None:
        self.directory, self.lake = directory, MemoryLake()
        self.names: list[str] = []

    def write(self, name: str, files: int = 3) -> None:
        write_days(self.directory / name, files=files)
        self.publish(name)

    def publish(self, name: str) -> None:
        self.names = list(dict.fromkeys((*self.names, name)))
        self.lake.put_table(f"{HEAD}/{name}", self.directory / name)

    def drop(self, name: str) -> None:
        prefix = f"{HEAD}/{name}/"
        self.lake.objects = {key: one for key, one in self.lake.objects.items() if not key.startswith(prefix)}

    def survey(
        self, memory: SurveyMemory | None = None, *, at_ms: int = NOW_MS, limits: Any = standard
    ) -> Survey:
        self.lake.calls = []
        tables = [FoundTable(f"{HEAD}/{name}", f"{HEAD}/{name}") for name in self.names]
        runtime = Runtime(now_ms=lambda: at_ms)
        # One thread asks in the same order each time.
        return survey(tables, limits, memory, threads=1, runtime=runtime, open_table=self.lake.open)

    def calls(self) -> Counter[str]:
        return Counter(address.removeprefix(f"{HEAD}/").partition("/")[0] for _, address in self.lake.calls)


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    made = Fleet(tmp_path)
    for name in ("a", "b", "c"):
        made.write(name)
    return made


def read_anew(fleet: Fleet, name: str, at_ms: int = NOW_MS) -> HealthFacts:
    storage = fleet.lake.open(f"{HEAD}/{name}")
    snapshot = Snapshot(storage, find_log_segment(storage))
    facts = read_facts(storage, snapshot, list_everything(storage), HealthOptions(), at_ms)
    assert facts.files.optimize is not None
    optimize = replace(facts.files.optimize, merged_by_partition={})
    return replace(facts, files=replace(facts.files, optimize=optimize))


def facts_of(found: Survey) -> dict[str, HealthFacts]:
    return {one.table.removeprefix(f"{HEAD}/"): one.facts for one in found.tables}


def optimize(table: Path) -> None:
    report = run_job(JobSpec("optimize", str(table), "run", {}, engine="local"), JobSite(), SilentProgress())
    assert report.error is None, report.error


def test_a_survey_reads_what_health_reads_and_the_next_one_asks_once_a_table(fleet: Fleet) -> None:
    first = fleet.survey()
    assert facts_of(first) == {name: read_anew(fleet, name) for name in fleet.names}
    assert (first.num_read, first.unread) == (3, ())
    assert first.tables[0].partition_columns == ("day",)
    second = fleet.survey(first.memory, at_ms=NOW_MS + 5)
    assert fleet.calls() == {"a": 1, "b": 1, "c": 1}
    assert second.num_read == 0
    assert second.tables == tuple(replace(one, seen_ms=NOW_MS + 5) for one in first.tables)


def test_of_a_table_with_news_older_commits_are_not_read_again(fleet: Fleet) -> None:
    first = fleet.survey()
    optimize(fleet.directory / "b")
    write_days(fleet.directory / "b", files=1)
    fleet.publish("b")
    second = fleet.survey(first.memory)
    reads = [address for name, address in fleet.lake.calls if name == "read"]
    listings = [address for name, address in fleet.lake.calls if name == "list_from"]
    assert second.num_read == 1
    assert facts_of(second) == {name: read_anew(fleet, name) for name in fleet.names}
    assert facts_of(second)["b"].last_runs["optimize"].version == 3
    assert listings == [f"{HEAD}/{name}/_delta_log" for name in fleet.names]
    assert sorted(reads) == [f"{HEAD}/b/_delta_log/{version:020}.json" for version in range(5)]


def test_infos_of_commits_before_the_checkpoint_are_kept(fleet: Fleet) -> None:
    first = fleet.survey()
    report = run_job(
        JobSpec("checkpoint", str(fleet.directory / "b"), "run", {}, engine="local"),
        JobSite(),
        SilentProgress(),
    )
    assert report.error is None
    fleet.publish("b")
    second = fleet.survey(first.memory)
    calls = [(name, address.rpartition("/")[2]) for name, address in fleet.lake.calls if "/b/" in address]
    assert calls == [("list_from", "_delta_log"), ("read", f"{2:020}.checkpoint.parquet")]
    assert facts_of(second)["b"] == read_anew(fleet, "b")


def test_a_table_that_was_made_anew_keeps_nothing_of_the_old_one(fleet: Fleet, tmp_path: Path) -> None:
    optimize(fleet.directory / "a")
    fleet.publish("a")
    first = fleet.survey()
    assert "optimize" in facts_of(first)["a"].last_runs
    fleet.drop("a")
    write_days(tmp_path / "new", files=7)
    fleet.lake.put_table(f"{HEAD}/a", tmp_path / "new")
    second = fleet.survey(first.memory)
    assert facts_of(second)["a"] == read_anew(fleet, "a")
    assert "optimize" not in facts_of(second)["a"].last_runs


def test_a_dropped_table_is_told_and_forgotten_and_an_outage_is_not_taken_for_one(fleet: Fleet) -> None:
    first = fleet.survey()
    fleet.drop("a")
    fleet.lake.failing = lambda number: fleet.lake.calls[number][1].startswith(f"{HEAD}/b")
    second = fleet.survey(first.memory)
    assert [(one.table, one.error.type) for one in second.unread] == [
        (f"{HEAD}/a", "NotATable"),
        (f"{HEAD}/b", "StorageError"),
    ]
    assert [one.table for one in second.tables] == [f"{HEAD}/c"]
    assert list(second.memory.tables) == [f"{HEAD}/b", f"{HEAD}/c"]
    fleet.lake.failing = lambda number: False
    third = fleet.survey(second.memory)
    assert [one.table for one in third.tables] == [f"{HEAD}/b", f"{HEAD}/c"]
    assert third.num_read == 0


def test_each_call_that_fails_is_told_and_the_next_survey_makes_up_for_it(fleet: Fleet) -> None:
    whole = fleet.survey()
    for number in range(len(fleet.lake.calls)):
        fleet.lake.failing = lambda at, number=number: at == number  # type: ignore[misc]
        told = fleet.survey()
        (unread,) = told.unread
        assert fleet.lake.calls[number][1].startswith(unread.table)
        assert unread.error.retryable
        assert {one.table for one in told.tables} == {one.table for one in whole.tables} - {unread.table}
        fleet.lake.failing = lambda at: False
        again = fleet.survey(told.memory)
        assert again.tables == whole.tables
        assert again.memory == whole.memory
        assert again.num_read == 1


def test_a_listing_that_misses_a_commit_is_made_again(fleet: Fleet) -> None:
    storage = MemoryStorage(f"{HEAD}/a")
    commits = {
        key.rpartition("/")[2]: data
        for key, (data, _) in fleet.lake.objects.items()
        if f"{HEAD}/a/_delta_log" in key
    }
    first, *later = sorted(commits)
    storage.put(f"_delta_log/{first}", commits[first])

    def meanwhile() -> None:
        for name in later:
            storage.put_if_absent(f"_delta_log/{name}", commits[name])

    torn = TornListings(storage, meanwhile)
    found = survey([FoundTable("t", "t")], standard, open_table=lambda address: torn)
    assert found.unread == ()
    assert found.tables[0].facts.version == len(commits) - 1 == 2
    # The next survey sees that the first listing was another one.
    assert (
        survey([FoundTable("t", "t")], standard, found.memory, open_table=lambda address: torn).num_read == 1
    )


def test_other_limits_have_a_table_read_again(fleet: Fleet) -> None:
    first = fleet.survey()

    def limits(address: str, properties: Mapping[str, str]) -> HealthOptions:
        return HealthOptions(target_size_bytes=1 << 20 if address.endswith("/b") else None)

    second = fleet.survey(first.memory, limits=limits)
    assert second.num_read == 1
    optimize = facts_of(second)["b"].files.optimize
    assert optimize is not None
    assert optimize.target_size_bytes == 1 << 20
    assert fleet.survey(second.memory, limits=limits).num_read == 0


def test_limits_that_cannot_be_made_are_told_of_their_table_alone(fleet: Fleet) -> None:
    def limits(address: str, properties: Mapping[str, str]) -> HealthOptions:
        if address.endswith("/b"):
            raise InvalidRequest("the rule of b is wrong")
        return HealthOptions()

    found = fleet.survey(limits=limits)
    assert [(one.table, one.error.type) for one in found.unread] == [(f"{HEAD}/b", "InvalidRequest")]
    assert len(found.tables) == 2


def test_an_error_that_nobody_foresaw_hides_no_other_table(fleet: Fleet) -> None:
    def limits(address: str, properties: Mapping[str, str]) -> HealthOptions:
        return {f"{HEAD}/a": HealthOptions(), f"{HEAD}/c": HealthOptions()}[address]

    assert [one.error.type for one in fleet.survey(limits=limits).unread] == ["KeyError"]


def test_a_table_whose_files_were_deleted_is_read_again_when_it_was_forgotten(fleet: Fleet) -> None:
    memory = fleet.survey().memory.without([f"{HEAD}/b"])
    assert fleet.survey(memory).num_read == 1


def test_what_was_not_asked_for_is_remembered_for_a_while(fleet: Fleet) -> None:
    first = fleet.survey()
    fleet.names = ["a"]
    soon = fleet.survey(first.memory, at_ms=NOW_MS + DAY_MS)
    assert list(soon.memory.tables) == [f"{HEAD}/{name}" for name in "abc"]
    late = fleet.survey(first.memory, at_ms=NOW_MS + REREAD_DAYS * DAY_MS)
    assert list(late.memory.tables) == [f"{HEAD}/a"]


def test_credentials_in_a_property_are_not_kept(fleet: Fleet) -> None:
    key = f"{HEAD}/a/_delta_log/{0:020}.json"
    data, time_ms = fleet.lake.objects[key]
    secret = b'"configuration":{"sink":"https://x.example/?sig=abcdefghij"}'
    fleet.lake.objects[key] = (data.replace(b'"configuration":{}', secret), time_ms)
    found = fleet.survey()
    assert found.tables[0].properties == {"sink": "https://x.example/?sig=***"}
    assert fleet.survey(found.memory).num_read == 0


def test_files_that_the_retention_holds_are_read_again_when_it_has_passed() -> None:
    table = unchanging("x", NOW_MS)
    week = replace(table.facts.removed, cutoff_ms=NOW_MS - 7 * DAY_MS, held=FileTotal(3, 30))
    held = replace(table, facts=replace(table.facts, removed=week))
    days = range(1, 8)
    assert not any(is_to_be_read_again(table, NOW_MS + day * DAY_MS) for day in days)
    assert [day for day in days if is_to_be_read_again(held, NOW_MS + day * DAY_MS)] == [7]


def test_every_table_is_read_once_in_a_period_and_about_as_many_each_day() -> None:
    per_day: Counter[int] = Counter()
    for number in range(3_000):
        table = unchanging(f"{HEAD}/table-{number}", NOW_MS)
        due = [
            day
            for day in range(1, REREAD_DAYS + 1)
            if is_to_be_read_again(table, NOW_MS + day * DAY_MS)
            and not is_to_be_read_again(table, NOW_MS + (day - 1) * DAY_MS)
        ]
        assert len(due) == 1
        per_day[due[0]] += 1
    assert max(per_day.values()) < 2 * 3_000 / REREAD_DAYS


def unchanging(name: str, measured_ms: int) -> SurveyedTable:
    """A table without removed files."""
    nothing = FileTotal()
    facts = HealthFacts(
        version=0,
        measured_ms=measured_ms,
        files=FileFacts(0, 0),
        checkpoint=plan_checkpoint(ReplayCost(0, None, 1, 1), 10),
        compaction=None,
        log=LogFacts(0, 1),
        removed=RemovedFiles(nothing, nothing, nothing, 0, 0),
        features=(),
        refusals={},
        last_runs={},
        num_commits_read=1,
    )
    return SurveyedTable(name, measured_ms, facts)


@given(st.text(max_size=20), st.integers(0, 10**13))
def test_no_table_goes_unread_for_longer_than_a_period(name: str, measured_ms: int) -> None:
    table = unchanging(name, measured_ms)
    assert not is_to_be_read_again(table, measured_ms)
    assert is_to_be_read_again(table, measured_ms + REREAD_DAYS * DAY_MS)
