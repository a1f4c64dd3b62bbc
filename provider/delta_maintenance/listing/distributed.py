"""A listing in parts, for a tree that is too large for one process. An engine has tasks list the parts.

The tree is cut as in :mod:`delta_log.storage.objects.object_listing`: the upper levels directory by directory, one level at a time,
until there are enough directories; then each directory with everything below it. If the store can start and end a listing
at a key, a directory with very many known files is cut further, between two of them. So no part has more than some hundred
thousand files, unless the log does not know them.

Tasks leave protected files out of their answers. They know them from a snapshot that is older than the listing. The files
that come back are compared with the snapshot that is read after the listing, as in any other listing. A file that was
protected only by the older snapshot stays until the next run.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct
from msgspec.structs import replace

from delta_log.log.file_names import LOG_DIRECTORY
from delta_log.storage.objects.object_listing import MAX_SHALLOW_LEVELS, Run, runs_of, span_of
from delta_log.storage.storage import KeySpan, Storage
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.listing.listing import LISTING_SCHEMA, Listing, ListingCollector
from delta_maintenance.listing.part import REQUESTS, ListingPart, unpack
from delta_maintenance.listing.sorted_keys import SortedKeys
from delta_maintenance.partitions.partition_scope import PartitionScope
from delta_maintenance.progress import ProgressReporter

#: Has tasks list some parts, given the file of the protected keys. Yields the answers of
#: :func:`~delta_maintenance.listing.part.list_part` in any order.
RunParts = Callable[[Sequence[ListingPart], Path], Iterable[pa.RecordBatch]]
#: More parts than tasks that run at once, since directories differ in size.
_PARTS_PER_TASK = 4
_SPLIT_KEYS = 50_000
#: The cost of one request, in keys that a page lists in the same time.
_REQUEST_KEYS = 100
#: A smaller part is not worth a task.
_LEAST_KEYS = 5_000


class DistributedListing(Struct, frozen=True):
    """Lists a table in parts.

    :param run: function that has tasks list the parts.
    :param parallelism: number of parts that are listed at once.
    :param new_id: function that returns an id, which makes the name of a file unique in this process.
    :param split_keys: number of known files at which a directory is cut further.
    """

    storage: Storage
    run: RunParts
    parallelism: int
    new_id: Callable[[], str]
    split_keys: int = _SPLIT_KEYS

    def list_files(
        self,
        hidden: HiddenNames,
        scope: PartitionScope | None,
        protected: pa.ChunkedArray,
        progress: ProgressReporter,
        *,
        wants_files: bool = True,
    ) -> Listing:
        """List the table.

        :param protected: keys that are protected by a snapshot from before the listing; the listing's files exclude them.
        :param wants_files: ``False``: the listing has no files, and only says which protected keys are absent.
        :raises VacuumRefused: the machine of a task does not see the table.
        """
        with tempfile.TemporaryDirectory(prefix="delta-vacuum-") as directory:
            path = Path(directory) / f"protected-{self.new_id()}.arrow"
            SortedKeys.write(path, protected)
            running = _RunningListing(self, ListingCollector(hidden, scope), SortedKeys(path), path, progress)
            running.list_tree(hidden, scope, wants_files=wants_files)
            return running.listing(protected)


class _RunningListing:
    """One distributed listing while it runs: cuts the tree level by level, and merges the answers."""

    def __init__(
        self,
        distributed: DistributedListing,
        collector: ListingCollector,
        known: SortedKeys,
        path: Path,
        progress: ProgressReporter,
    ) -> None:
        self._distributed, self._collector, self._known = distributed, collector, known
        self._path, self._progress = path, progress
        self._seen = np.zeros(len(known), bool)
        self._files: list[pa.RecordBatch] = []

    def list_tree(self, hidden: HiddenNames, scope: PartitionScope | None, *, wants_files: bool) -> None:
        storage = self._distributed.storage
        template = ListingPart(0, storage.uri, (), hidden, wants_files)
        # A predicate stays in this process. So if it decides about every directory, the tree is cut down to the last level.
        cuts_every_level = scope is not None and storage.has_directories
        # On an object store, the level of the cut decides which directories are counted. So cut where one process would cut.
        enough = self._distributed.parallelism if storage.has_directories else storage.concurrency
        level, depth = [""], 0
        while level:
            found_in = self._round(template, [span_of(directory) for directory in level])
            if not depth and LOG_DIRECTORY not in found_in.get("", ()):
                raise VacuumRefused(
                    f"The machine that listed {storage.uri} saw no {LOG_DIRECTORY} there. Nothing was deleted. The table has to be "
                    "at the same address for every machine; or use the local engine."
                )
            runs: list[Run] = []
            level = []
            for directory in found_in:
                names = list(dict.fromkeys(found_in[directory]))
                entered = set(self._collector.enter(names)) if names else set()
                level += (name for name in names if name in entered)
                runs += runs_of(directory, names, entered, has_ranges=storage.has_key_ranges)
            depth += 1
            if level and not cuts_every_level and (len(level) >= enough or depth == MAX_SHALLOW_LEVELS):
                each = max(1, len(level) // (self._distributed.parallelism * _PARTS_PER_TASK * REQUESTS))
                self._round(template, [span for run in runs for span in run.spans(each)])
                return

    def listing(self, protected: pa.ChunkedArray) -> Listing:
        listing = self._collector.listing()
        files = pa.Table.from_batches(self._files, LISTING_SCHEMA)
        return replace(
            listing,
            files=files,
            num_passed=self._collector.num_visible - files.num_rows,
            looked_for=protected,
            absent=self._known.rows(0, len(self._known)).filter(pa.array(~self._seen)),
        )

    def _round(self, template: ListingPart, spans: Sequence[KeySpan]) -> dict[str, list[str]]:
        """List some spans, and return the directories found in each directory."""
        pieces = [piece for span in spans for piece in self._pieces(span)]
        parts = [
            replace(template, number=number, spans=tuple(chosen))
            for number, chosen in enumerate(self._parts(pieces))
        ]
        self._progress.message(
            f"listing {len(spans):,} directories in {len(parts):,} parts, {self._collector.num_visible:,} files so far"
        )
        found_in: dict[str, list[str]] = {}
        for batch in self._distributed.run(parts, self._path):
            has_facts = pc.is_valid(batch.column("facts"))
            found = batch.filter(pc.invert(has_facts)).select(LISTING_SCHEMA.names)
            if found.num_rows:
                self._files.append(pa.record_batch(found.columns, schema=LISTING_SCHEMA))
            for row in batch.filter(has_facts).to_pylist():
                facts = json.loads(row["facts"])
                for directory, names in facts.pop("met").items():
                    found_in.setdefault(directory, []).extend(names)
                self._collector.absorb(facts)
                unpack(self._seen, row["seen_from"], row["seen"])
        return found_in

    def _parts(self, spans: Sequence[KeySpan]) -> Iterator[list[KeySpan]]:
        """Group spans into parts with about the same number of known files."""
        weights = [_REQUEST_KEYS + end - start for start, end in map(self._rows, spans)]
        most = max(_LEAST_KEYS, sum(weights) // (self._distributed.parallelism * _PARTS_PER_TASK))
        part: list[KeySpan] = []
        weight = 0
        for span, more in zip(spans, weights, strict=True):
            if part and weight + more > most:
                yield part
                part, weight = [], 0
            part.append(span)
            weight += more
        if part:
            yield part

    def _rows(self, span: KeySpan) -> tuple[int, int]:
        """Find the range of known keys in a span."""
        start = self._known.row_of(max(span.start, span.prefix))
        after = [
            text for text in (span.end, f"{span.prefix[:-1]}0" if span.prefix else None) if text is not None
        ]
        return start, self._known.row_of(min(after)) if after else len(self._known)

    def _pieces(self, span: KeySpan) -> list[KeySpan]:
        """Cut a span between known keys if it holds many of them."""
        split_keys = self._distributed.split_keys
        start, end = self._rows(span)
        if end - start < 2 * split_keys or not self._distributed.storage.has_key_ranges:
            return [span]
        keys = self._known.rows(start, end)
        if not span.deep:
            keys = keys.filter(
                pc.invert(pc.match_substring(pc.utf8_slice_codeunits(keys, len(span.prefix)), "/"))
            )
        rows = range(split_keys, len(keys) - split_keys + 1, split_keys)
        cuts = [cut for row in rows if (cut := _just_after(keys[row].as_py())) is not None]
        if not cuts:
            return [span]
        if span.deep and not span.start:
            # A deep span with a range skips files directly in its prefix. So take the parent as prefix, limited to this one.
            parent, slash, _ = span.prefix[:-1].rpartition("/")
            span = KeySpan(parent + slash, True, span.prefix, f"{span.prefix[:-1]}0")
        edges = [span.start, *cuts, span.end]
        return [replace(span, start=first or "", end=last) for first, last in pairwise(edges)]


def _just_after(key: str) -> str | None:
    """Make a text that sorts after a key and is unlikely to be a key; ``None`` if the key's end does not allow it."""
    last = key[-1]
    return key[:-1] + chr(ord(last) + 1) if last.isascii() and last.isalnum() else None
