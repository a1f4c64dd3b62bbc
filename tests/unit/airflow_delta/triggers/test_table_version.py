from __future__ import annotations

import asyncio
import json
import random
import shutil
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
from tests.support.runs.tail_runs import TailedTable
from tests.support.runs.triggerer import Triggerer, in_a_loop

from airflow_delta.testing import FakeAssetStateStore
from airflow_delta.triggers import DeltaTableVersionTrigger
from airflow_delta.triggers.table_stream import streams
from airflow_delta.watch_memory import shard_of
from delta_log import Table
from delta_log.log.file_names import commit_key

pytestmark = pytest.mark.usefixtures("settled_deferrals")

FAST = 0.05


@pytest.fixture
def table(tmp_path: Path) -> TailedTable:
    created = TailedTable("events", str(tmp_path / "events"))
    created.create()
    return created


@pytest.fixture
def store() -> FakeAssetStateStore:
    return FakeAssetStateStore()


def watcher(table: TailedTable, **more: Any) -> DeltaTableVersionTrigger:
    return DeltaTableVersionTrigger(table.uri, poll_interval=FAST, **more)


def ranges(events: list[dict[str, Any]]) -> list[tuple[int, int]]:
    return [(event["firstVersion"], event["lastVersion"]) for event in events]


def place(store: FakeAssetStateStore, table: TailedTable) -> Any:
    for text in store.values.values():
        value = json.loads(text)
        if isinstance(value, dict) and table.uri in value:
            return value[table.uri]
    return None


def test_a_trigger_is_what_it_is_made_of() -> None:
    trigger = DeltaTableVersionTrigger(
        ["s3://lake/a", "s3://lake/b"], "lake", 5, start_from=3, operations=["WRITE"], min_rows=7
    )
    path, kwargs = trigger.serialize()
    assert path == "airflow_delta.triggers.table_version.DeltaTableVersionTrigger"
    assert DeltaTableVersionTrigger(**json.loads(json.dumps(kwargs))).serialize() == (path, kwargs)


@pytest.mark.parametrize("wrong", [{"table": ""}, {"table": []}, {"poll_interval": 0}, {"start_from": "now"}])
def test_a_senseless_argument_is_refused_when_the_dag_is_parsed(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError):
        DeltaTableVersionTrigger(**{"table": "s3://lake/a", **wrong})


@in_a_loop
async def test_commits_make_events_whose_ranges_join(table: TailedTable, store: FakeAssetStateStore) -> None:
    async with Triggerer(watcher(table, start_from="earliest"), store) as triggerer:
        table.append_by_delta_rs()
        events = await triggerer.until(1)
        table.commit_by_ours()
        table.commit_by_ours(data_change=False)
        await triggerer.until(2)
        table.append_by_delta_rs()
        await triggerer.wait_for(lambda: triggerer.events[-1]["lastVersion"] == 4)
    assert ranges(events)[0][0] == 0
    assert all(b[0] == a[1] + 1 for a, b in pairwise(ranges(events)))
    commits = [commit for event in events for commit in event["commits"]]
    assert [commit["version"] for commit in commits] == [1, 2, 4]
    assert {commit["numAddedRows"] for commit in commits} == {10}
    assert all(
        event["numCommits"] + event["numSkipped"] == event["lastVersion"] - event["firstVersion"] + 1
        for event in events
    )
    assert not any(event["repeated"] for event in events)


@in_a_loop
async def test_maintenance_alone_sends_no_event(table: TailedTable, store: FakeAssetStateStore) -> None:
    table.append_by_delta_rs()
    async with Triggerer(watcher(table), store) as triggerer:
        await triggerer.wait_for(lambda: place(store, table) == [1, 1])
        table.commit_by_ours(data_change=False)
        # It was seen, and nothing was made of it.
        await triggerer.wait_for(lambda: place(store, table) == [1, 2])
        assert triggerer.events == []


@in_a_loop
async def test_a_first_look_is_kept_at_once_so_that_a_crash_before_the_first_event_loses_nothing(
    table: TailedTable, store: FakeAssetStateStore
) -> None:
    async with Triggerer(watcher(table), store) as triggerer:
        await triggerer.wait_for(lambda: place(store, table) == [0, 0])
    table.append_by_delta_rs()
    async with Triggerer(watcher(table), store) as triggerer:
        assert ranges(await triggerer.until(1)) == [(1, 1)]


@in_a_loop
async def test_what_was_committed_while_no_triggerer_ran_is_told_and_nothing_twice(
    table: TailedTable, store: FakeAssetStateStore
) -> None:
    async with Triggerer(watcher(table, start_from="earliest"), store) as triggerer:
        table.append_by_delta_rs()
        await triggerer.until(1)
        await triggerer.wait_for(lambda: place(store, table) == [1, 1])
    table.append_by_delta_rs()
    table.append_by_delta_rs()
    async with Triggerer(watcher(table, start_from="earliest"), store) as triggerer:
        events = await triggerer.until(1)
        assert ranges(events) == [(2, 3)]
        assert events[0]["repeated"] is False


@in_a_loop
async def test_a_crash_before_airflow_stored_an_event_repeats_the_very_same_range_and_says_so(
    table: TailedTable, store: FakeAssetStateStore
) -> None:
    async with Triggerer(watcher(table, start_from="earliest"), store) as triggerer:
        triggerer.persists = False
        table.append_by_delta_rs()
        await triggerer.until(1)
        lost = ranges(triggerer.events)[-1]
    # More has come since; it goes into a range of its own.
    table.append_by_delta_rs()
    async with Triggerer(watcher(table, start_from="earliest"), store) as triggerer:
        events = await triggerer.until(2)
        assert ranges(events)[0] == lost
        assert [event["repeated"] for event in events] == [True, False]
        assert ranges(events)[1] == (lost[1] + 1, 2)


@pytest.mark.parametrize("seed", range(4))
@in_a_loop
async def test_however_it_crashes_every_version_is_stored_and_repeated_only_within_the_very_same_range(
    table: TailedTable, store: FakeAssetStateStore, seed: int
) -> None:
    dice = random.Random(seed)
    stored: list[dict[str, Any]] = []

    async def life() -> None:
        """Runs one triggerer: Airflow stores its events in order, and it learns of some of them before it crashes."""
        async with Triggerer(watcher(table, start_from="earliest"), store) as triggerer:
            confirmed = 0
            for _ in range(dice.randint(0, 4)):
                triggerer.persists = triggerer.persists and dice.random() < 0.7
                for _ in range(dice.randint(1, 3)):
                    table.commit_by_ours(data_change=dice.random() < 0.8)
                await asyncio.sleep(dice.choice([0, FAST, 3 * FAST]))
                if triggerer.persists:
                    confirmed = len(triggerer.events)
            stored.extend(triggerer.events[: dice.randint(confirmed, len(triggerer.events))])

    for _ in range(6):
        await life()
    async with Triggerer(watcher(table, start_from="earliest"), store) as triggerer:
        table.append_by_delta_rs()
        last = Table(table.uri).snapshot().version
        await triggerer.wait_for(lambda: triggerer.events and triggerer.events[-1]["lastVersion"] == last)
        stored.extend(triggerer.events)
    changing = Table(table.uri).tail("earliest", poll_interval_seconds=None)
    told = [commit["version"] for event in stored for commit in event["commits"]]
    assert set(told) == {commit.version for commit in changing}
    distinct = sorted(set(ranges(stored)))
    assert all(b[0] == a[1] + 1 for a, b in pairwise(distinct))
    first_seen: set[tuple[int, int]] = set()
    for event, found in zip(stored, ranges(stored), strict=True):
        assert event["repeated"] or found not in first_seen
        first_seen.add(found)


@in_a_loop
async def test_a_state_store_that_fails_repeats_and_loses_nothing(
    table: TailedTable, store: FakeAssetStateStore
) -> None:
    async with Triggerer(watcher(table, start_from="earliest"), store) as triggerer:
        await triggerer.wait_for(lambda: place(store, table) is not None)
        store.fault = RuntimeError("the database is away")
        table.append_by_delta_rs()
        await asyncio.sleep(4 * FAST)
        assert triggerer.events == []
    store.fault = None
    async with Triggerer(watcher(table, start_from="earliest"), store) as triggerer:
        assert ranges(await triggerer.until(1)) == [(0, 1)]


@in_a_loop
async def test_an_asset_that_airflow_does_not_know_yet_is_waited_for(
    table: TailedTable, store: FakeAssetStateStore
) -> None:
    async with Triggerer(watcher(table), store) as triggerer:
        await triggerer.wait_for(lambda: place(store, table) == [0, 0])
    table.append_by_delta_rs()
    store.fault = RuntimeError("no such asset")
    async with Triggerer(watcher(table), store) as triggerer:
        await asyncio.sleep(3 * FAST)
        table.append_by_delta_rs()
        store.fault = None
        assert ranges(await triggerer.until(1))[0][0] == 1


@in_a_loop
async def test_of_two_assets_with_equal_triggers_the_one_that_knows_less_decides(table: TailedTable) -> None:
    first, second = FakeAssetStateStore(), FakeAssetStateStore()

    async with Triggerer(watcher(table), first) as triggerer:
        await triggerer.wait_for(lambda: place(first, table) == [0, 0])
    table.append_by_delta_rs()
    async with Triggerer(watcher(table), second) as triggerer:
        await triggerer.wait_for(lambda: place(second, table) == [1, 1])
    async with Triggerer(watcher(table), first, second) as triggerer:
        assert ranges(await triggerer.until(1)) == [(1, 1)]
        await triggerer.wait_for(lambda: place(first, table) == place(second, table) == [1, 1])


@in_a_loop
async def test_watchers_of_the_same_tables_share_one_stream_and_a_late_one_catches_up(
    table: TailedTable, store: FakeAssetStateStore
) -> None:
    late_store = FakeAssetStateStore()

    async with Triggerer(watcher(table), store) as early:
        table.append_by_delta_rs()
        await early.wait_for(lambda: place(store, table) == [1, 1])
        late = Triggerer(
            watcher(table, start_from="earliest", operations=["write"]),
            late_store,
            manager=early.manager,
            trigger_id=2,
        )
        async with late:
            assert ranges(await late.until(1))[0][0] == 0
            assert len(streams) == 1


@in_a_loop
async def test_one_trigger_watches_several_tables(tmp_path: Path, store: FakeAssetStateStore) -> None:
    tables = [TailedTable(name, str(tmp_path / name)) for name in ("a", "b", "c")]
    for one in tables:
        one.create()

    trigger = DeltaTableVersionTrigger([one.uri for one in tables], poll_interval=FAST)
    async with Triggerer(trigger, store) as triggerer:
        await triggerer.wait_for(lambda: all(place(store, one) for one in tables))
        for one in tables[:2]:
            one.append_by_delta_rs()
        events = await triggerer.until(2)
        assert {event["table"] for event in events} == {tables[0].uri, tables[1].uri}


@in_a_loop
async def test_watchers_of_one_asset_leave_each_others_places_where_their_tables_share_an_entry(
    tmp_path: Path, store: FakeAssetStateStore
) -> None:
    uris = [str(tmp_path / f"t{number}") for number in range(100)]
    shards = [shard_of(uri) for uri in uris]
    second = next(number for number in range(100) if shards[number] in shards[:number])
    first = shards.index(shards[second])
    tables = [TailedTable(f"t{number}", uris[number]) for number in (first, second)]
    for made in tables:
        made.create()
    async with Triggerer(watcher(tables[0]), store) as one, Triggerer(watcher(tables[1]), store) as other:
        for version in (1, 2):
            for table, triggerer in zip(tables, (one, other), strict=True):
                table.append_by_delta_rs()
                await triggerer.wait_for(
                    lambda table=table, version=version: place(store, table) == [version] * 2
                )
    assert [place(store, table) for table in tables] == [[2, 2], [2, 2]]


@in_a_loop
async def test_all_tables_below_a_prefix_are_watched_and_what_is_no_table_is_not(
    tmp_path: Path, store: FakeAssetStateStore
) -> None:
    tables = [TailedTable(name, str(tmp_path / name)) for name in ("a", "b")]
    for one in tables:
        one.create()
    (tmp_path / "notes").mkdir()

    trigger = DeltaTableVersionTrigger(f"{tmp_path}/*", poll_interval=FAST)
    async with Triggerer(trigger, store) as triggerer:
        await triggerer.wait_for(lambda: all(place(store, one) for one in tables))
        tables[1].append_by_delta_rs()
        events = await triggerer.until(1)
        assert [(event["table"], event["lastVersion"]) for event in events] == [(tables[1].uri, 1)]
        (stream,) = streams.values()
        assert set(stream.tables) == {one.uri for one in tables}
    # A table that came while no watcher ran is new as a whole.
    newcomer = TailedTable("c", str(tmp_path / "c"))
    newcomer.create()
    newcomer.append_by_delta_rs()
    trigger = DeltaTableVersionTrigger(f"{tmp_path}/*", poll_interval=FAST)
    async with Triggerer(trigger, store) as triggerer:
        events = await triggerer.until(1)
        assert [(event["table"], *ranges([event])[0]) for event in events] == [(newcomer.uri, 0, 1)]


@in_a_loop
async def test_a_log_that_was_cleaned_past_the_place_makes_an_event_that_says_so(
    table: TailedTable, store: FakeAssetStateStore
) -> None:
    async with Triggerer(watcher(table), store) as triggerer:
        await triggerer.wait_for(lambda: place(store, table) == [0, 0])
    for _ in range(6):
        table.append_by_delta_rs()
    assert table.clean_log(keep=2) == 4
    async with Triggerer(watcher(table), store) as triggerer:
        (event,) = await triggerer.until(1)
        assert ranges([event]) == [(1, 6)]
        assert event["cleaned"] == [1, 3]
        assert [commit["version"] for commit in event["commits"]] == [4, 5, 6]


@in_a_loop
async def test_what_was_told_just_before_a_dag_was_paused_is_told_again(
    table: TailedTable, store: FakeAssetStateStore
) -> None:
    async with Triggerer(watcher(table), store) as triggerer:
        triggerer.trigger.seconds_until_settled = 60.0  # type: ignore[misc]
        await triggerer.wait_for(lambda: place(store, table) == [0, 0])
        table.append_by_delta_rs()
        await triggerer.until(1)
        # It was stored, as far as Airflow says.
        await triggerer.wait_for(lambda: triggerer.trigger._unsettled)
        assert place(store, table) == [0, 0, 1]
    table.append_by_delta_rs()
    async with Triggerer(watcher(table), store) as triggerer:
        events = await triggerer.until(2)
        assert ranges(events) == [(1, 1), (2, 2)]
        assert [event["repeated"] for event in events] == [True, False]


@in_a_loop
async def test_a_place_is_kept_when_its_watcher_is_still_wanted_a_while_later(
    table: TailedTable, store: FakeAssetStateStore
) -> None:
    async with Triggerer(watcher(table), store) as triggerer:
        triggerer.trigger.seconds_until_settled = 4 * FAST  # type: ignore[misc]
        await triggerer.wait_for(lambda: place(store, table) == [0, 0])
        table.append_by_delta_rs()
        await triggerer.until(1)
        table.commit_by_ours(data_change=False)
        await triggerer.wait_for(lambda: place(store, table) == [1, 2])
    async with Triggerer(watcher(table), store) as triggerer:
        table.append_by_delta_rs()
        assert ranges(await triggerer.until(1)) == [(2, 3)]
        assert not any(event["repeated"] for event in triggerer.events)


@in_a_loop
async def test_a_range_whose_commits_were_cleaned_before_it_could_be_told_again_keeps_its_bounds(
    table: TailedTable, store: FakeAssetStateStore
) -> None:
    async with Triggerer(watcher(table), store) as triggerer:
        await triggerer.wait_for(lambda: place(store, table) == [0, 0])
        triggerer.persists = False
        table.append_by_delta_rs()
        await triggerer.until(1)
    for _ in range(5):
        table.append_by_delta_rs()
    assert table.clean_log(keep=2) == 4
    async with Triggerer(watcher(table), store) as triggerer:
        events = await triggerer.until(2)
        assert ranges(events) == [(1, 1), (2, 6)]
        assert [event["repeated"] for event in events] == [True, False]
        assert [event["cleaned"] for event in events] == [[1, 1], [2, 3]]
        assert [commit["version"] for commit in events[1]["commits"]] == [4, 5, 6]


@in_a_loop
async def test_a_table_that_is_made_anew_is_told_from_its_beginning(
    table: TailedTable, store: FakeAssetStateStore
) -> None:
    for _ in range(3):
        table.append_by_delta_rs()

    async with Triggerer(watcher(table), store) as triggerer:
        await triggerer.wait_for(lambda: place(store, table) == [3, 3])
    shutil.rmtree(table.uri)
    table.create()
    table.append_by_delta_rs()
    async with Triggerer(watcher(table), store) as triggerer:
        assert ranges(await triggerer.until(1)) == [(0, 1)]


@in_a_loop
async def test_a_table_that_is_made_anew_under_the_eyes_of_its_watcher_is_told_from_its_beginning(
    table: TailedTable, store: FakeAssetStateStore
) -> None:
    for _ in range(3):
        table.append_by_delta_rs()

    # It lists the log again after so many polls that found nothing.
    often = DeltaTableVersionTrigger(table.uri, poll_interval=FAST / 10)
    async with Triggerer(often, store) as triggerer:
        await triggerer.wait_for(lambda: place(store, table) == [3, 3])
        shutil.rmtree(table.uri)
        table.create()
        await triggerer.wait_for(lambda: place(store, table) == [-1, 0])
        table.append_by_delta_rs()
        assert ranges(await triggerer.until(1)) == [(0, 1)]


@in_a_loop
async def test_a_watcher_that_is_ahead_of_its_stream_does_not_take_the_table_for_a_new_one(
    table: TailedTable, store: FakeAssetStateStore
) -> None:
    async with Triggerer(watcher(table), store) as triggerer:
        await triggerer.wait_for(lambda: place(store, table) == [0, 0])
        (stream,) = streams.values()
        watched = stream.tables[table.uri]
        for _ in range(3):
            table.append_by_delta_rs()
        await triggerer.wait_for(lambda: place(store, table) == [3, 3])
        assert watched.tail is not None
        # As if the stream had looked before the last two commits, and the watcher after them.
        watched.tail.position = 1
        watched.recent = ()
        stream.announce()
        await asyncio.sleep(4 * FAST)
        table.append_by_delta_rs()
        await triggerer.wait_for(lambda: place(store, table) == [4, 4])
        assert triggerer.events[0]["firstVersion"] == 1
        assert ranges(triggerer.events)[-1] == (4, 4)


@in_a_loop
async def test_a_table_that_is_not_there_yet_is_told_from_its_first_version(
    tmp_path: Path, store: FakeAssetStateStore
) -> None:
    table = TailedTable("later", str(tmp_path / "later"))

    async with Triggerer(watcher(table), store) as triggerer:
        await triggerer.wait_for(lambda: place(store, table) == [-1, -1])
        table.create()
        table.append_by_delta_rs()
        events = await triggerer.until(1)
        assert (ranges(events)[0][0], ranges(events)[-1][1]) == (0, 1)


@in_a_loop
async def test_a_broken_commit_is_waited_for_without_a_word_too_many(
    table: TailedTable, store: FakeAssetStateStore, caplog: pytest.LogCaptureFixture
) -> None:
    path = Path(table.uri) / commit_key(1)

    async with Triggerer(watcher(table), store) as triggerer:
        await triggerer.wait_for(lambda: place(store, table) == [0, 0])
        path.write_bytes(b"{")
        await triggerer.wait_for(lambda: next(iter(streams.values())).tables[table.uri].failures >= 2)
        path.unlink()
        table.append_by_delta_rs()
        assert ranges(await triggerer.until(1)) == [(1, 1)]
    assert len([line for line in caplog.messages if "it does not hold one action a line" in line]) == 1


def test_a_task_that_waits_gets_one_event(table: TailedTable) -> None:
    async def first(trigger: DeltaTableVersionTrigger) -> Any:
        events = [event.payload async for event in trigger.run()]
        assert len(events) == 1
        return events[0]

    table.append_by_delta_rs()
    found = asyncio.run(first(watcher(table, baseline=0)))
    assert ranges([found["range"]]) == [(1, 1)]
    for _ in range(6):
        table.append_by_delta_rs()
    table.clean_log(keep=2)
    refused = asyncio.run(first(watcher(table, baseline=0)))
    assert (refused["status"], refused["type"]) == ("refused", "LogCleaned")
    found = asyncio.run(first(watcher(table, baseline=0, on_cleaned="continue")))
    assert found["range"]["cleaned"] == [1, 4]


def test_the_same_filters_serve_programs_without_airflow(table: TailedTable) -> None:
    table.append_by_delta_rs()
    table.commit_by_ours(data_change=False)
    table.commit_by_ours()
    tailed = Table(table.uri).tail("earliest", poll_interval_seconds=None)
    assert [commit.version for commit in tailed] == [1, 3]
