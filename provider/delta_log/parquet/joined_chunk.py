"""Joins the column chunks that several files have of one leaf into one chunk: its pages are theirs, one behind the other.

No value is decoded. That is possible where no chunk has a dictionary, since a chunk can have but one, or where the dictionary is
as good as plain values (:mod:`delta_log.parquet.plain_page`), and where the leaf is outside of lists and maps, so that each value is
a row. Most values of such columns are different.

=====================  =========================================================================
of the new chunk       from
=====================  =========================================================================
sizes, counts          sums; the counts of values from the headers of the pages
headers of pages       written anew, without statistics
bounds                 the least and the greatest of the old ones
offset index           the headers of the pages
column index           those of the sources; the bounds of a chunk hold for each of its pages
everything else        left out, as it is of no use to readers
=====================  =========================================================================
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

from msgspec import Struct, field

from delta_log.parquet.chunk_form import ChunkForm
from delta_log.parquet.float_pages import has_nan
from delta_log.parquet.footer import COLUMN_INDEX, FLOAT_CODES, ColumnChunk, with_wide_zeros
from delta_log.parquet.page import PLAIN, SNAPPY, UNCOMPRESSED, ZSTD, Page, pages_of
from delta_log.parquet.plain_page import MOST_VALUES, has_dictionary, plain_pages, stored_pages
from delta_log.parquet.schema_elements import FIXED_LENGTH, Leaf
from delta_log.parquet.thrift_compact import (
    BINARY,
    BOOLEAN,
    I32,
    I64,
    LIST,
    STRUCT,
    CorruptThrift,
    ThriftList,
    ThriftStruct,
    Typed,
)
from delta_log.parquet.thrift_fields import Fields, encoded_integer, encoded_list_head

#: Numbers of ``Encoding`` that need no dictionary: plain values, levels, deltas and split streams.
JOINABLE_ENCODINGS = frozenset({0, 3, 4, 5, 6, 7, 9})
_LEVEL_ENCODINGS = frozenset({3, 4})
#: The values of so many chunks, and of such a part of them, may be looked up behind the first chunk. That takes about as long as to
#: decode and to encode them.
_FEW_REPEATING, _MOST_REPEATING = 3, 1 / 4
JOINABLE_CODECS = frozenset({UNCOMPRESSED, SNAPPY, ZSTD})
# Fields of ColumnIndex.
_NULL_PAGES, _LOWS, _HIGHS, _ORDER, _NULL_COUNTS = range(1, 6)
_UNORDERED = 0
_BOOLEAN = 0
#: How a bound is compared, by physical type. Delta's types of a fixed number of bytes are decimals.
_CODES = {1: "<i", 2: "<q", **FLOAT_CODES}


class _PageBounds(Struct, frozen=True):
    """What the column index says of a page. ``low`` is ``None`` if all its values are null."""

    low: bytes | None
    high: bytes | None
    nulls: int | None


class JoinedChunk(Struct):
    """A chunk of one leaf that grows by the chunks of further files. Call :meth:`add` for each, then :meth:`describe`.

    :param leaf: outside of lists and maps.
    :ivar pieces: the bytes of the pages, in their order.
    :ivar size_bytes: of the pages with their headers.
    :ivar uncompressed_bytes: the same, if the pages were not compressed.
    :ivar source_bytes: of the chunks in their files.
    :ivar is_proven: all values that the pages claim to hold are there: a checksum says that the pages are what was written, or the
        values have one length. Otherwise, decoding the chunks tells.
    """

    leaf: Leaf
    pieces: list[bytes | memoryview] = field(default_factory=list)
    num_values: int = 0
    size_bytes: int = 0
    uncompressed_bytes: int = 0
    source_bytes: int = 0
    is_proven: bool = True
    _codec: int | None = None
    _encodings: set[int] = field(default_factory=set)
    #: The chunks so far, and those of which values were looked up.
    _num_chunks: int = 0
    _num_repeating: int = 0
    _null_count: int = 0
    _pages: list[tuple[int, int]] = field(default_factory=list)
    _page_bounds: list[_PageBounds] = field(default_factory=list)
    #: The bounds of the chunks that hold a value, and whether the upper and the lower ones are exact.
    _bounds: list[tuple[bytes, bytes]] = field(default_factory=list)
    _are_exact: set[tuple[bool | None, bool | None]] = field(default_factory=set)

    def add(self, content: memoryview, chunk: ColumnChunk, *, trusts_floats: bool = True) -> None:
        """Put the pages of a chunk behind the others.

        :param content: the file that the chunk is in.
        :param trusts_floats: bounds of floats are right where there is a NaN. Otherwise, no NaN may be there.
        :raises CorruptThrift: the chunk cannot be joined with others, or is malformed. This object is of no use afterwards.
        """
        start, codec = chunk.place[0], chunk.form.codec
        nulls, values = chunk.null_count, chunk.num_values
        if codec not in JOINABLE_CODECS or self._codec not in (None, codec):
            raise CorruptThrift(start, "the chunk has another codec")
        if nulls is None or not 0 <= nulls <= values:
            raise CorruptThrift(start, "the chunk has no true count of nulls")
        pages, is_turned = self._pages_to_add(content, chunk, trusts_floats)
        encodings = JOINABLE_ENCODINGS.intersection(chunk.form.encodings)
        if is_turned:
            encodings |= {PLAIN}
        if not all(page.encoding in encodings - _LEVEL_ENCODINGS for page in pages):
            raise CorruptThrift(start, "a page has another encoding than the footer says")
        if sum(page.num_values for page in pages) != values:
            raise CorruptThrift(start, f"the pages do not have {values} values")
        self._page_bounds += _bounds_of(content, chunk, pages, nulls, is_turned)
        if nulls < values and chunk.bounds is not None:
            self._bounds.append(chunk.bounds)
            self._are_exact.add(chunk.form.are_bounds_exact)
        self._codec = codec
        self._encodings.update(encodings)
        self._null_count += nulls
        self.num_values += values
        self.source_bytes += chunk.place[1]
        self._num_chunks += 1
        for page in pages:
            self._put(page)

    def _pages_to_add(
        self, content: memoryview, chunk: ColumnChunk, trusts_floats: bool
    ) -> tuple[list[Page], bool]:
        """Return pages with the rows of a chunk that need no dictionary, and whether the chunk has one.

        :raises CorruptThrift: there are none, or they hold a NaN that the bounds may not tell, or are not what was written.
        """
        (start, size), codec, leaf = chunk.place, chunk.form.codec, self.leaf
        searches_nan = leaf.physical_type in FLOAT_CODES and not trusts_floats
        has_one, values = has_dictionary(chunk.form.encodings), list[memoryview]()
        if has_one:
            most_repeating = _FEW_REPEATING + _MOST_REPEATING * self._num_chunks if self._num_chunks else 0
            may_repeat = self._num_repeating < most_repeating
            turned = plain_pages(content, chunk, leaf, may_repeat=may_repeat)
            pages, values = turned.pages, turned.values
            self._num_repeating += turned.repeats
            self.is_proven &= turned.are_proven
        else:
            pages = list(pages_of(content, start, start + size))
            # Behind a broken page, no reader would find the values of other files any more.
            has_checksums = all(page.checksum is not None for page in pages)
            can_count = chunk.num_values <= MOST_VALUES and all(page.encoding == PLAIN for page in pages)
            if searches_nan or (can_count and not has_checksums):
                stored = stored_pages(pages, chunk, leaf)
                values = stored.values
                self.is_proven &= stored.are_proven
            else:
                for page in pages:
                    page.check(codec)
                self.is_proven &= has_checksums
        if searches_nan and any(has_nan(found, leaf.physical_type) for found in values):
            raise CorruptThrift(start, "there is a NaN, which the bounds may not tell")
        return pages, has_one

    def _put(self, page: Page) -> None:
        header = page.header()
        size_bytes = len(header) + len(page.before) + len(page.content)
        self.pieces += (header + page.before, page.content)
        self._pages.append((size_bytes, page.num_values))
        self.size_bytes += size_bytes
        self.uncompressed_bytes += len(header) + page.uncompressed_bytes

    @property
    def seems_to_repeat(self) -> bool:
        """Whether the bounds of the last two chunks are the same, so that their values may be, too."""
        last = self._bounds[-2:]
        return self.leaf.physical_type != _BOOLEAN and len(last) == 2 and last[0] == last[1]

    def describe(self, start: int) -> tuple[ColumnChunk, bytes, bytes]:
        """Return the chunk of the new file, its offset index and its column index.

        :param start: the offset of its first page.
        """
        assert self._codec is not None
        statistics: dict[int, Typed] = {3: Typed(I64, self._null_count)}
        if self._bounds:
            key = _order(self.leaf.physical_type)
            low = min((low for low, _ in self._bounds), key=key)
            high = max((high for _, high in self._bounds), key=key)
            statistics |= {5: Typed(BINARY, high), 6: Typed(BINARY, low)}
            for number, exact in zip((7, 8), zip(*self._are_exact, strict=True), strict=True):
                if None not in exact:
                    statistics[number] = Typed(BOOLEAN, all(exact))
        metadata = {
            1: Typed(I32, self.leaf.physical_type),
            2: Typed(LIST, ThriftList(I32, tuple(sorted(self._encodings)))),
            3: Typed(LIST, ThriftList(BINARY, self.leaf.path)),
            4: Typed(I32, self._codec),
            5: Typed(I64, self.num_values),
            6: Typed(I64, self.uncompressed_bytes),
            7: Typed(I64, self.size_bytes),
            9: Typed(I64, start),
            12: Typed(STRUCT, ThriftStruct(statistics)),
        }
        # The places of the indexes are filled in when they are written.
        places = {4: Typed(I64, 0), 5: Typed(I32, 0), 6: Typed(I64, 0), 7: Typed(I32, 0)}
        content = ThriftStruct({2: Typed(I64, 0), 3: Typed(STRUCT, ThriftStruct(metadata)), **places})
        form, values, _ = ChunkForm.read(content.to_bytes(), 0)
        return ColumnChunk(form, values), self._offset_index(start), self._column_index()

    def _offset_index(self, start: int) -> bytes:
        locations, row = [], 0
        for size, values in self._pages:
            locations.append(
                b"\x16%b\x15%b\x16%b\x00"
                % (encoded_integer(start), encoded_integer(size), encoded_integer(row))
            )
            start, row = start + size, row + values
        return b"\x19" + encoded_list_head(len(locations), STRUCT) + b"".join(locations) + b"\x00"

    def _column_index(self) -> bytes:
        lows = tuple(page.low or b"" for page in self._page_bounds)
        highs = tuple(page.high or b"" for page in self._page_bounds)
        null_pages = tuple(page.low is None for page in self._page_bounds)
        found = {
            _NULL_PAGES: Typed(LIST, ThriftList(BOOLEAN, null_pages)),
            _LOWS: Typed(LIST, ThriftList(BINARY, lows)),
            _HIGHS: Typed(LIST, ThriftList(BINARY, highs)),
            _ORDER: Typed(I32, _UNORDERED),
        }
        nulls = [page.nulls for page in self._page_bounds]
        if None not in nulls:
            found[_NULL_COUNTS] = Typed(LIST, ThriftList(I64, tuple(nulls)))
        return ThriftStruct(found).to_bytes()


def _bounds_of(
    content: memoryview, chunk: ColumnChunk, pages: list[Page], nulls: int, is_turned: bool
) -> list[_PageBounds]:
    """Return what the column index is to say of the pages of a chunk.

    :param is_turned: the chunk has other pages in the file.
    """
    if chunk.is_null:
        return [_PageBounds(None, None, page.num_values) for page in pages]
    bounds, key = chunk.bounds, _order(chunk.form.physical_type)
    if bounds is None:
        raise CorruptThrift(0, "the chunk has no bounds")
    if len(pages) > 1 and not is_turned and COLUMN_INDEX[0] in chunk.form.places:
        start, size = (chunk.required_number(path) for path in COLUMN_INDEX)
        if start < 0 or size < 0:
            raise CorruptThrift(0, f"a column index of {size} bytes would begin at {start}")
        found = _indexed(bytes(content[start : start + size]), len(pages), chunk.form.physical_type)
    else:
        # Of several pages, one may be all null. A reader then takes notice of bounds that no value has.
        in_page = nulls if len(pages) == 1 else None if nulls else 0
        found = [_PageBounds(*bounds, in_page)] * len(pages)
    for low, high in (bounds, *((page.low, page.high) for page in found)):
        if low is not None and high is not None:
            key(low), key(high)
    return found


def _indexed(content: bytes, num_pages: int, physical_type: int) -> list[_PageBounds]:
    """Read a column index.

    :param physical_type: of the leaf.
    :raises CorruptThrift: it is malformed, or of another number of pages.
    """
    index = Fields.from_bytes(content, {})
    null_pages, lows, highs = index.booleans(_NULL_PAGES), index.binaries(_LOWS), index.binaries(_HIGHS)
    nulls: tuple[int | None, ...] = index.numbers(_NULL_COUNTS) or (None,) * num_pages
    if not len(null_pages) == len(lows) == len(highs) == len(nulls) == num_pages:
        raise CorruptThrift(0, f"a column index is not of {num_pages} pages")
    return [
        _PageBounds(None, None, count)
        if is_null
        else _PageBounds(*with_wide_zeros(physical_type, low, high), count)
        for is_null, low, high, count in zip(null_pages, lows, highs, nulls, strict=True)
    ]


def _order(physical_type: int) -> Callable[[bytes], Any]:
    """Return what orders bounds of a type.

    It raises :class:`CorruptThrift` for a bound of another width.
    """
    code = _CODES.get(physical_type)
    if code is None:
        return _signed if physical_type == FIXED_LENGTH else bytes
    unpacked = struct.Struct(code)

    def value(bound: bytes) -> Any:
        if len(bound) != unpacked.size:
            raise CorruptThrift(0, f"a bound has {len(bound)} bytes instead of {unpacked.size}")
        return unpacked.unpack(bound)[0]

    return value


def _signed(bound: bytes) -> int:
    return int.from_bytes(bound, "big", signed=True)
