"""A distributed listing gives the same plan as a listing in one process, for every tree and every way to cut it."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace
from tests.support.environment.corpus import Corpus, Entry, corpus_cases
from tests.support.repetition import examples
from tests.support.runs.distributed_listings import described, listing_in_parts, plan_or_refusal
from tests.support.runs.vacuum_runs import files_below, plan_on
from tests.support.tables.small_tables import write_days
from tests.support.tables.vacuum_histories import (
    DAY_MS,
    NOW_MS,
    PROTOCOL,
    RUNTIME,
    History,
    histories,
    metadata,
)
from tests.support.tables.vacuumable_tables import age

from delta_log import Table
from delta_log.log.log_segment import find_log_segment
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.objects.object_listing import SpanPage, list_object_tree, list_span_tree
from delta_log.storage.storage import EnterDirectories, FileInfo, KeySpan, Storage, TreePage
from delta_log.testing import MemoryStorage
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.engine import choice
from delta_maintenance.errors import LiveFilesMissing, VacuumRefused
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.listing.distributed import DistributedListing
from delta_maintenance.progress import SilentProgress
from delta_maintenance.vacuum.candidates import PlannedVacuum
from delta_maintenance.vacuum.execution import execute_plan

KEYS = st.sets(
    st.lists(st.sampled_from(["a", "b", "a-b", "p=1", "p=2", "_x", "_p=1"]), min_size=1, max_size=4).map(
        lambda names: "/".join([*names, "f"])
    ),
    max_size=40,
)


class RangedStorage(MemoryStorage):
    """Objects in memory that are listed in pages and by key ranges, as in S3."""

    concurrency = 3
    has_key_ranges = True
    page_keys = 2

    def list_tree(self, enter: EnterDirectories) -> Iterator[TreePage]:
        return list_object_tree(self._span, enter, self.concurrency, has_ranges=True)

    def list_part(self, span: KeySpan, enter: EnterDirectories) -> Iterator[TreePage]:
        return list_span_tree(self._span, span, enter)

    def _span(self, span: KeySpan) -> Iterator[SpanPage]:
        files: list[FileInfo] = []
        directories: list[str] = []
        last = None
        for key in sorted(self.objects):
            if not key.startswith(span.prefix) or key <= span.start:
                continue
            if span.end is not None and key >= span.end:
                break
            name, slash, _ = key[len(span.prefix) :].partition("/")
            if slash and not span.deep:
                if name != last:
                    directories.append(span.prefix + name)
                last = name
            else:
                info = self.head(key)
                assert info is not None
                files.append(info)
            if len(files) + len(directories) == self.page_keys:
                yield SpanPage(files, directories)
                files, directories = [], []
        yield SpanPage(files, directories)


def table_of(storage: MemoryStorage, keys: set[str], live: set[str]) -> History:
    history = History(storage)
    history.commit([{"protocol": PROTOCOL}, {"metaData": metadata()}], NOW_MS - 30 * DAY_MS)
    for key in sorted(keys):
        history.put(key, NOW_MS - 29 * DAY_MS)
    for key in sorted(live):
        history.live[key] = None
    if live:
        history.commit([history.add(key) for key in sorted(live)], NOW_MS - 28 * DAY_MS)
    storage._clock_ms = NOW_MS
    return history


def same_plan(
    storage: Storage, distributed: DistributedListing, now_ms: int = NOW_MS, **options: Any
) -> None:
    snapshot = Snapshot(storage, find_log_segment(storage))
    expected = plan_or_refusal(storage, snapshot, now_ms, None, **options)
    found = plan_or_refusal(storage, snapshot, now_ms, distributed, **options)
    if isinstance(expected, str) or isinstance(found, str):
        assert found == expected
        return
    assert described(found) == described(expected)


def plan(
    storage: Storage, distributed: DistributedListing, now_ms: int = NOW_MS, **options: Any
) -> PlannedVacuum:
    return plan_on(storage, now_ms, distributed, retention_check=False, **options)


@given(histories(), st.sampled_from([0.0, 24.0, 12 * 24.0]), st.sampled_from([None, "p = '1'"]))
@examples(25)
def test_every_history_gives_the_same_plan(history: History, hours: float, where: str | None) -> None:
    same_plan(history.storage, listing_in_parts(history.storage), retain_hours=hours, where=where)


@given(KEYS, st.data(), st.integers(1, 3), st.integers(1, 4), st.sampled_from([None, "p = '1'"]))
@examples(80)
def test_spans_that_are_cut_between_known_keys_give_the_same_plan(
    keys: set[str], chance: st.DataObject, split_keys: int, parallelism: int, where: str | None
) -> None:
    live = set(chance.draw(st.lists(st.sampled_from(sorted(keys)), unique=True))) if keys else set()
    storage = RangedStorage()
    table_of(storage, keys, live)
    same_plan(storage, listing_in_parts(storage, parallelism, split_keys), where=where)


def test_a_directory_of_many_known_files_is_cut_between_them() -> None:
    storage = RangedStorage()
    keys = {
        f"{place}part-{number:03}.parquet" for place in ("", "p=1/", "p=2/x/", "p=3/") for number in range(40)
    }
    table_of(storage, keys, {key for number, key in enumerate(sorted(keys)) if number % 3})
    distributed = listing_in_parts(storage, 2, 5)
    spans: list[KeySpan] = []

    def run(parts: Any, path: Path) -> Any:
        spans.extend(span for part in parts for span in part.spans)
        return distributed.run(parts, path)

    same_plan(storage, DistributedListing(storage, run, 2, RUNTIME.new_id, 5))
    assert len([span for span in spans if not span.deep]) > 4
    assert len([span for span in spans if span.deep and "p=1/" < span.start < "p=2/"]) > 3


@pytest.mark.parametrize("neighbours", ["refuse", "keep"])
def test_what_belongs_to_others_is_found_in_every_part(neighbours: str) -> None:
    storage = RangedStorage()
    theirs = {
        "metadata/v1.metadata.json",
        "p=1/inner/_delta_log/00000000000000000000.json",
        "p=1/inner/part.parquet",
        "p=2/checkpoint/offsets/0",
        "p=2/checkpoint/state/0/1.delta",
        "z/hudi/.hoodie/hoodie.properties",
        "z/hudi/part.parquet",
    }
    table_of(storage, {"p=1/a", "p=2/b", "orphan", *theirs}, {"p=1/a", "p=2/b"})
    distributed = listing_in_parts(storage, 3, 2)
    same_plan(storage, distributed, neighbours=neighbours)
    if neighbours == "keep":
        found = plan(storage, distributed, neighbours=neighbours)
        assert found.plan.candidates.column("key").to_pylist() == ["orphan"]
        assert set(found.basis.neighbours) == {"metadata", "p=1/inner", "p=2/checkpoint", "z/hudi"}


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """A table that is a month old, with everything that a directory may hold."""
    path = tmp_path / "table"
    write_days(path)
    DeltaTable(str(path)).optimize.compact()
    for name in (
        "orphan",
        "day=2024-01-01/orphan",
        "day=2024-01-01/deep/er/orphan",
        "_hidden/x",
        "day=2024-01-02/.x.crc",
        "_change_data/day=2024-01-01/cdc.parquet",
        "full/.hidden",
    ):
        (path / name).parent.mkdir(parents=True, exist_ok=True)
        (path / name).write_bytes(b"old")
    (path / "empty" / "er").mkdir(parents=True)
    (path / "link").symlink_to(path / "day=2024-01-01")
    with open(os.path.join(os.fsencode(path), b"\xff"), "wb"):
        pass
    age(path)
    (path / "young").mkdir()
    (path / "day=2024-01-01" / "young.parquet").write_bytes(b"young")
    return path


@pytest.mark.parametrize("where", [None, "day = '2024-01-01'"])
@pytest.mark.parametrize("parallelism", [1, 64])
def test_a_directory_gives_the_same_plan(table: Path, parallelism: int, where: str | None) -> None:
    storage = Table(str(table)).storage
    now_ms = int(time.time() * 1000)
    same_plan(storage, listing_in_parts(storage, parallelism), now_ms, where=where)
    same_plan(storage, listing_in_parts(storage, parallelism), now_ms, where=where, retain_hours=0)


@pytest.mark.parametrize("entry", corpus_cases(lambda entry: entry["readable"]))
def test_tables_of_other_writers_give_the_same_plan(entry: Entry, corpus: Corpus) -> None:
    storage = Table(str(corpus.table(entry["name"]))).storage
    same_plan(storage, listing_in_parts(storage), int(time.time() * 1000) + DAY_MS, retain_hours=0)


def test_a_vacuum_with_a_distributed_listing_deletes_what_it_planned_and_checks_again(table: Path) -> None:
    storage = Table(str(table)).storage
    live = set(Table(str(table)).snapshot().files(["key"]).column("key").to_pylist())
    asked: list[bool] = []
    distributed = listing_in_parts(storage)

    def run(parts: Any, path: Path) -> Any:
        asked.append(parts[0].wants_files)
        return distributed.run(parts, path)

    # The youngest file may have been written in this millisecond.
    now_ms = int(time.time() * 1000) + 1_000
    found = plan(storage, replace(distributed, run=run), now_ms=now_ms, retain_hours=0)
    outcome = execute_plan(storage, found, SilentProgress(), Runtime(), {})
    kept = {"_hidden/x", "day=2024-01-02/.x.crc", "full/.hidden", "link", "\udcff"}
    assert files_below(table) - kept == live
    assert outcome.facts["liveFilesConfirmed"] == len(live)
    assert (asked[0], asked[-1]) == (True, False)


def test_a_distributed_listing_notices_an_absent_live_file() -> None:
    storage = RangedStorage()
    history = table_of(storage, {"p=1/a", "p=1/b", "p=2/c", "orphan"}, {"p=1/a", "p=1/b", "p=2/c"})
    found = plan(storage, listing_in_parts(storage))
    del history.storage.objects["p=1/b"]
    with pytest.raises(VacuumRefused, match="not in the store, for example 'p=1/b'"):
        execute_plan(storage, plan(storage, listing_in_parts(storage)), SilentProgress(), RUNTIME, {})
    with pytest.raises(LiveFilesMissing, match="p=1/b"):
        execute_plan(storage, found, SilentProgress(), RUNTIME, {})


def test_a_file_that_is_committed_during_the_listing_is_protected() -> None:
    storage = RangedStorage()
    history = table_of(storage, {"p=1/a", "p=1/back", "p=2/orphan"}, {"p=1/a"})
    distributed = listing_in_parts(storage)

    def run(parts: Any, path: Path) -> Any:
        if len(history.versions) == 2:  # a writer adds an old file again, and removes another one
            history.live["p=1/back"] = None
            added, removed = history.add("p=1/back"), history.remove("p=1/a", NOW_MS)
            del history.live["p=1/a"]
            history.commit([added, removed], NOW_MS)
        return distributed.run(parts, path)

    found = plan(storage, replace(distributed, run=run))
    assert found.plan.read_version == 2
    assert found.plan.candidates.column("key").to_pylist() == ["p=2/orphan"]
    execute_plan(storage, found, SilentProgress(), RUNTIME, {})
    assert {key for key in storage.objects if not key.startswith("_")} == {"p=1/a", "p=1/back"}


def test_a_table_that_is_too_large_for_one_process_is_handed_over_before_anything_is_listed(
    table: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The log knows eight files: two live ones and six removed ones.
    monkeypatch.setattr(choice, "LOCAL_FILES", 7)

    def planned(**options: Any) -> JobReport:
        spec = JobSpec("vacuum", str(table), "run", options, dry_run=True)
        return run_job(spec, JobSite(spark_master="yarn"), SilentProgress())

    report = planned()
    assert (report.error, report.status, report.plan) == (None, "needs_spark", None)
    assert report.engine_reason == "8 known files are more than 7, and master yarn has other machines"
    assert planned(lite=True).status == "planned"


def test_a_machine_that_does_not_see_the_table_is_refused(table: Path, tmp_path: Path) -> None:
    storage = Table(str(table)).storage
    elsewhere = Table(str(tmp_path / "elsewhere")).storage
    seen = listing_in_parts(storage)
    unseen = listing_in_parts(elsewhere)
    with pytest.raises(VacuumRefused, match="There is no table at .*elsewhere on .*Mount the directory"):
        plan(storage, replace(seen, run=unseen.run))
    with pytest.raises(VacuumRefused, match="saw no _delta_log there"):
        plan(storage, replace(seen, run=lambda parts, path: iter(())))
