"""A listing of a tree that is too large for one process: cut into parts, each listed wherever the caller has it listed.

The cut is the one that :mod:`delta_log.storage.object_listing` makes: upper levels directory by directory, all of a level at once,
until there are enough directories; from there on each with all below it. A directory of very many known files is cut
further, between two of them, where the store can start and end a listing at a key. So no part is a matter of more than
some hundred thousand files, unless nobody knew of them.

What has to stay is known before, from the snapshot that the caller has. It is no more than a filter: whatever comes back
is held against the snapshot that is read after the listing, like the files of any other. A file that was protected
before and no longer is stays for the next run.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_log.log.file_names import LOG_DIRECTORY
from delta_log.storage.object_listing import MAX_SHALLOW_LEVELS, Run, runs_of, span_of
from delta_log.storage.storage import KeySpan, Storage
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.listing.listing import LISTING_SCHEMA, Listing, ListingCollector
from delta_maintenance.listing.part import LANES, ListingPart, unpack
from delta_maintenance.listing.sorted_keys import SortedKeys
from delta_maintenance.partitions.partition_scope import PartitionScope
from delta_maintenance.progress import ProgressReporter

#: Has parts listed somewhere; given the file of the protected keys. Gives what
#: :func:`~delta_maintenance.listing.part.list_part` gives for each of them, in any order.
RunParts = Callable[[Sequence[ListingPart], Path], Iterable[pa.RecordBatch]]
#: More parts than tasks at a time, since nobody knows how many files a directory holds.
_PARTS_PER_TASK = 4
_SPLIT_KEYS = 50_000
#: A request takes as long as so many keys of a page.
_REQUEST_KEYS = 100
#: A smaller part is not worth a task.
_LEAST_KEYS = 5_000


@dataclass(frozen=True, slots=True)
class DistributedListing:
    """
    :param parallelism: so many parts are listed at a time.
    :param new_id: names a file that no other call of this process names.
    :param split_keys: so many known files make a part.
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
        """
        :param protected: keys that have to stay, as far as that is known before; they are not among the listing's files.
        :param wants_files: else the listing has none, and tells about protected keys alone.
        :raises VacuumRefused: whoever lists does not see the table.
        """
        with tempfile.TemporaryDirectory(prefix="delta-vacuum-") as directory:
            path = Path(directory) / f"protected-{self.new_id()}.arrow"
            SortedKeys.write(path, protected)
            course = _Course(self, ListingCollector(hidden, scope), SortedKeys(path), path, progress)
            course.list_tree(hidden, scope, wants_files=wants_files)
            return course.listing(protected)


class _Course:
    """One listing under way."""

    def __init__(
        self,
        lister: DistributedListing,
        collector: ListingCollector,
        known: SortedKeys,
        path: Path,
        progress: ProgressReporter,
    ) -> None:
        self._lister, self._collector, self._known = lister, collector, known
        self._path, self._progress = path, progress
        self._seen = np.zeros(len(known), bool)
        self._files: list[pa.RecordBatch] = []

    def list_tree(self, hidden: HiddenNames, scope: PartitionScope | None, *, wants_files: bool) -> None:
        storage = self._lister.storage
        template = ListingPart(0, storage.uri, (), hidden, wants_files)
        # Where every directory is asked about, it is asked about here: a predicate does not travel.
        is_asked = scope is not None and storage.has_directories
        # On an object store the level of the cut decides what is counted, so it is the one that a single process chooses.
        lanes = self._lister.parallelism if storage.has_directories else storage.concurrency
        level, depth = [""], 0
        while level:
            met = self._round(template, [span_of(directory) for directory in level])
            if not depth and LOG_DIRECTORY not in met.get("", ()):
                raise VacuumRefused(
                    f"Whoever listed {storage.uri} saw no {LOG_DIRECTORY} there. Nothing was deleted. The table has to be "
                    "at the same address for every machine; or use --engine local."
                )
            runs: list[Run] = []
            level = []
            for directory in met:
                names = list(dict.fromkeys(met[directory]))
                entered = set(self._collector.enter(names)) if names else set()
                level += (name for name in names if name in entered)
                runs += runs_of(directory, names, entered, has_ranges=storage.has_key_ranges)
            depth += 1
            if level and not is_asked and (len(level) >= lanes or depth == MAX_SHALLOW_LEVELS):
                each = max(1, len(level) // (self._lister.parallelism * _PARTS_PER_TASK * LANES))
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
        """List some spans; the directories that were met, by the directory that they lie in."""
        pieces = [piece for span in spans for piece in self._pieces(span)]
        parts = [
            replace(template, number=number, spans=tuple(chosen))
            for number, chosen in enumerate(self._parts(pieces))
        ]
        self._progress.message(
            f"listing {len(spans):,} directories in {len(parts):,} parts, {self._collector.num_visible:,} files so far"
        )
        met: dict[str, list[str]] = {}
        for batch in self._lister.run(parts, self._path):
            told = pc.is_valid(batch.column("facts"))
            found = batch.filter(pc.invert(told)).select(LISTING_SCHEMA.names)
            if found.num_rows:
                self._files.append(pa.record_batch(found.columns, schema=LISTING_SCHEMA))
            for row in batch.filter(told).to_pylist():
                facts = json.loads(row["facts"])
                for directory, names in facts.pop("met").items():
                    met.setdefault(directory, []).extend(names)
                self._collector.absorb(facts)
                unpack(self._seen, row["seen_from"], row["seen"])
        return met

    def _parts(self, spans: Sequence[KeySpan]) -> Iterator[list[KeySpan]]:
        """Of about as many known files each."""
        weights = [_REQUEST_KEYS + end - start for start, end in map(self._rows, spans)]
        most = max(_LEAST_KEYS, sum(weights) // (self._lister.parallelism * _PARTS_PER_TASK))
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
        """The known keys that begin with a span's prefix and lie in it."""
        start = self._known.row_of(max(span.start, span.prefix))
        after = [
            text for text in (span.end, f"{span.prefix[:-1]}0" if span.prefix else None) if text is not None
        ]
        return start, self._known.row_of(min(after)) if after else len(self._known)

    def _pieces(self, span: KeySpan) -> list[KeySpan]:
        """A span, cut between known keys where it holds many of them."""
        start, end = self._rows(span)
        if end - start < 2 * self._lister.split_keys or not self._lister.storage.has_key_ranges:
            return [span]
        keys = self._known.rows(start, end)
        if not span.deep:
            keys = keys.filter(
                pc.invert(pc.match_substring(pc.utf8_slice_codeunits(keys, len(span.prefix)), "/"))
            )
        cuts = [
            cut
            for row in range(
                self._lister.split_keys, len(keys) - self._lister.split_keys + 1, self._lister.split_keys
            )
            if (cut := _just_after(keys[row].as_py())) is not None
        ]
        if not cuts:
            return [span]
        if span.deep and not span.start:
            # What lies beside the directories of a span is passed over, so it is named by the one above.
            above = span.prefix[:-1].rpartition("/")
            span = KeySpan(above[0] + above[1], True, span.prefix, f"{span.prefix[:-1]}0")
        edges = [span.start, *cuts, span.end]
        return [replace(span, start=first or "", end=last) for first, last in pairwise(edges)]


def _just_after(key: str) -> str | None:
    """A text behind a key that is hardly one itself; ``None``: none such is at hand."""
    last = key[-1]
    return key[:-1] + chr(ord(last) + 1) if last.isascii() and last.isalnum() else None
