"""An early comparison finds the files that a comparison after the listing finds."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_log.testing import MemoryStorage
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.listing.listing import LISTING_SCHEMA, ListingCollector
from delta_maintenance.vacuum.early_comparison import EarlyComparison, with_times
from delta_maintenance.vacuum.plan.protected_files import MENTION_SCHEMA, ProtectedFiles

KEYS = [f"p={number % 3}/f{number}" for number in range(12)]


@pytest.fixture(scope="module")
def pool() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(1) as pool:
        yield pool


def protecting(keys: set[str]) -> ProtectedFiles:
    live, removed = ([key for key in sorted(keys) if (key < "p=1") == first] for first in (True, False))
    columns = [pa.chunked_array([pa.array(part, pa.string())]) for part in (live, removed)]
    return ProtectedFiles(columns[0], columns[1], MENTION_SCHEMA.empty_table(), frozenset(), 0)


@given(st.data())
def test_an_early_comparison_finds_what_a_late_one_finds(
    pool: ThreadPoolExecutor, data: st.DataObject
) -> None:
    listed = data.draw(st.permutations(KEYS).map(lambda keys: keys[:10]))
    known, later = (protecting(data.draw(st.sets(st.sampled_from(KEYS)))) for _ in range(2))
    gone = data.draw(st.sets(st.sampled_from(KEYS)))
    storage = MemoryStorage()
    for key in set(KEYS) - gone:
        storage.put_if_absent(key, b"..")
    collector = ListingCollector(HiddenNames((), False))
    coming: Future[ProtectedFiles] = Future()
    comparison = EarlyComparison(storage, pool, coming, least_files=data.draw(st.integers(1, 4)))
    arrives = data.draw(st.integers(0, 4))
    for number, start in enumerate(range(0, len(listed), 2)):
        if number == arrives:
            coming.set_result(known)
        keys = listed[start : start + 2]
        collector.take_batch(pa.record_batch([keys, [None] * len(keys), [None] * len(keys)], LISTING_SCHEMA))
        comparison.offer(collector)
        if data.draw(st.booleans()):
            pool.submit(int).result()  # wait until a comparison has ended
    files = collector.listing().files
    for protected in (known, later):
        kept = set(protected.keys.to_pylist())
        found = comparison.unprotected(files, protected)
        assert set(listed) - kept - gone <= set(found.column("key").to_pylist()) <= set(listed) - kept
        looked_up = with_times(storage, found)
        assert sorted(looked_up.column("key").to_pylist()) == sorted(set(listed) - kept - gone)
        assert set(looked_up.column("size").to_pylist()) <= {2}


def test_files_are_compared_while_the_listing_continues(pool: ThreadPoolExecutor) -> None:
    storage, collector = MemoryStorage(), ListingCollector(HiddenNames((), False))
    storage.put_if_absent(KEYS[1], b"")
    known: Future[ProtectedFiles] = Future()
    known.set_result(protecting(set(KEYS[:1])))
    comparison = EarlyComparison(storage, pool, known, least_files=3)
    reads = storage.sizes_and_times(KEYS[1:2])
    for start in (0, 2):
        keys = KEYS[start : start + 2]
        collector.take_batch(pa.record_batch([keys, [None] * 2, [None] * 2], LISTING_SCHEMA))
        comparison.offer(collector)
    pool.submit(int).result()
    found = comparison.unprotected(collector.listing().files, known.result())
    # The other two files are absent. The early comparison has looked them up; a late one would still name them.
    assert found.to_pylist() == [
        {"key": KEYS[1], "size": reads[0][0], "modification_time_ms": reads[1][0]},
    ]


def test_nothing_is_compared_early_if_the_early_reading_failed(pool: ThreadPoolExecutor) -> None:
    collector = ListingCollector(HiddenNames((), False))
    failed: Future[ProtectedFiles] = Future()
    failed.set_exception(OSError("no answer"))
    comparison = EarlyComparison(MemoryStorage(), pool, failed, least_files=1)
    collector.take_batch(pa.record_batch([KEYS, [None] * 12, [None] * 12], LISTING_SCHEMA))
    comparison.offer(collector)
    # The log was read again after the listing, and that reading counts.
    assert comparison.unprotected(collector.listing().files, protecting(set(KEYS))).num_rows == 0
