"""The pages of a column chunk outside of lists and maps, found by their headers (``PageHeader`` of ``parquet.thrift``).

The header of a page says how long its content is, so the headers are read one after the other. Data pages of the second version
are not read here: their headers say more of the content than can be compared with it.
"""

from __future__ import annotations

from contextlib import suppress

import pyarrow as pa
from msgspec import Struct

from parquet_parts.schema_elements import Leaf
from parquet_parts.thrift import I32, CorruptThrift, Fields, Shape, varint

# Fields of PageHeader.
_KIND, _UNCOMPRESSED_BYTES, _COMPRESSED_BYTES, _DATA, _DICTIONARY = 1, 2, 3, 5, 7
# Fields of DataPageHeader and of DictionaryPageHeader.
_NUM_VALUES, _ENCODING, _DEFINITION_ENCODING = 1, 2, 3
_SHAPE: Shape = {_DATA: {}, _DICTIONARY: {}}
_DATA_PAGE, _DICTIONARY_PAGE, _RLE = 0, 2, 3
#: The number of the plain ``Encoding``, and the length of what tells the length of levels.
PLAIN, LENGTH_BYTES = 0, 4
#: The length that most headers do not reach, and the longest, which may hold bounds of texts.
_SHORT_HEADER_BYTES, HEADER_BYTES = 128, 1 << 16
#: A header of a dictionary page is shorter than this.
DICTIONARY_HEADER_BYTES = 64
#: Numbers of ``CompressionCodec``. The content tells its length without compression.
UNCOMPRESSED, SNAPPY, ZSTD = 0, 1, 6
_NAMES = {UNCOMPRESSED: "none", SNAPPY: "snappy", ZSTD: "zstd"}
_OTHER_LENGTH = "a page has another length than its header says"


class Page(Struct, frozen=True):
    """A data page of the first version.

    :param start: the offset of its header.
    :param stop: the offset behind its content.
    :param content: bytes of the page behind its header.
    :param uncompressed_bytes: length of the content without compression, as the header tells it.
    :param num_values: number of values, nulls included.
    :param encoding: a number of ``Encoding``.
    """

    start: int
    stop: int
    content: memoryview
    uncompressed_bytes: int
    num_values: int
    encoding: int


def decompressed(page: Page, codec: int) -> memoryview:
    """Return the content of a page without its compression.

    :param codec: a number of ``CompressionCodec``.
    :raises CorruptThrift: the content is not what was written, or the codec is none of this module's.
    """
    # Snappy's decompressor does not compare the lengths, as zstd's does.
    if codec not in _NAMES or _told_bytes(page, codec) != page.uncompressed_bytes:
        raise CorruptThrift(
            page.start, _OTHER_LENGTH if codec in _NAMES else f"codec {codec} is not read here"
        )
    if codec == UNCOMPRESSED:
        return page.content
    try:
        return memoryview(pa.decompress(page.content, page.uncompressed_bytes, _NAMES[codec]))
    except (pa.ArrowException, OSError) as error:
        raise CorruptThrift(page.start, f"a page cannot be decompressed ({error})") from error


def behind_levels(content: memoryview, leaf: Leaf) -> int:
    """Return where the values begin in the content of a page. The levels before them tell which rows are null.

    :param leaf: leaf outside of lists and maps.
    """
    if not leaf.most_defined:
        return 0
    start = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
    if start > len(content):
        raise CorruptThrift(start, "the levels of a page are longer than the page")
    return start


def _told_bytes(page: Page, codec: int) -> int:
    """Return the length without compression that the content tells, else the length that the header tells."""
    if codec == SNAPPY:
        return varint(bytes(page.content[:10]) + b"\0", 0)[0]
    return len(page.content) if codec == UNCOMPRESSED else page.uncompressed_bytes


class Dictionary(Struct, frozen=True):
    """The number of values in a column chunk's dictionary, and the bytes of all of them."""

    num_values: int
    num_bytes: int

    @property
    def widest_bytes(self) -> int:
        """The most bytes that one text may have: the others have four for their length."""
        return self.num_bytes - LENGTH_BYTES * (self.num_values - 1)

    def most_bytes(self, num_texts: int) -> int:
        """Return the most bytes that so many texts may have, if each one of the dictionary is among them."""
        return self.num_bytes + max(0, num_texts - self.num_values) * max(0, self.widest_bytes)


def dictionary_of_header(content: bytes) -> Dictionary | None:
    """Read the header of a page; ``None`` if it is not the header of a dictionary page.

    :param content: bytes that begin with the header.
    """
    with suppress(CorruptThrift):  # it is asked for estimates; reading the rows tells what is broken
        header, _ = Fields.first_of(content, _SHAPE)
        if header.number(_KIND) == _DICTIONARY_PAGE:
            dictionary = header.struct(_DICTIONARY)
            num_values = 0 if dictionary is None else dictionary.required_number(_NUM_VALUES)
            return Dictionary(max(1, num_values), max(0, header.required_number(_UNCOMPRESSED_BYTES)))
    return None


def has_values(file: memoryview, start: int, stop: int, num_values: int) -> bool:
    """Tell whether the data pages from one offset to the other have so many values together, nulls included.

    The first page may be a dictionary. The answer is ``False`` for data pages of the second version, whose headers are not read.

    :raises CorruptThrift: a header is malformed.
    """
    total = 0
    while start < stop:
        header, length = _header(file, start)
        page = header.struct(_DATA)
        if page is not None and header.number(_KIND) == _DATA_PAGE:
            values = page.required_number(_NUM_VALUES)
            if not total and values == num_values:
                # Readers look for no further page then.
                return True
            total += values
        elif total or header.number(_KIND) != _DICTIONARY_PAGE:
            return False
        start += length + max(0, header.required_number(_COMPRESSED_BYTES))
    return start == stop and total == num_values


def dictionary_at(file: memoryview, start: int) -> Page | None:
    """Return the dictionary page that begins at an offset; ``None`` if another page does. Its values are plain.

    It may claim more bytes than there are.
    """
    header, length = _header(file, start)
    dictionary = header.struct(_DICTIONARY)
    if dictionary is None or header.number(_KIND) != _DICTIONARY_PAGE:
        return None
    return _page(file, start, header, length, _number(dictionary, _NUM_VALUES), PLAIN)


def page_at(file: memoryview, start: int) -> Page:
    """Return the page that begins at an offset. It may claim more bytes than there are.

    :raises CorruptThrift: it is no data page of the first version, or its header is malformed.
    """
    header, length = _header(file, start)
    page = header.struct(_DATA)
    kinds = page is not None and (_number(header, _KIND), _number(page, _DEFINITION_ENCODING))
    if page is None or kinds != (_DATA_PAGE, _RLE):
        raise CorruptThrift(start, "this is no data page of the first version")
    values = _number(page, _NUM_VALUES)
    if values < 1:
        raise CorruptThrift(start, f"a page claims {values} values")
    return _page(file, start, header, length, values, _number(page, _ENCODING))


def _page(file: memoryview, start: int, header: Fields, length: int, num_values: int, encoding: int) -> Page:
    uncompressed, compressed = _number(header, _UNCOMPRESSED_BYTES), _number(header, _COMPRESSED_BYTES)
    if compressed < 0 or uncompressed < 0:
        raise CorruptThrift(start, f"a page claims {compressed} bytes")
    stop = start + length + compressed
    return Page(start, stop, file[start + length : stop], uncompressed, num_values, encoding)


def _header(file: memoryview, start: int) -> tuple[Fields, int]:
    """Read a header, and return it with its length."""
    with suppress(CorruptThrift):
        return Fields.first_of(bytes(file[start : start + _SHORT_HEADER_BYTES]), _SHAPE)
    return Fields.first_of(bytes(file[start : start + HEADER_BYTES]), _SHAPE)


def _number(fields: Fields, number: int) -> int:
    """Return a number of 32 bits; readers take no other for one."""
    if fields.get(number, (I32, None))[0] != I32:
        raise CorruptThrift(0, f"field {number} holds no number of 32 bits")
    return fields.required_number(number)
