"""The live files, or the tombstones, of one version: the files of a source, corrected by the commits after it.

The source is a checkpoint, or columns of an older snapshot that are cached. It is filtered as columns and never turned
into Python objects. Columns that were collected are kept, except statistics, which are the bulk of a large table. So a
snapshot that is refreshed by a few commits reads those commits and little more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Protocol as TypingProtocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from delta_log.arrow.arrays import arrow_array
from delta_log.arrow.key_prefilter import KeyMarks
from delta_log.errors import OTHER_COMMIT, CorruptLog
from delta_log.log.action_columns import action_table, identities_in, identities_of, keys_in
from delta_log.log.data_path import decode_paths
from delta_log.log.file_columns import ADD_SCHEMA, REMOVE_SCHEMA, shared_nulls
from delta_log.log.log_replay import ReplayedCommits
from delta_log.snapshot.counts import COUNTED_COLUMNS, Counts

_NEVER_KEPT = "stats"
#: The columns that carrying counts over to a newer version takes.
_COUNTED = ("key", *COUNTED_COLUMNS)
_NO_ROWS: npt.NDArray[np.int64] = np.empty(0, np.int64)
#: Up to this share of rows is cut out of a batch without copying the rest.
_FEW = 1 / 500
#: Rows of a batch that is streamed. Batches that are kept are read smaller, for a lower peak of memory.
_STREAMED_ROWS, _KEPT_ROWS = 1 << 14, 1 << 13
#: So many batches that are kept become one.
_JOINED = 4


class FileActionSource(TypingProtocol):
    """Where most files come from: a checkpoint, or columns of an older snapshot."""

    def batches(
        self, action: str, columns: Sequence[str], batch_rows: int = ...
    ) -> Iterator[pa.RecordBatch]: ...


class FileActions(Struct):
    """The actions of one kind (``add`` or ``remove``) that count in one version.

    Beside the columns of the log there is ``key``: the decoded storage key relative to the table's root, or the address
    of a file outside of it.

    :param tail: the commits after ``source``.
    :param cached: columns of an older snapshot, and ``newer`` the commits after that snapshot.
    """

    action: str
    tail: ReplayedCommits
    source: FileActionSource | None
    table_uri: str
    cached: CachedColumns | None = None
    newer: ReplayedCommits = field(default_factory=ReplayedCommits)
    _kept: dict[str, pa.ChunkedArray] = field(default_factory=dict)
    #: The marks of the kept keys; a newer version looks its keys up in them.
    _marks: KeyMarks | None = None
    _counted: Counts | None = None

    def batches(
        self, action: str, columns: Sequence[str], batch_rows: int = _STREAMED_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """The actions, newest first, streamed. Columns that are kept already are not read again; no more are kept."""
        assert action == self.action
        return self._stream(columns, batch_rows, in_place=False)

    def table(self, columns: Sequence[str]) -> pa.Table:
        """What :meth:`batches` gives, collected and kept."""
        missing = [name for name in columns if name not in self._kept]
        found: dict[str, pa.ChunkedArray] = {}
        if missing:
            # A newer version will look keys up; mostly they are the paths and cost nothing.
            wanted = missing if "key" in self._kept else list(dict.fromkeys([*missing, "key"]))
            table = pa.Table.from_batches(
                self._stream(wanted, _KEPT_ROWS, in_place=True), self.schema(wanted)
            )
            found = dict(zip(wanted, table.columns, strict=True))
            self._kept.update({name: column for name, column in found.items() if name != _NEVER_KEPT})
            if self._marks is None:
                self._marks = KeyMarks.of(self._kept["key"])
        return pa.table(
            {name: self._kept.get(name, found.get(name)) for name in columns}, self.schema(columns)
        )

    def refreshed(self, newer: ReplayedCommits) -> FileActions:
        """The actions of a later version, given the commits in between; reads nothing."""
        tail = newer.over(self.tail)
        if self._marks is not None and all(name in self._kept for name in _COUNTED):
            cached = CachedColumns(dict(self._kept), self._marks, self.counts())
            return FileActions(self.action, tail, self.source, self.table_uri, cached, newer)
        if self.cached is not None:
            since = newer.over(self.newer)
            return FileActions(self.action, tail, self.source, self.table_uri, self.cached, since)
        return FileActions(self.action, tail, self.source, self.table_uri)

    def counts(self) -> Counts:
        """Totals, derived from the totals of an older snapshot where there are any."""
        if self._counted is None:
            self._counted = self._count()
        return self._counted

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        known = ADD_SCHEMA if self.action == "add" else REMOVE_SCHEMA
        return pa.schema(
            [pa.field("key", pa.string()) if name == "key" else known.field(name) for name in columns]
        )

    def _stream(self, columns: Sequence[str], batch_rows: int, *, in_place: bool) -> Iterator[pa.RecordBatch]:
        """Read the actions.

        :param in_place: ``True``: give the parts between superseded files without copying them. That saves memory where all
            batches are kept, and makes many small batches, which are slow to work on one by one.
        """
        if self._kept and all(name in self._kept for name in columns):
            yield from self.table(columns).to_batches()
            return
        tail, source = self._nearest(columns)
        yield from (batch for batch in self._of_tail(tail, columns).to_batches() if batch.num_rows)
        if source is None:
            return
        lookup = _Lookup.of(tail, self.action)
        if isinstance(source, CachedColumns):
            needed = list(dict.fromkeys([*columns, "key", "deletion_vector"]))
        else:  # the key is made from the path
            identity = (
                ("path", "deletion_vector") if tail.has_files else ("path",) if "key" in columns else ()
            )
            needed = list(dict.fromkeys([*(name for name in columns if name != "key"), *identity]))
        schema = self.schema(columns)
        batches = source.batches(self.action, needed, batch_rows)
        if in_place and not isinstance(source, CachedColumns):
            batches = _compacted(batches)
        for batch in batches:
            keys = None
            if "key" in needed:
                keys = batch.column("key")
            elif "path" in needed:
                keys = decode_paths(batch.column("path"), self.table_uri)
            arrays = [keys if name == "key" else batch.column(name) for name in columns]
            met = lookup.rows(keys, batch) if keys is not None and tail.has_files else _NO_ROWS
            yield from _without(pa.record_batch(arrays, schema=schema), met, in_place)

    def _nearest(self, columns: Sequence[str]) -> tuple[ReplayedCommits, FileActionSource | None]:
        """The cheapest source of some columns, and the commits after it. All sources give the same order."""
        if self.cached is not None and all(name in self.cached.columns for name in columns):
            return self.newer, self.cached
        return self.tail, self.source

    def _of_tail(self, tail: ReplayedCommits, columns: Sequence[str]) -> pa.Table:
        actions = tail.adds if self.action == "add" else tail.removes
        return action_table(self.action, actions, columns, self.schema(columns))

    def _count(self) -> Counts:
        if self.cached is None or all(name in self._kept for name in _COUNTED):
            total = Counts()
            for batch in self.batches(self.action, _COUNTED):
                total = total.plus(Counts.of(batch))
            return total
        total = self.cached.counts
        for superseded in self.cached.superseded(_Lookup.of(self.newer, self.action)):
            total = total.plus(Counts.of(superseded), -1)
        return total.plus(Counts.of(self._of_tail(self.newer, _COUNTED)))


class CachedColumns(Struct, frozen=True):
    """Columns of an older snapshot's files, as a source for newer versions."""

    columns: dict[str, pa.ChunkedArray]
    marks: KeyMarks
    counts: Counts

    def batches(
        self, action: str, columns: Sequence[str], batch_rows: int = _STREAMED_ROWS
    ) -> Iterator[pa.RecordBatch]:
        table = pa.table({name: self.columns[name] for name in columns})
        yield from table.to_batches(batch_rows)

    def superseded(self, lookup: _Lookup) -> Iterator[pa.RecordBatch]:
        """The files that newer commits supersede, in the columns that counting takes. Reads few of the batches."""
        rows = self.marks.possible_matches(lookup.marks)
        if not len(rows):
            return
        table = pa.table({name: self.columns[name] for name in _COUNTED})
        start = 0
        for batch in table.to_batches():
            first, last = np.searchsorted(rows, (start, start + batch.num_rows))
            if first < last:
                few = batch.take(arrow_array(rows[first:last] - start))
                yield few.take(arrow_array(lookup.rows(few.column("key"), few)))
            start += batch.num_rows


class _Lookup(Struct, frozen=True):
    """The identities that some commits name, ready to be looked up in the columns of a source.

    :param live: paths that the commits make live. A source that holds one of them under an identity that the commits
        do not name contradicts them.
    """

    paths: pa.Array
    identities: pa.Array
    live: frozenset[str]
    marks: KeyMarks

    @classmethod
    def of(cls, tail: ReplayedCommits, action: str) -> _Lookup:
        identities = pa.concat_arrays([identities_in(tail.adds), identities_in(tail.removes)])
        added, removed = keys_in(tail.adds), keys_in(tail.removes)
        live = frozenset(added.to_pylist()) if action == "add" else frozenset()
        paths = pa.concat_arrays([added, removed])
        return cls(paths, identities, live, KeyMarks.of(pa.chunked_array([paths])))

    def rows(self, keys: pa.Array, files: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """The rows of a source that the commits supersede. A source holds each identity once."""
        if not len(self.paths):
            return _NO_ROWS
        # Few files are superseded. The marks find candidates fast, and miss none.
        rows = KeyMarks.of(pa.chunked_array([keys])).possible_matches(self.marks)
        if not len(rows):
            return _NO_ROWS
        at = arrow_array(rows)
        paths = keys.take(at)
        identities = identities_of(paths, files.column("deletion_vector").take(at))
        superseded = pc.is_in(identities, value_set=self.identities)
        exactly: npt.NDArray[np.bool_] = superseded.to_numpy(zero_copy_only=False)
        for path in paths.filter(pc.invert(superseded)).to_pylist():
            if path in self.live:
                raise CorruptLog(
                    path, "two live adds name this file, under different deletion vectors", OTHER_COMMIT
                )
        return rows[exactly]


def _compacted(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The rows of some batches in larger ones, in memory of exactly their size.

    Arrow's own allocator rounds up, and keeps much of what a decoder frees: a million files with their statistics took
    a third more than their size.
    """
    pool = pa.system_memory_pool()
    while group := list(islice(batches, _JOINED)):
        columns = [
            shared_nulls(sum(map(len, parts)), parts[0].type)
            if all(part.null_count == len(part) for part in parts)
            else pa.concat_arrays(parts, memory_pool=pool)
            for parts in zip(*(batch.columns for batch in group), strict=True)
        ]
        schema = group[0].schema
        del group
        pa.default_memory_pool().release_unused()
        yield pa.record_batch(columns, schema=schema)


def _without(batch: pa.RecordBatch, rows: npt.NDArray[np.int64], in_place: bool) -> Iterator[pa.RecordBatch]:
    """A batch without some of its rows, which are given in ascending order."""
    if len(rows) and (not in_place or len(rows) > _FEW * batch.num_rows):
        keep = np.ones(batch.num_rows, np.bool_)
        keep[rows] = False
        batch, rows = batch.filter(arrow_array(keep)), _NO_ROWS
    start = 0
    for row in [*rows.tolist(), batch.num_rows]:
        if row > start:
            yield batch.slice(start, row - start)
        start = row + 1
