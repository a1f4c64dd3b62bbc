"""The live files, or the tombstones, of one version: what a base holds, corrected by the tail.

The base is a checkpoint, or the files of an older snapshot that somebody holds already; it is filtered as columns,
never turned into Python objects. Columns that were collected are kept, all but statistics, which are the bulk of a
large table: so a snapshot that is refreshed by a few commits costs those commits and little more.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from typing import Protocol as TypingProtocol

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from delta_log.arrow.key_prefilter import KeyMarks
from delta_log.errors import CorruptLog
from delta_log.log.action_columns import SEPARATOR, ActionColumns, identities_of
from delta_log.log.data_path import decode_paths
from delta_log.log.file_columns import ADD_SCHEMA, REMOVE_SCHEMA, action_batch, shared_nulls
from delta_log.log.log_replay import ReplayedCommits
from delta_log.stats.file_histogram import FileHistogram

_NEVER_KEPT = "stats"
_COUNTED = ("key", "size", "deletion_vector")
_NO_ROWS: npt.NDArray[np.int64] = np.empty(0, np.int64)
#: Up to this share of rows is cut out of a batch without copying the rest.
_FEW = 1 / 500
#: Of one batch. What is held is taken in smaller steps, so that less memory is asked of the system on the way.
_STREAMED_ROWS, _HELD_ROWS = 1 << 14, 1 << 13
#: Batches of what is held that become one.
_JOINED = 4


class FileActionSource(TypingProtocol):
    """Where most files come from: a checkpoint, or an older snapshot's :class:`FileActions`."""

    def batches(
        self, action: str, columns: Sequence[str], batch_rows: int = ...
    ) -> Iterator[pa.RecordBatch]: ...


@dataclass(frozen=True, slots=True, eq=False)
class Counts:
    """Files, their bytes, how many have deletion vectors, how many rows those hide, and all that in bins."""

    files: int = 0
    size_bytes: int = 0
    deletion_vectors: int = 0
    deleted_rows: int = 0
    histogram: FileHistogram = field(default_factory=FileHistogram)

    @classmethod
    def of(cls, files: pa.RecordBatch | pa.Table) -> Counts:
        vectors = files.column("deletion_vector")
        cardinality = pc.struct_field(vectors, "cardinality")
        return cls(
            files.num_rows,
            pc.sum(files.column("size")).as_py() or 0,
            len(vectors) - vectors.null_count,
            pc.sum(cardinality).as_py() or 0,
            FileHistogram.of(files.column("size"), cardinality),
        )

    def plus(self, other: Counts, sign: int = 1) -> Counts:
        return Counts(
            self.files + sign * other.files,
            self.size_bytes + sign * other.size_bytes,
            self.deletion_vectors + sign * other.deletion_vectors,
            self.deleted_rows + sign * other.deleted_rows,
            self.histogram.plus(other.histogram, sign),
        )


@dataclass(slots=True)
class FileActions:
    """The actions of one kind (``add`` or ``remove``) that count in one version.

    ``key`` is a column beside those of the log: the decoded storage key, relative to the table's root, or the address
    of a file outside of it.
    """

    action: str
    tail: ReplayedCommits
    base: FileActionSource | None
    table_uri: str
    #: The columns of an older snapshot that somebody held already, and what came after it.
    held: CachedColumns | None = None
    newer: ReplayedCommits = field(default_factory=ReplayedCommits)
    _kept: dict[str, pa.ChunkedArray] = field(default_factory=dict)
    #: Of the keys that are kept: for whoever refreshes this.
    _marks: KeyMarks | None = None
    _counted: Counts | None = None

    def batches(
        self, action: str, columns: Sequence[str], batch_rows: int = _STREAMED_ROWS
    ) -> Iterator[pa.RecordBatch]:
        """Newest first, streamed: nothing is kept, unless it had been already."""
        assert action == self.action
        return self._stream(columns, batch_rows, in_place=False)

    def _stream(self, columns: Sequence[str], batch_rows: int, *, in_place: bool) -> Iterator[pa.RecordBatch]:
        """
        :param in_place: give the parts between superseded files without copying them. That saves memory when all is
            held, and makes many small batches, which cost whoever works on one at a time.
        """
        if self._kept and all(name in self._kept for name in columns):
            yield from self.table(columns).to_batches()
            return
        tail, base = self._nearest(columns)
        yield from (batch for batch in self._of_tail(tail, columns).to_batches() if batch.num_rows)
        if base is None:
            return
        lookup = _Lookup.of(tail, self.action)
        if isinstance(base, CachedColumns):
            needed = list(dict.fromkeys([*columns, "key", "deletion_vector"]))
        else:  # there the key is made from the path
            identity = (
                ("path", "deletion_vector") if tail.has_files else ("path",) if "key" in columns else ()
            )
            needed = list(dict.fromkeys([*(name for name in columns if name != "key"), *identity]))
        schema = self.schema(columns)
        batches = base.batches(self.action, needed, batch_rows)
        if in_place and not isinstance(base, CachedColumns):
            batches = _to_hold(batches)
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
        """The base that costs least for some columns, and the tail after it; both ways give the same order."""
        if self.held is not None and all(name in self.held.columns for name in columns):
            return self.newer, self.held
        return self.tail, self.base

    def table(self, columns: Sequence[str]) -> pa.Table:
        """The same, collected; what was collected once is not read again."""
        missing = [name for name in columns if name not in self._kept]
        found: dict[str, pa.ChunkedArray] = {}
        if missing:
            # Whoever refreshes this will look keys up, and mostly they are the paths and cost nothing.
            wanted = missing if "key" in self._kept else list(dict.fromkeys([*missing, "key"]))
            table = pa.Table.from_batches(
                self._stream(wanted, _HELD_ROWS, in_place=True), self.schema(wanted)
            )
            found = dict(zip(wanted, table.columns, strict=True))
            self._kept.update({name: column for name, column in found.items() if name != _NEVER_KEPT})
            if self._marks is None:
                self._marks = KeyMarks.of(self._kept["key"])
        return pa.table(
            {name: self._kept.get(name, found.get(name)) for name in columns}, self.schema(columns)
        )

    def refreshed(self, newer: ReplayedCommits) -> FileActions:
        """The same after some more commits; reads nothing."""
        tail = newer.over(self.tail)
        if self._marks is not None and all(name in self._kept for name in _COUNTED):
            held = CachedColumns(dict(self._kept), self._marks, self.counts())
            return FileActions(self.action, tail, self.base, self.table_uri, held, newer)
        if self.held is not None:
            since = newer.over(self.newer)
            return FileActions(self.action, tail, self.base, self.table_uri, self.held, since)
        return FileActions(self.action, tail, self.base, self.table_uri)

    def counts(self) -> Counts:
        """Totals, from an older snapshot's where there are any."""
        if self._counted is None:
            self._counted = self._count()
        return self._counted

    def _count(self) -> Counts:
        if self.held is None or all(name in self._kept for name in _COUNTED):
            total = Counts()
            for batch in self.batches(self.action, _COUNTED):
                total = total.plus(Counts.of(batch))
            return total
        total = self.held.counts.plus(Counts.of(self._of_tail(self.newer, _COUNTED)))
        for superseded in self.held.superseded(_Lookup.of(self.newer, self.action)):
            total = total.plus(Counts.of(superseded), -1)
        return total

    def schema(self, columns: Sequence[str]) -> pa.Schema:
        known = ADD_SCHEMA if self.action == "add" else REMOVE_SCHEMA
        return pa.schema(
            [pa.field("key", pa.string()) if name == "key" else known.field(name) for name in columns]
        )

    def _of_tail(self, tail: ReplayedCommits, columns: Sequence[str]) -> pa.Table:
        actions: Mapping[str, Any] = tail.adds if self.action == "add" else tail.removes
        if isinstance(actions, ActionColumns):
            return actions.select(list(columns))
        batch = action_batch(self.action, list(actions.values()), [name for name in columns if name != "key"])
        arrays = [_keys(actions) if name == "key" else batch.column(name) for name in columns]
        return pa.Table.from_arrays(arrays, schema=self.schema(columns))


@dataclass(frozen=True, slots=True)
class CachedColumns:
    """Columns of an older snapshot's files, as a base for newer ones."""

    columns: dict[str, pa.ChunkedArray]
    marks: KeyMarks
    counts: Counts

    def batches(
        self, action: str, columns: Sequence[str], batch_rows: int = _STREAMED_ROWS
    ) -> Iterator[pa.RecordBatch]:
        table = pa.table({name: self.columns[name] for name in columns})
        yield from table.to_batches(batch_rows)

    def superseded(self, lookup: _Lookup) -> Iterator[pa.RecordBatch]:
        """What has to be known of the files that a tail supersedes, to count them; few batches are looked at."""
        rows = self.marks.possible_matches(lookup.marks)
        if not len(rows):
            return
        table = pa.table({name: self.columns[name] for name in _COUNTED})
        start = 0
        for batch in table.to_batches():
            first, last = np.searchsorted(rows, (start, start + batch.num_rows))
            if first < last:
                few = batch.take(pa.array(rows[first:last] - start))
                yield few.take(pa.array(lookup.rows(few.column("key"), few)))
            start += batch.num_rows


@dataclass(frozen=True, slots=True)
class _Lookup:
    """What a tail says, ready to be looked up in the columns of a base."""

    paths: pa.Array
    identities: pa.Array
    #: Paths that the tail makes live: no base may know them under an identity that the tail does not mention.
    live: frozenset[str]
    marks: KeyMarks

    @classmethod
    def of(cls, tail: ReplayedCommits, action: str) -> _Lookup:
        seen = pa.concat_arrays([_identities(tail.adds), _identities(tail.removes)])
        added, removed = _keys(tail.adds), _keys(tail.removes)
        live = frozenset(added.to_pylist()) if action == "add" else frozenset()
        paths = pa.concat_arrays([added, removed])
        return cls(paths, seen, live, KeyMarks.of(pa.chunked_array([paths])))

    def rows(self, keys: pa.Array, files: pa.RecordBatch) -> npt.NDArray[np.int64]:
        """The rows of a base that the tail supersedes. A base holds each identity once."""
        if not len(self.paths):
            return _NO_ROWS
        # Few files are met again, and whatever is met has a mark of theirs.
        rows = KeyMarks.of(pa.chunked_array([keys])).possible_matches(self.marks)
        if not len(rows):
            return _NO_ROWS
        at = pa.array(rows)
        paths = keys.take(at)
        identities = identities_of(paths, files.column("deletion_vector").take(at))
        superseded = pc.is_in(identities, value_set=self.identities)
        exactly: npt.NDArray[np.bool_] = superseded.to_numpy(zero_copy_only=False)
        for path in paths.filter(pa.array(~exactly)).to_pylist():
            if path in self.live:
                raise CorruptLog(path, "two live adds name this file, under different deletion vectors")
        return rows[exactly]


def _identities(actions: Mapping[str, Any]) -> pa.Array:
    if isinstance(actions, ActionColumns):
        return _joined(actions.identities())
    return pa.array(list(actions), pa.string())


def _keys(actions: Mapping[str, Any]) -> pa.Array:
    if isinstance(actions, ActionColumns):
        return _joined(actions.table.column("key"))
    return pa.array([identity.partition(SEPARATOR)[0] for identity in actions], pa.string())


def _joined(column: pa.ChunkedArray) -> pa.Array:
    return pa.concat_arrays([pa.array([], column.type), *column.chunks])


def _to_hold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The same, larger, in memory of exactly their size.

    Arrow's own allocator keeps much of what a decoder frees, and rounds up; a million files with their statistics took
    a third more than they are.
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
    """A batch without some of its rows, given in ascending order."""
    if len(rows) and (not in_place or len(rows) > _FEW * batch.num_rows):
        keep = np.ones(batch.num_rows, np.bool_)
        keep[rows] = False
        batch, rows = batch.filter(pa.array(keep)), _NO_ROWS
    start = 0
    for row in [*rows.tolist(), batch.num_rows]:
        if row > start:
            yield batch.slice(start, row - start)
        start = row + 1
