"""Makes a part of a new file from a segment, and copies the pages of those columns that need no decoding.

Row groups are copied as bytes where they are large (:mod:`delta_maintenance.rewrite.copying`). Those of small files are not, since
many small row groups cost every reader. But a column without a dictionary is a sequence of pages, and the sequences of many files
behind each other are the column of one large row group (:mod:`delta_log.parquet.joined_chunk`). The other columns of the segment are
decoded and encoded. The bytes of all files of a segment are in memory until its part has been written to the new file.

A column is joined if all of this holds in all files of the segment:

1. The file may be copied from, is read whole, has no deleted rows, and its rows need no ids.
2. No leaf of the column is in a list or a map. A leaf has no dictionary, or one that holds the values in the order of the rows
   (:mod:`delta_log.parquet.plain_page`). All chunks of a leaf have one codec.
3. The footer says how many values are null, and it has bounds that are trusted. Those of floats are if there is no NaN.
4. A chunk has at least :data:`~delta_maintenance.rewrite.copying.JOINED_ROWS` rows.
5. Its values do not seem to be those of the file before it. Otherwise, a dictionary of the new file would make the column smaller.

A header of a page that contradicts this, or the footer, makes the column one that is decoded. So are all columns of a segment whose
other columns have more decoded bytes than a row group may: pages cannot be divided between row groups.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from operator import attrgetter
from typing import TypeAlias

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from delta_log.arrow.row_hash import RowHash
from delta_log.data.gathered_files import FilesInMemory
from delta_log.parquet.assembled_file import Distrust
from delta_log.parquet.assembled_group import AssembledGroup
from delta_log.parquet.footer import ColumnChunk, RowGroup, footer_of, footer_start
from delta_log.parquet.joined_chunk import JoinedChunk
from delta_log.parquet.part_file import PartFile
from delta_log.parquet.schema_elements import Leaf, leaves_of
from delta_log.parquet.thrift_compact import CorruptThrift
from delta_log.stats.file_stats import StatsCollector
from delta_maintenance.rewrite.copied_stats import CopiedStats
from delta_maintenance.rewrite.copying import LARGE_BYTES, CopyRules
from delta_maintenance.rewrite.encoded_part import EncodedPart, PartEncoder, size_of
from delta_maintenance.rewrite.live_rows import LiveRows
from delta_maintenance.rewrite.segments import Segment
from delta_maintenance.rewrite.sources import SourceSlice
from delta_maintenance.rewrite.writer_settings import WriterSettings

#: The least share of the files' bytes that saves time.
_WORTH_IT = 1 / 2
#: Smaller segments are encoded in less time than it takes to find out what can be copied.
_LEAST_BYTES = 1 << 20

_Rows: TypeAlias = pa.RecordBatch | pa.Table

#: The chunks of some leaves, by the numbers of the leaves.
_Joined = dict[int, JoinedChunk]


class _TooLarge(Exception):
    """The other columns of a segment would need more memory than a row group may."""


class Joining(Struct):
    """Makes parts with joined columns. Several threads may do so at once.

    :param rules: judge the sources.
    """

    rules: CopyRules
    live: LiveRows
    settings: WriterSettings
    _leaves: list[Leaf] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def __post_init__(self) -> None:
        self._leaves = leaves_of(self.rules.like.schema)

    def part(self, segment: Segment, *, hashes_rows: bool) -> EncodedPart | None:
        """Make the part of a segment; ``None`` if none of its columns is to be joined.

        :param hashes_rows: compute the checksum of the rows, for which all columns are read.
        :raises CorruptLog: a source is missing or broken.
        """
        # The ids of rows follow from the file that they are in.
        if self.rules.num_row_ids or not all(map(_is_read_whole, segment)):
            return None
        size_bytes = sum(part.opened.source.size_bytes for part in segment)
        if size_bytes < _LEAST_BYTES:
            return None
        content = FilesInMemory(size_bytes)
        joined = self._joined(segment, content)
        with suppress(_TooLarge):
            return self._part(segment, joined, content, hashes_rows=hashes_rows) if joined else None
        return None

    def _part(
        self, segment: Segment, joined: _Joined, content: FilesInMemory, *, hashes_rows: bool
    ) -> EncodedPart:
        """
        :raises _TooLarge: the rows are too many for one row group.
        """
        names = self._names_of(joined)
        rest = self.live.schema_of(set(self.live.schema.names) - names)
        # Decoded to find out whether they can be, and forgotten. Texts are not made of a dictionary for that.
        unproven = self._names_of(number for number, chunk in joined.items() if not chunk.is_proven)
        read, decoded_bytes = RowHash(), 0

        def bounded(batches: Iterable[_Rows]) -> Iterator[_Rows]:
            nonlocal decoded_bytes
            for batch in batches:
                decoded_bytes += size_of(batch)
                if decoded_bytes > self.settings.row_group_bytes * 3 // 2:
                    raise _TooLarge
                yield batch

        def hashed(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            nonlocal read
            for batch in batches:
                read = read.plus(RowHash.of(batch))
                yield batch

        encoder = self._encoder(rest)
        batches: Iterable[_Rows] = ()
        if hashes_rows:
            batches = hashed(self.live.batches(segment))
        elif unproven or rest.names:
            batches = self.live.rows(
                segment,
                dictionaries=encoder.dictionaries,
                names=unproven.union(rest.names),
                content=content,
            )
        encoded = encoder.encode(bounded(rows.select(rest.names) for rows in batches))
        file = PartFile()
        group, distrust = self._assembled(file, joined, encoded)
        encoded.content.release()
        stats = self.settings.new_stats()
        stats.take(encoded.stats)
        stats.take(self._stats_of(names, group))
        bytes_copied = sum(chunk.size_bytes for chunk in joined.values())
        return EncodedPart(file, stats, (distrust,), read, bytes_copied)

    def _joined(self, segment: Segment, content: FilesInMemory) -> _Joined:
        """Join the columns of a segment for which this is possible; none if it is not worth it.

        :param content: gets the bytes of all files.
        """
        found: _Joined | None = None
        bytes_in = 0
        for part in segment:
            found = self._with(found, part, content)
            bytes_in += part.opened.source.size_bytes
            # Files of one table are alike, so the first one tells in most cases.
            if not self._is_worth_it(found, bytes_in):
                return {}
        found = found or {}
        return {number: found[number] for number in sorted(self._whole_columns(found))}

    def _with(self, found: _Joined | None, part: SourceSlice, content: FilesInMemory) -> _Joined:
        """Return those of the columns that can be joined with the columns of a file, after that.

        :param found: the columns of the files before it; ``None``: it is the first one.
        """
        opened = part.opened
        view = content.add(opened.data_file, opened.source.size_bytes)
        if view is None:
            return {}
        try:
            data_end = footer_start(view)
            with self._lock:
                footer = footer_of(view, data_end, opened.data_file.end)
                joinable = self.rules.joinable_leaves(footer, data_end)
                trusts = self.rules.writer_of(footer).has_true_floats
            groups = [group for group in footer.row_groups if group.num_rows]
            # Another file may have taken its place.
            if footer.num_rows != opened.num_rows:
                return {}
        except CorruptThrift:
            return {}
        if found is None:
            found = {number: JoinedChunk(self._leaves[number]) for number in joinable}
        return {
            number: chunk
            for number, chunk in found.items()
            if number in joinable
            and _takes(chunk, view, [group.chunks[joinable[number]] for group in groups], trusts)
        }

    def _is_worth_it(self, found: _Joined, bytes_in: int) -> bool:
        joined = sum(found[number].source_bytes for number in self._whole_columns(found))
        return joined > _WORTH_IT * bytes_in

    def _names_of(self, leaves: Iterable[int]) -> set[str]:
        """Return the names of the columns that leaves are in."""
        return {self._leaves[number].path[0].decode() for number in leaves}

    def _whole_columns(self, leaves: Iterable[int]) -> set[int]:
        """Return those leaves whose columns have no other leaves."""
        chosen = set(leaves)
        torn = {leaf.path[0] for number, leaf in enumerate(self._leaves) if number not in chosen}
        return {number for number in chosen if self._leaves[number].path[0] not in torn}

    def _encoder(self, rest: pa.Schema) -> PartEncoder:
        """Return an encoder of the other columns, which makes one row group."""
        settings = self._settings_of(set(rest.names))
        return PartEncoder(rest, replace(settings, row_group_bytes=sys.maxsize))

    def _assembled(
        self, content: PartFile, joined: _Joined, encoded: EncodedPart
    ) -> tuple[RowGroup, Distrust]:
        """Write a file of all columns. Return its row group, and what its footer must not say."""
        groups = encoded.content.footer().row_groups
        chunks = iter(groups[0].chunks if groups else ())
        file = AssembledGroup(content, self.rules.like)
        encoded_leaves = []
        for number in range(len(self._leaves)):
            if number in joined:
                file.join(joined[number])
            else:
                file.copy(encoded.content, next(chunks))
                encoded_leaves.append(number)
        counts = {chunk.num_values for chunk in joined.values()} | {group.num_rows for group in groups}
        if len(counts) > 1:
            raise AssertionError(f"columns of one row group have {counts} rows. This is a bug.")
        group = file.finish(counts.pop())
        bounds, membership = (
            {encoded_leaves[leaf] for distrust in encoded.distrust for leaf in leaves(distrust)}
            for leaves in (attrgetter("bounds"), attrgetter("membership"))
        )
        return group, Distrust(bounds, membership)

    def _settings_of(self, names: Collection[str]) -> WriterSettings:
        """Return the settings with the statistics of some columns only."""
        columns = [column for column in self.settings.stats_columns if column.path[0] in names]
        return replace(self.settings, stats_columns=columns)

    def _stats_of(self, names: set[str], group: RowGroup) -> StatsCollector:
        """Take the statistics of joined columns from the footer of their row group."""
        stats = CopiedStats(self._settings_of(names).new_stats(), self.live.schema)
        stats.add([group], Distrust())
        return stats.finish()


def _is_read_whole(part: SourceSlice) -> bool:
    """Tell whether a slice is a small file of which all rows are wanted."""
    opened = part.opened
    return (
        opened.hidden is None
        and opened.copied is None
        and part.row_groups is None
        and opened.source.size_bytes < LARGE_BYTES
    )


def _takes(joined: JoinedChunk, view: memoryview, chunks: Sequence[ColumnChunk], trusts: bool) -> bool:
    """Add the chunks of a file to a joined one, and return whether that was possible and is of use.

    :param trusts: bounds of floats are right where there is a NaN.
    """
    try:
        for chunk in chunks:
            chunk.widen_zeros()
            joined.add(view, chunk, trusts_floats=trusts)
    except CorruptThrift:
        return False
    return not joined.seems_to_repeat
