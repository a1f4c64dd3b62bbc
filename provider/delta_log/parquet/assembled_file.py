"""Puts a Parquet file together from row groups that are encoded already.

The bytes of the pages are copied as they are. What else a footer says of a row group is copied, too, but for the places of its
parts, which are those of the new file:

===============================  ===============================================================================
part                             place in the new file
===============================  ===============================================================================
pages of a row group             behind each other, in the order of the row groups
Bloom filters of a row group     behind its pages
column indexes, offset indexes   behind the last row group, where readers expect them
footer                           the end
===============================  ===============================================================================
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from delta_log.parquet.footer import (
    BLOOM_FILTER,
    COLUMN_INDEX,
    END_BYTES,
    MAGIC,
    OFFSET_INDEX,
    ColumnChunk,
    Footer,
    RowGroup,
    footer_length,
)
from delta_log.parquet.thrift_compact import I32, CorruptThrift
from delta_log.parquet.thrift_fields import Fields

# Fields of OffsetIndex, of PageLocation and of BloomFilterHeader.
_PAGE_LOCATIONS, _PAGE_OFFSET, _BLOOM_BYTES = 1, 1, 1
#: Ranges with less between them are read together.
_GAP_BYTES = 64 << 10
#: The longest header of a Bloom filter whose length the footer does not tell.
_BLOOM_HEADER_BYTES = 64

_Range = tuple[int, int]


class Source(Protocol):
    """The bytes of a file that row groups are taken from."""

    def read(self, start: int, length: int) -> bytes:
        """Read bytes, fewer only at the end of the file."""

    def copy_to(self, sink: Sink, start: int, length: int) -> None:
        """Write bytes to a new file.

        :raises CorruptThrift: the file has fewer bytes.
        """


class Sink(Protocol):
    """The new file."""

    def write(self, data: bytes | memoryview) -> object: ...


class BufferSource:
    """A file in memory.

    :param content: an object with Python's buffer interface, for example an Arrow buffer.
    """

    def __init__(self, content: Any) -> None:
        self._content = memoryview(content).cast("B")

    def footer(self) -> Footer:
        """
        :raises CorruptThrift: the content does not end with a plain footer.
        """
        length = footer_length(bytes(self._content[-END_BYTES:])) + END_BYTES
        return Footer.from_end(bytes(self._content[-length:]))

    def read(self, start: int, length: int) -> bytes:
        return bytes(self._content[start : start + length])

    def copy_to(self, sink: Sink, start: int, length: int) -> None:
        if start + length > len(self._content):
            raise CorruptThrift(start, f"{length} bytes are to follow, and the file ends before")
        sink.write(self._content[start : start + length])


@dataclass(frozen=True, slots=True)
class Distrust:
    """Statements about leaves of a row group that the new file must leave out, since they would mislead readers.

    :param bounds: numbers of the leaves whose bounds are wrong.
    :param membership: numbers of the leaves whose dictionary and Bloom filter do not tell which values there are.
    """

    bounds: Collection[int] = frozenset()
    membership: Collection[int] = frozenset()


@dataclass(slots=True)
class AssembledFile:
    """A new file. Call :meth:`append` for each source in order, then :meth:`finish`.

    :ivar size_bytes: bytes written so far.
    """

    sink: Sink
    size_bytes: int = 0
    _like: Footer | None = None
    _groups: list[RowGroup] = field(default_factory=list)
    #: Chunks of the new file, each with the field that names its index, and the index.
    _indexes: list[tuple[ColumnChunk, _Range, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._write(MAGIC)

    @property
    def num_row_groups(self) -> int:
        return len(self._groups)

    def append(
        self,
        source: Source,
        footer: Footer,
        distrust: Sequence[Distrust] = (),
        row_groups: range | None = None,
    ) -> None:
        """Copy row groups of a file.

        :param footer: of the file. All files have the same columns.
        :param distrust: for each row group; empty: everything is trusted.
        :param row_groups: consecutive row groups; by default all.
        :raises CorruptThrift: the footer is wrong about the places of parts.
        """
        if self._like is None:
            self._like = footer
        groups = footer.row_groups
        if row_groups is not None:
            groups = groups[row_groups.start : row_groups.stop]
        small = _small_parts(source, groups)
        for number, group in enumerate(groups):
            leave_out = distrust[number] if distrust else Distrust()
            start, end = group.start, group.end
            if not len(MAGIC) <= start <= end:
                raise CorruptThrift(0, f"a row group would begin at {start} and end at {end}")
            by = self.size_bytes - start
            source.copy_to(self.sink, start, end - start)
            self.size_bytes += end - start
            chunks = []
            for leaf, chunk in enumerate(group.chunks):
                moved = chunk.moved(by)
                chunks.append(moved)
                if leaf in leave_out.bounds:
                    moved.drop_bounds()
                if leaf in leave_out.membership:
                    moved.drop_membership()
                else:
                    self._copy_bloom_filter(chunk, moved, small)
                self._keep_indexes(chunk, moved, by, small, with_bounds=leaf not in leave_out.bounds)
            self._groups.append(group.moved(by, chunks, len(self._groups)))

    def finish(self, key_values: Mapping[str, str]) -> None:
        """Write the rest of the file. The caller closes it.

        :param key_values: the key-value metadata.
        """
        assert self._like is not None
        # All column indexes stand before the first offset index, as other writers have them.
        for kind in (COLUMN_INDEX, OFFSET_INDEX):
            for chunk, fields, content in self._indexes:
                if fields == kind:
                    self._name(chunk.fields, fields, content)
        self._write(self._like.with_row_groups(self._groups, key_values).to_end())

    def _keep_indexes(
        self, chunk: ColumnChunk, moved: ColumnChunk, by: int, small: _SmallParts, *, with_bounds: bool
    ) -> None:
        index = small.of(chunk.fields, OFFSET_INDEX)
        if index is not None:
            self._indexes.append((moved, OFFSET_INDEX, _moved_offset_index(index, by)))
        index = small.of(chunk.fields, COLUMN_INDEX) if with_bounds else None
        if index is not None:
            self._indexes.append((moved, COLUMN_INDEX, index))

    def _copy_bloom_filter(self, chunk: ColumnChunk, moved: ColumnChunk, small: _SmallParts) -> None:
        content = small.of(chunk.meta, BLOOM_FILTER)
        if content is not None:
            self._name(moved.meta, BLOOM_FILTER, content)

    def _name(self, fields: Fields, place: _Range, content: bytes) -> None:
        """Write a part, and put its place into the struct that names it."""
        offset, length = place
        fields.put_number(offset, self.size_bytes)
        fields.put_number(length, len(content), I32)
        self._write(content)

    def _write(self, data: bytes) -> None:
        self.sink.write(data)
        self.size_bytes += len(data)


def _moved_offset_index(content: bytes, by: int) -> bytes:
    index = Fields.from_bytes(content, {_PAGE_LOCATIONS: {}})
    for page in index.structs(_PAGE_LOCATIONS):
        page.put_number(_PAGE_OFFSET, page.required_number(_PAGE_OFFSET) + by)
    return index.to_bytes()


class _SmallParts:
    """The page indexes and Bloom filters of some row groups, read in few ranges."""

    def __init__(self, source: Source, ranges: Sequence[_Range]) -> None:
        self._parts: dict[_Range, bytes] = {}
        together: list[_Range] = []
        for part in sorted(set(ranges)):
            if together and part[0] - _end(together) > _GAP_BYTES:
                self._read(source, together)
                together = []
            together.append(part)
        if together:
            self._read(source, together)

    def _read(self, source: Source, together: list[_Range]) -> None:
        start = together[0][0]
        content = source.read(start, _end(together) - start)
        for part in together:
            found = content[part[0] - start : part[0] - start + part[1]]
            if len(found) != part[1]:
                raise CorruptThrift(part[0], "an index or a Bloom filter lies outside of the file")
            self._parts[part] = found

    def of(self, fields: Fields, place: _Range) -> bytes | None:
        """Return the part that two fields name; ``None`` if they do not."""
        found = _range(fields, place)
        return None if found is None else self._parts[found]


def _end(ranges: Sequence[_Range]) -> int:
    return max(start + length for start, length in ranges)


def _small_parts(source: Source, groups: Sequence[RowGroup]) -> _SmallParts:
    ranges = []
    for group in groups:
        for chunk in group.chunks:
            meta = chunk.meta
            if BLOOM_FILTER[0] in meta and BLOOM_FILTER[1] not in meta:
                meta.put_number(BLOOM_FILTER[1], _bloom_filter_length(source, meta), I32)
            places = ((chunk.fields, OFFSET_INDEX), (chunk.fields, COLUMN_INDEX), (meta, BLOOM_FILTER))
            ranges += [found for fields, place in places if (found := _range(fields, place)) is not None]
    return _SmallParts(source, ranges)


def _range(fields: Fields, place: _Range) -> _Range | None:
    if place[0] not in fields:
        return None
    start, length = (fields.required_number(number) for number in place)
    if start < len(MAGIC) or length < 0:
        raise CorruptThrift(0, f"an index or a Bloom filter of {length} bytes would begin at {start}")
    return start, length


def _bloom_filter_length(source: Source, meta: Fields) -> int:
    """Return the length of a Bloom filter, with its header, where the footer does not tell it."""
    start = meta.required_number(BLOOM_FILTER[0])
    header, end = Fields.first_of(source.read(start, _BLOOM_HEADER_BYTES), {})
    return end + header.required_number(_BLOOM_BYTES)
