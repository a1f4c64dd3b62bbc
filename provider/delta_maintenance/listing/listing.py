"""What lies below a table's root, as VACUUM sees it: files as columns, and directories if the store has them.

A listing must be made before the snapshot is read. A file that is written and committed between the two is then in the
snapshot and not in the listing, so it is no candidate. In the other order, VACUUM would take it for an orphan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from delta_log.arrow.arrays import arrow_array
from delta_log.storage.storage import Storage, TreePage
from delta_maintenance.listing.hidden_names import LOG_DIRECTORY, HiddenNames
from delta_maintenance.listing.key_columns import directories_of, names_beginning
from delta_maintenance.listing.neighbours import neighbours_by_directory, neighbours_by_file
from delta_maintenance.listing.sorted_keys import KeyHashes
from delta_maintenance.partitions.partition_scope import PartitionScope
from delta_maintenance.progress import ProgressReporter

#: ``size`` in bytes, ``modification_time_ms`` by the store's clock; both null if the listing did not tell.
LISTING_SCHEMA = pa.schema([("key", pa.string()), ("size", pa.int64()), ("modification_time_ms", pa.int64())])
_BATCH_ROWS = 1 << 16
#: Files between two messages of progress.
_REPORTED_FILES = 100_000


class Listing(Struct, frozen=True, eq=False):
    """The files and directories below a root.

    :param files: visible files, each key once: :data:`LISTING_SCHEMA`.
    :param directories: time of the last change of each directory, by directory; empty if the store has no directories.
    :param counts: number of ``files`` in each directory, by directory; includes the root, and is empty without directories.
    :param untouched: directories with contents that VACUUM does not look at or must not touch.
    :param not_entered: directories that were not listed, since they are hidden or out of scope.
    :param num_directories: number of directories that were listed, including the root.
    :param others: number of symbolic links and of anything else that is neither file nor directory.
    :param neighbours: the kind of each neighbour below the root, by directory (:mod:`~delta_maintenance.listing.neighbours`).
    :param num_passed: files that a distributed listing found and left out of ``files``, since their keys are among
        ``looked_for``.
    :param looked_for: the protected keys that a distributed listing was given; ``absent``: those that it did not find.
    """

    files: pa.Table
    directories: dict[str, int] = field(default_factory=dict)
    counts: dict[str, int] = field(default_factory=dict)
    untouched: frozenset[str] = frozenset()
    not_entered: frozenset[str] = frozenset()
    num_directories: int = 0
    others: int = 0
    neighbours: Mapping[str, str] = field(default_factory=dict)
    num_passed: int = 0
    looked_for: pa.ChunkedArray = field(default_factory=lambda: pa.chunked_array([], pa.string()))
    absent: pa.ChunkedArray = field(default_factory=lambda: pa.chunked_array([], pa.string()))

    @property
    def num_files(self) -> int:
        return int(self.files.num_rows) + self.num_passed


class ListingCollector:
    """Collects the pages of a storage's ``list_tree`` into a :class:`Listing`.

    :param scope: directories of partitions outside of this scope are not listed.
    """

    def __init__(self, hidden: HiddenNames, scope: PartitionScope | None = None) -> None:
        self._hidden, self._scope = hidden, scope
        self._batches: list[pa.RecordBatch] = []
        self._keys: list[str] = []
        self._sizes: list[int | None] = []
        self._times: list[int | None] = []
        self._directories: dict[str, int] = {}
        self._counts: Counter[str] = Counter()
        self._untouched: set[str] = set()
        self._not_entered: set[str] = set()
        self._parents: set[str] = set()
        self._neighbours: dict[str, str] = {}
        self._others = 0
        self._num_held = 0
        self.num_files = self.num_visible = 0

    def enter(self, directories: Sequence[str]) -> Collection[str]:
        """Select the directories to list, given those that the storage has found."""
        self._neighbours |= neighbours_by_directory(directories, self._hidden)
        entered = [directory for directory in directories if not self._hidden.hides(directory)]
        if self._scope is not None:
            inside = self._scope.contains(entered)
            entered = [d for d, answer in zip(entered, inside, strict=True) if answer is not False]
        left_out = set(directories).difference(entered)
        self._not_entered |= left_out
        # The log of this table lies in the root, which is never deleted.
        self._untouched.update(_parent(directory) for directory in left_out if directory != LOG_DIRECTORY)
        return entered

    def take(self, page: TreePage) -> None:
        self._directories.update(page.directories)
        self._others += len(page.others)
        self._untouched.update(map(_parent, page.others))
        if page.runs is not None:
            self._take_runs(page.keys, page.runs)
            return
        self._keys += page.keys
        unknown = [None] * len(page.keys)
        self._sizes += unknown if page.sizes is None else page.sizes
        self._times += unknown if page.modification_times_ms is None else page.modification_times_ms
        self._parents.update(map(_parent, page.keys))
        if len(self._keys) >= _BATCH_ROWS:
            self._flush()

    def take_batch(self, batch: pa.RecordBatch) -> None:
        """Add files from a store without directories.

        :param batch: batch with the schema :data:`LISTING_SCHEMA`.
        """
        self._flush()
        self._parents |= directories_of(batch.column(0))
        self._take_batch(batch)

    @property
    def num_held(self) -> int:
        """Number of files added since the last :meth:`drained`."""
        return self._num_held + len(self._keys)

    def drained(self) -> list[pa.RecordBatch]:
        """Hand out the files so far, and keep only their number."""
        self._flush()
        batches, self._batches, self._num_held = self._batches, [], 0
        return batches

    def facts(self) -> dict[str, Any]:
        """Give everything except the files as JSON values, for another collector to :meth:`absorb`."""
        self._flush()
        return {
            "directories": self._directories,
            "counts": {directory: files for directory, files in self._counts.items() if files},
            "untouched": sorted(self._untouched),
            "not_entered": sorted(self._not_entered),
            "parents": sorted(self._parents),
            "neighbours": self._neighbours,
            "others": self._others,
            "files": self.num_files,
            "visible": self.num_visible,
        }

    def absorb(self, facts: Mapping[str, Any]) -> None:
        """Add the :meth:`facts` of a collector that listed another part of the tree."""
        self._directories.update(facts["directories"])
        self._counts.update(facts["counts"])
        self._untouched.update(facts["untouched"])
        self._not_entered.update(facts["not_entered"])
        self._parents.update(facts["parents"])
        self._neighbours.update(facts["neighbours"])
        self._others += facts["others"]
        self.num_files += facts["files"]
        self.num_visible += facts["visible"]

    def listing(self) -> Listing:
        self._flush()
        return Listing(
            pa.Table.from_batches(self._batches, LISTING_SCHEMA),
            self._directories,
            {directory: files for directory, files in self._counts.items() if files},
            frozenset(self._untouched),
            frozenset(self._not_entered),
            max(len(self._parents - {""}), len(self._directories)) + 1,
            self._others,
            self._neighbours,
        )

    def _take_runs(self, keys: pa.StringArray, runs: Mapping[str, int]) -> None:
        """Add files by directory. Each directory was entered, so a file can be hidden only by its own name."""
        self._flush()
        self.num_files += len(keys)
        self._neighbours |= neighbours_by_file(keys, self._hidden)
        self._counts.update(runs)
        starts = b"_.m" if self._hidden.hides_metadata else b"_."
        odd = arrow_array(names_beginning(keys, runs, starts))
        hidden = [self._hidden.hides(key) for key in keys.take(odd).to_pylist()]
        if any(hidden):
            gone = odd.filter(pa.array(hidden))
            left_out = Counter(map(_parent, keys.take(gone).to_pylist()))
            self._untouched.update(left_out)
            self._counts.subtract(left_out)
            kept = np.ones(len(keys), bool)
            kept[gone.to_numpy()] = False
            keys = keys.filter(arrow_array(kept))
        unknown = pa.nulls(len(keys), pa.int64())
        self._keep(pa.record_batch([keys, unknown, unknown], schema=LISTING_SCHEMA))

    def _flush(self) -> None:
        batch = pa.record_batch(
            [
                pa.array(self._keys, pa.string()),
                pa.array(self._sizes, pa.int64()),
                pa.array(self._times, pa.int64()),
            ],
            schema=LISTING_SCHEMA,
        )
        self._keys, self._sizes, self._times = [], [], []
        if batch.num_rows:
            self._take_batch(batch)

    def _take_batch(self, batch: pa.RecordBatch) -> None:
        keys = batch.column(0)
        self.num_files += len(keys)
        self._neighbours |= neighbours_by_file(keys, self._hidden)
        hidden = self._hidden.mask(keys)
        if hidden.true_count:
            self._untouched.update(map(_parent, keys.filter(hidden).to_pylist()))
            batch = batch.filter(pc.invert(hidden))
        self._keep(batch)

    def _keep(self, batch: pa.RecordBatch) -> None:
        self._batches.append(batch)
        self._num_held += batch.num_rows
        self.num_visible += batch.num_rows


def list_files(
    storage: Storage,
    hidden: HiddenNames,
    scope: PartitionScope | None,
    progress: ProgressReporter,
) -> Listing:
    """List a table in this process."""
    collector = ListingCollector(hidden, scope)
    for _ in _pages(storage, collector, progress):
        pass
    return collector.listing()


def list_key_hashes(storage: Storage, hidden: HiddenNames, progress: ProgressReporter) -> KeyHashes:
    """List a table in this process, and keep nothing but the hashes of its visible keys: eight bytes for each file."""
    collector = ListingCollector(hidden)

    def parts() -> Iterator[pa.ChunkedArray]:
        for _ in _pages(storage, collector, progress):
            if collector.num_held >= _BATCH_ROWS:
                yield _keys_of(collector.drained())
        yield _keys_of(collector.drained())

    return KeyHashes.of_parts(parts())


def _pages(storage: Storage, collector: ListingCollector, progress: ProgressReporter) -> Iterator[TreePage]:
    """Yield each page of a listing when it has been collected."""
    reported = 0
    progress.message("listing")
    for page in storage.list_tree(collector.enter):
        collector.take(page)
        if collector.num_files >= reported + _REPORTED_FILES:
            reported = collector.num_files
            progress.step(f"listing: {reported:,} files so far")
        yield page


def _keys_of(batches: Sequence[pa.RecordBatch]) -> pa.ChunkedArray:
    return pa.Table.from_batches(batches, LISTING_SCHEMA).column("key")


def listing_from_rows(files: Iterable[pa.RecordBatch], hidden: HiddenNames) -> Listing:
    """Make a listing of rows that a store or a user wrote. If a key comes twice, its newest row counts."""
    collector = ListingCollector(hidden)
    for batch in files:
        collector.take_batch(batch)
    listing = collector.listing()
    # Rows without a time sort last, and so count only if no other row has the key.
    order = pc.sort_indices(listing.files, [("key", "ascending"), ("modification_time_ms", "descending")])
    rows = listing.files.take(order).combine_chunks()
    if rows.num_rows:
        keys = rows.column("key").combine_chunks()
        again = pc.equal(keys[1:], keys[:-1]).to_numpy(zero_copy_only=False)
        rows = rows.filter(arrow_array(np.concatenate([[True], ~again])))
    return Listing(
        rows,
        num_directories=listing.num_directories,
        neighbours=listing.neighbours,
    )


def not_listed(keys: pa.ChunkedArray, listing: Listing) -> pa.ChunkedArray:
    """Select the keys that a listing does not show."""
    listed = listing.files.column("key")
    # The hash table is built from the keys, since the listing may be many times longer.
    seen = listed.filter(pc.is_in(listed, value_set=keys))
    missing = keys.filter(pc.invert(pc.is_in(keys, value_set=seen)))
    if not len(listing.looked_for) or not len(missing):
        return missing
    passed = pc.and_not(
        pc.is_in(missing, value_set=listing.looked_for), pc.is_in(missing, value_set=listing.absent)
    )
    return missing.filter(pc.invert(passed))


def _parent(key: str) -> str:
    return key.rpartition("/")[0]
