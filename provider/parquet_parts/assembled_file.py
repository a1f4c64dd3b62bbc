"""Puts a Parquet file together from row groups that are encoded already.

The bytes of the pages are copied as they are. What else a footer says of a row group is copied, too, but for the places of its
parts, which are the places in the new file:

===============================  ===============================================================================
part                             place in the new file
===============================  ===============================================================================
pages of a row group             behind each other, in the order of the row groups
Bloom filters of row groups      behind the pages that were copied with theirs
column indexes, offset indexes   behind the last row group, where readers expect them
footer                           the end
===============================  ===============================================================================
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Protocol

from msgspec import Struct, field

from parquet_parts.chunk_template import Path
from parquet_parts.float_bounds import has_nan_bound, widen_zeros
from parquet_parts.footer import (
    BLOOM_FILTER,
    COLUMN_INDEX,
    END_BYTES,
    FLOAT_CODES,
    MAGIC,
    OFFSET_INDEX,
    ColumnChunk,
    Encoded,
    Footer,
    RowGroup,
    footer_length,
)
from parquet_parts.thrift import CorruptThrift, Fields

# Fields of OffsetIndex, of PageLocation and of BloomFilterHeader.
_PAGE_LOCATIONS, _PAGE_OFFSET, _BLOOM_BYTES = 1, 1, 1
#: Ranges with less between them are read together.
_GAP_BYTES = 64 << 10
#: The longest header of a Bloom filter whose length the footer does not tell.
_BLOOM_HEADER_BYTES = 64

_Range = tuple[int, int]
#: The fields that name the offset and the length of a part.
_Place = tuple[Path, Path]


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

    def writelines(self, pieces: Iterable[bytes | memoryview]) -> object: ...


def footer_at_end(source: Source, size_bytes: int) -> Footer:
    """Read the footer of a file of a known size.

    :raises CorruptThrift: the file does not end with a plain footer.
    """
    length = footer_length(source.read(max(0, size_bytes - END_BYTES), END_BYTES)) + END_BYTES
    return Footer.from_end(source.read(max(0, size_bytes - length), length))


class OmittedClaims(Struct, frozen=True):
    """Statements about leaves of a row group that the new file must leave out, since they would mislead readers.

    :param bounds: numbers of the leaves whose bounds are wrong, bounds of pages included.
    :param page_bounds: numbers of the leaves of which only the bounds of pages are wrong.
    :param membership: numbers of the leaves whose dictionary and Bloom filter do not tell which values there are.
    :param is_foreign: ``True`` if another writer may have written them. Bounds of the deprecated form are left out unless they
        equal the bounds of the present form. The bounds of floats hold zeros of both signs, and are left out if one is a NaN.
    """

    bounds: Collection[int] = frozenset()
    membership: Collection[int] = frozenset()
    is_foreign: bool = False
    page_bounds: Collection[int] = frozenset()


class AssembledFile(Struct):
    """A new file. Call :meth:`append` for each source in order, then :meth:`finish`.

    :param like: a footer with the columns of all sources, for what the new footer says of the file; by default the footer
        of the first source.
    :ivar size_bytes: bytes written so far.
    """

    sink: Sink
    like: Footer | None = None
    size_bytes: int = 0
    _num_rows: int = 0
    _groups: list[RowGroup | Encoded] = field(default_factory=list)
    #: Chunks of the new file, each with its index.
    _offset_indexes: list[tuple[ColumnChunk, bytes]] = field(default_factory=list)
    _column_indexes: list[tuple[ColumnChunk, bytes]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._write(MAGIC)

    @property
    def num_row_groups(self) -> int:
        return len(self._groups)

    def append(
        self,
        source: Source,
        footer: Footer,
        distrust: Callable[[], Sequence[OmittedClaims]] = tuple,
        row_groups: range | None = None,
    ) -> None:
        """Copy row groups of a file.

        :param footer: footer of the file. All files have the same columns.
        :param distrust: function that returns what is distrusted of each of these row groups; none: everything is trusted. It is
            called after the pages were copied, so that others may look at them meanwhile.
        :param row_groups: consecutive row groups; by default all. Those without rows are left out.
        :raises CorruptThrift: the footer is wrong about the places of parts.
        """
        if self.like is None:
            self.like = footer
        groups = footer.row_groups
        if row_groups is not None:
            groups = groups[row_groups.start : row_groups.stop]
        small = _SmallParts(source, groups)
        moved: list[tuple[int, int]] = []
        for start, end, numbers in _adjacent(groups):
            moved += [(number, self.size_bytes - start) for number in numbers]
            source.copy_to(self.sink, start, end - start)
            self.size_bytes += end - start
        leave_out = distrust()
        for number, by in moved:
            self._take(groups[number], by, leave_out[number] if leave_out else OmittedClaims(), small)

    def _take(self, group: RowGroup, by: int, leave_out: OmittedClaims, small: _SmallParts) -> None:
        """Add a row group whose pages are copied.

        :param by: number of bytes by which the pages were moved.
        """
        chunks = []
        for leaf, chunk in enumerate(group.chunks):
            moved = chunk.moved(by)
            if leaf in leave_out.bounds:
                moved = moved.without_bounds()
            if leaf in leave_out.page_bounds:
                moved = moved.without_column_index()
            if leaf in leave_out.membership:
                moved = moved.without_membership()
            if leave_out.is_foreign:
                if moved.form.physical_type in FLOAT_CODES:
                    widen_zeros(moved)
                    if has_nan_bound(moved):
                        moved = moved.without_bounds()
                if moved.form.has_old_bounds and moved.has_own_old_bounds:
                    moved = moved.without_old_bounds()
            if moved.form.names_parts:
                self._keep(chunk, moved, by, small)
            chunks.append(moved)
        self._num_rows += group.num_rows
        complete = group.moved(group.extent[0] + by, chunks)
        # Nothing more is to be put into a row group without indexes, and a file may have very many of them.
        has_indexes = any(chunk.form.names_parts for chunk in chunks)
        self._groups.append(complete if has_indexes else Encoded(complete.to_bytes()))

    def finish(self, key_values: Mapping[str, str]) -> None:
        """Write the rest of the file. The caller closes it.

        :param key_values: the key-value metadata.
        """
        assert self.like is not None
        # All column indexes stand before the first offset index, as other writers have them.
        for place, indexes in ((COLUMN_INDEX, self._column_indexes), (OFFSET_INDEX, self._offset_indexes)):
            at = self.size_bytes
            for chunk, content in indexes:
                _name(chunk, place, at, len(content))
                at += len(content)
            # There may be very many, of a few bytes each.
            self._write(b"".join(content for _, content in indexes))
        self._write(self.like.with_row_groups(self._groups, self._num_rows, key_values).to_end())

    def _keep(self, chunk: ColumnChunk, moved: ColumnChunk, by: int, small: _SmallParts) -> None:
        """Keep the indexes and the Bloom filter of a chunk, so far as its new form names them."""
        places = moved.form.places
        if BLOOM_FILTER[0] in places:
            self._put(moved, BLOOM_FILTER, small.of(chunk, BLOOM_FILTER))
        if OFFSET_INDEX[0] in places:
            self._offset_indexes.append((moved, moved_offset_index(small.of(chunk, OFFSET_INDEX), by)))
        if COLUMN_INDEX[0] in places:
            self._column_indexes.append((moved, small.of(chunk, COLUMN_INDEX)))

    def _put(self, chunk: ColumnChunk, place: _Place, content: bytes) -> None:
        """Write a part, and put its place into the chunk that names it."""
        _name(chunk, place, self.size_bytes, len(content))
        self._write(content)

    def _write(self, data: bytes) -> None:
        self.sink.write(data)
        self.size_bytes += len(data)


def _name(chunk: ColumnChunk, place: _Place, start: int, size: int) -> None:
    """Have a chunk name the place of a part."""
    offset, length = place
    chunk.put_number(offset, start)
    if length in chunk.form.places:
        chunk.put_number(length, size)


def _adjacent(groups: Sequence[RowGroup]) -> list[tuple[int, int, list[int]]]:
    """Return the ranges that hold the pages of row groups, each with the numbers of those whose pages lie behind each other.

    Row groups without rows are left out.
    """
    ranges: list[tuple[int, int, list[int]]] = []
    for number, group in enumerate(groups):
        if group.num_rows:
            start, end = group.extent
            if ranges and start == ranges[-1][1]:
                first, _, numbers = ranges[-1]
                numbers.append(number)
                ranges[-1] = first, end, numbers
            else:
                ranges.append((start, end, [number]))
    return ranges


def moved_offset_index(content: bytes, by: int) -> bytes:
    """Return an offset index for a file in which the pages lie ``by`` bytes further on."""
    index = Fields.from_bytes(content, {_PAGE_LOCATIONS: {}})
    for page in index.structs(_PAGE_LOCATIONS):
        page.put_number(_PAGE_OFFSET, page.required_number(_PAGE_OFFSET) + by)
    return index.to_bytes()


class _SmallParts:
    """The page indexes and Bloom filters of some row groups, read in few ranges."""

    def __init__(self, source: Source, groups: Sequence[RowGroup]) -> None:
        self._source = source
        self._parts: dict[_Range, bytes] = {}
        #: The lengths of Bloom filters that the footer does not tell, by offset.
        self._lengths: dict[int, int] = {}
        #: By the identity of the chunk. The row groups keep them alive.
        self._ranges: dict[tuple[int, _Place], _Range] = {
            (id(chunk), place): self._range(chunk, place)
            for group in groups
            if group.num_rows
            for chunk in group.chunks
            if chunk.form.names_parts
            for place in (OFFSET_INDEX, COLUMN_INDEX, BLOOM_FILTER)
            if place[0] in chunk.form.places
        }
        self._groups = groups
        together: list[_Range] = []
        end = 0
        for part in sorted(set(self._ranges.values())):
            if together and part[0] - end > _GAP_BYTES:
                self._read(together, end)
                together = []
            end = max(end, sum(part)) if together else sum(part)
            together.append(part)
        if together:
            self._read(together, end)

    def _read(self, together: list[_Range], end: int) -> None:
        start = together[0][0]
        content = self._source.read(start, end - start)
        for part in together:
            found = content[part[0] - start : part[0] - start + part[1]]
            if len(found) != part[1]:
                raise CorruptThrift(part[0], "an index or a Bloom filter lies outside of the file")
            self._parts[part] = found

    def of(self, chunk: ColumnChunk, place: _Place) -> bytes:
        """Return the part that two fields of a chunk name."""
        return self._parts[self._ranges[id(chunk), place]]

    def _range(self, chunk: ColumnChunk, place: _Place) -> _Range:
        start, length = chunk.required_number(place[0]), chunk.number(place[1])
        if length is None and place == BLOOM_FILTER:
            length = self._bloom_filter_length(start)
        if start < len(MAGIC) or length is None or length < 0:
            raise CorruptThrift(0, f"an index or a Bloom filter of {length} bytes would begin at {start}")
        return start, length

    def _bloom_filter_length(self, start: int) -> int:
        """Return the length of a Bloom filter, with its header, which begins with the length of what follows."""
        if start not in self._lengths:
            header, end = Fields.first_of(self._source.read(max(0, start), _BLOOM_HEADER_BYTES), {})
            self._lengths[start] = end + header.required_number(_BLOOM_BYTES)
        return self._lengths[start]
