"""Which files make up a version, what is asked of the store for it, and what an incomplete log comes to."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import fsspec
import pytest
from tests.support.environment.corpus import Corpus

from delta_log import Table
from delta_log.errors import CorruptLog, NotATable, VersionNotFound
from delta_log.log.log_segment import find_log_segment, list_log
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import FileInfo
from delta_log.testing import FaultyStorage, MemoryStorage, TornListings

COMMIT = b'{"protocol":{"minReaderVersion":1,"minWriterVersion":2}}\n'


def log_of(*names: str) -> MemoryStorage:
    storage = MemoryStorage()
    for name in names:
        storage.put(f"_delta_log/{name}", COMMIT)
    return storage


def commits(*versions: int) -> list[str]:
    return [f"{version:020d}.json" for version in versions]


def test_a_log_without_commits_is_no_table() -> None:
    for storage in (
        MemoryStorage(),
        log_of("00000000000000000001.crc", "_last_checkpoint", ".tmp", "1.json"),
    ):
        with pytest.raises(NotATable):
            find_log_segment(storage)


@pytest.mark.parametrize("versions", [(0, 2), (1, 2), (0, 1, 3, 4)])
def test_a_missing_commit_is_never_skipped(versions: tuple[int, ...]) -> None:
    missing = next(v for v in range(10) if v not in versions)
    with pytest.raises(CorruptLog, match=f"{missing:020d}.json"):
        find_log_segment(log_of(*commits(*versions)))


@pytest.mark.parametrize("base", [(), ("00000000000000000001.checkpoint.parquet",)])
def test_a_commit_that_is_hidden_by_a_later_one_is_not_missing(base: tuple[str, ...]) -> None:
    inner, new = log_of(*commits(0, 1), *base), iter(commits(*range(2, 100)))
    if base:
        inner.put("_delta_log/_last_checkpoint", b'{"version":1,"size":1}')

    def two_commits() -> None:
        for _ in range(2):
            inner.put(f"_delta_log/{next(new)}", COMMIT)

    storage = TornListings(inner, two_commits)
    segment = find_log_segment(storage)
    # What the second listing shows, and may hide, of later commits is left to the next reader.
    assert (segment.version, [c.version for c in segment.tail]) == (3, [2, 3] if base else [0, 1, 2, 3])
    assert find_log_segment(storage, 5).version == 5


def test_a_commit_that_is_hidden_right_after_a_cleaned_log_is_not_missing() -> None:
    inner, new = log_of("00000000000000000001.checkpoint.parquet"), commits(2, 3)

    def two_commits() -> None:
        while new:
            inner.put(f"_delta_log/{new.pop(0)}", COMMIT)

    assert [c.version for c in find_log_segment(TornListings(inner, two_commits)).tail] == [2, 3]


def test_a_commit_that_is_hidden_by_its_own_checkpoint_is_not_missing() -> None:
    inner = log_of(*commits(0, 1))

    def commit_and_checkpoint() -> None:
        inner.put(f"_delta_log/{commits(2)[0]}", COMMIT)
        inner.put("_delta_log/00000000000000000002.checkpoint.parquet", COMMIT)

    # By its name the checkpoint comes before the commit, and what is written last is shown.
    hiding = HidingCommits(inner, commit_and_checkpoint)
    assert sorted(list_log(hiding, 1).commits) == [1, 2]
    assert sorted(list_log(HidingCommits(inner, lambda: None)).commits) == [0, 1, 2]


class HidingCommits(TornListings):
    """Shows no commit that comes during a listing, but whatever else."""

    def is_hidden(self, new: list[FileInfo], info: FileInfo) -> bool:
        return info in new and info.name.endswith(".json")


def test_a_version_that_the_log_does_not_hold_is_named_with_those_it_does() -> None:
    storage = log_of("00000000000000000002.checkpoint.parquet", *commits(2, 3, 4))
    assert find_log_segment(storage, 3).version == 3
    for version in (1, 5):
        with pytest.raises(VersionNotFound, match="2 to 4") as caught:
            find_log_segment(storage, version)
        assert (caught.value.earliest, caught.value.latest) == (2, 4)


def test_incomplete_and_empty_checkpoints_do_not_count() -> None:
    storage = log_of(
        *commits(0, 1, 2),
        "00000000000000000001.checkpoint.0000000001.0000000002.parquet",
        "00000000000000000001.checkpoint.0000000002.0000000003.parquet",
        "00000000000000000002.checkpoint.0000000003.0000000002.parquet",
    )
    storage.put("_delta_log/00000000000000000002.checkpoint.parquet", b"")
    segment = find_log_segment(storage)
    assert segment.checkpoint is None
    assert [commit.version for commit in segment.commits] == [0, 1, 2]


def test_of_several_checkpoints_the_newest_and_richest_is_taken() -> None:
    storage = log_of(
        *commits(0, 1, 2, 3),
        "00000000000000000001.checkpoint.80a083e8-7026-4e79-81be-64bd76c43a11.json",
        "00000000000000000002.checkpoint.parquet",
        "00000000000000000002.checkpoint.0000000001.0000000001.parquet",
        "00000000000000000002.checkpoint.any-unique-name.parquet",
    )
    checkpoint = find_log_segment(storage).checkpoint
    assert checkpoint is not None
    assert checkpoint.files[0].info.name == "00000000000000000002.checkpoint.any-unique-name.parquet"
    unusable = frozenset({checkpoint.files[0].key})
    other = find_log_segment(storage, unusable=unusable).checkpoint
    assert other is not None
    assert other.files[0].info.name == "00000000000000000002.checkpoint.0000000001.0000000001.parquet"


def test_the_widest_compactions_that_fit_take_the_place_of_commits() -> None:
    storage = log_of(
        *commits(*range(10)),
        f"{1:020d}.{3:020d}.compacted.json",
        f"{1:020d}.{6:020d}.compacted.json",
        f"{5:020d}.{12:020d}.compacted.json",
        f"{8:020d}.{9:020d}.compacted.json",
        f"{7:020d}.{7:020d}.compacted.json",
    )
    tail = find_log_segment(storage).tail
    assert [(file.version, file.end) for file in tail] == [(0, 0), (1, 6), (7, 7), (8, 9)]
    assert [(file.version, file.end) for file in find_log_segment(storage, 5).tail] == [
        (0, 0),
        (1, 3),
        (4, 4),
        (5, 5),
    ]


def counted(storage: MemoryStorage) -> tuple[FaultyStorage, Counter[tuple[str, str]]]:
    calls: Counter[tuple[str, str]] = Counter()

    def count(name: str, key: str) -> None:
        calls[name, key] += 1

    return FaultyStorage(storage, before=count), calls


def in_memory(corpus: Corpus, name: str) -> MemoryStorage:
    storage = MemoryStorage()
    for path in sorted(corpus.table(name).rglob("*")):
        if path.is_file():
            storage.put(str(path.relative_to(corpus.table(name))), path.read_bytes())
    return storage


@pytest.mark.parametrize(
    "name",
    [
        "golden-dv-partitioned-with-checkpoint",
        "krs-v1-multi-part-partitioned-struct-stats-only",
        "kernel-pagination-v2-checkpoint-json",
        "golden-v2-checkpoint-parquet",
    ],
)
def test_a_cold_open_costs_the_pointer_one_list_and_each_needed_file_once(corpus: Corpus, name: str) -> None:
    storage, calls = counted(in_memory(corpus, name))
    segment = find_log_segment(storage)
    snapshot = Snapshot(storage, segment)
    assert segment.checkpoint is not None
    snapshot.files()
    assert snapshot.num_files
    assert [key for (call, key) in calls if call == "list_from"] == ["_delta_log"]
    assert set(calls.values()) == {1}
    reads = {key for (call, key) in calls if call in ("read", "open_read")}
    sidecars = {key for key in reads if "_sidecars" in key}
    files = {file.key for file in (*segment.checkpoint.files, *segment.commits)}
    assert reads - sidecars == {"_delta_log/_last_checkpoint", *files}
    assert {call for call, _ in calls} <= {"read", "list_from"}


def test_a_refresh_costs_one_list_and_the_new_commits(corpus: Corpus) -> None:
    storage, calls = counted(in_memory(corpus, "golden-dv-partitioned-with-checkpoint"))
    snapshot = Snapshot(storage, find_log_segment(storage))
    snapshot.files()
    calls.clear()
    assert snapshot.refreshed() is snapshot
    assert calls == {("list_from", "_delta_log"): 1}
    new = f"_delta_log/{snapshot.version + 1:020d}.json"
    storage.put(
        new, json.dumps({"add": {"path": "new", "size": 7, "partitionValues": {"part": "1"}}}).encode()
    )
    calls.clear()
    refreshed = snapshot.refreshed()
    assert refreshed.num_files == snapshot.num_files + 1
    assert refreshed.files(["key"]).num_rows == snapshot.num_files + 1
    assert calls == {("list_from", "_delta_log"): 1, ("read", new): 1}


def test_two_tables_in_one_process_see_each_others_commits_at_once(tmp_path: Path) -> None:
    schema = '{"type":"struct","fields":[]}'
    first = COMMIT + json.dumps({"metaData": {"id": "t", "schemaString": schema}}).encode()
    local = fsspec.filesystem("file", auto_mkdir=True)
    for uri, store in (("memory://seen/at/once", fsspec.filesystem("memory")), (str(tmp_path), local)):
        log = f"{uri.removeprefix('memory:/')}/_delta_log"
        store.pipe_file(f"{log}/{commits(0)[0]}", first)
        one, other = Table(uri), Table(uri)
        assert one.snapshot().version == other.snapshot().version == 0
        store.pipe_file(f"{log}/{commits(1)[0]}", COMMIT)
        assert one.snapshot().version == other.snapshot().version == 1
