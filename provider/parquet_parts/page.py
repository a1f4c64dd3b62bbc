"""The data pages of a column chunk outside of lists and maps, found by their headers (``PageHeader`` of ``parquet.thrift``).

The header of a page says how long its content is, so the headers are read one after the other. Pages of the second version are
not read here: their headers say more of the content than can be compared with it.
"""

from __future__ import annotations

import re
from contextlib import suppress

import pyarrow as pa
from msgspec import Struct

from parquet_parts import dictionary_page
from parquet_parts.schema_elements import Leaf
from parquet_parts.thrift_compact import I32, STRUCT, CorruptThrift
from parquet_parts.thrift_fields import Fields, Shape, encoded_integer, end_of, integer, varint

# Fields of PageHeader.
_KIND, _UNCOMPRESSED_BYTES, _COMPRESSED_BYTES, _DATA = 1, 2, 3, 5
# Fields of DataPageHeader.
_NUM_VALUES, _ENCODING, _DEFINITION_ENCODING = 1, 2, 3
_SHAPE: Shape = {_DATA: {}}
_DATA_PAGE, _RLE = 0, 3
#: The number of the plain ``Encoding``, and the length of what tells the length of levels.
PLAIN, LENGTH_BYTES = 0, 4
#: The length that most headers do not reach, and the longest, which may hold bounds of texts.
_SHORT_HEADER_BYTES, HEADER_BYTES = 256, 1 << 16
_NUMBER = rb"[\x80-\xff]{0,4}[\x00-\x7f]"
#: Statistics of a page, the last field of its header: those of numbers have bounds of few widths, counts and marks.
_NUMBER_STATISTICS = (
    rb"\x1c(?:[\x18\x28\x38\x48\x58](?:\x08.{8}|\x04.{4}|\x01.|\x10.{16})|[\x16\x26\x36\x46]%b|[\x11\x12\x21\x22])*\x00"
    % _NUMBER
)
#: The header of most data pages: kind, sizes, perhaps a checksum, number of values, encodings of values and of both levels, perhaps
#: statistics.
_USUAL_HEADER = re.compile(
    rb"\x15\x00\x15(%b)\x15(%b)(?:\x15%b\x1c|\x2c)\x15(%b)\x15([\x00-\x7f])\x15\x06\x15[\x00-\x7f](?:%b)?\x00\x00"
    % (*((_NUMBER,) * 4), _NUMBER_STATISTICS),
    re.DOTALL,
)
#: The beginning of the header of a data page: kind, sizes, perhaps a checksum, number of values, encodings.
_DATA_HEADER = re.compile(
    rb"\x15\x00\x15%b\x15(%b)(?:\x15%b\x1c|\x2c)\x15(%b)(?:\x15[\x00-\x7f]){3}" % ((_NUMBER,) * 4)
)
_STATISTICS, _STATISTICS_OF_NUMBERS = b"\x1c", re.compile(_NUMBER_STATISTICS, re.DOTALL)
#: The end of a page's header: of the struct in it, and of the header.
_END = b"\0\0"
#: Numbers of ``CompressionCodec``. The content tells its length without compression.
UNCOMPRESSED, SNAPPY, ZSTD = 0, 1, 6
_NAMES = {UNCOMPRESSED: "none", SNAPPY: "snappy", ZSTD: "zstd"}
_OTHER_LENGTH = "a page has another length than its header says"


class Page(Struct, frozen=True):
    """A data page of the first version.

    :param start: the offset of its header.
    :param stop: the offset behind its content.
    :param content: its bytes behind the header.
    :param uncompressed_bytes: of the content.
    :param num_values: nulls included.
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

    :param leaf: outside of lists and maps.
    """
    if not leaf.most_defined:
        return 0
    start = LENGTH_BYTES + int.from_bytes(content[:LENGTH_BYTES], "little")
    if start > len(content):
        raise CorruptThrift(start, "the levels of a page are longer than the page")
    return start


def _told_bytes(page: Page, codec: int) -> int:
    """Return the length without compression that the content tells, else that of the header."""
    if codec == SNAPPY:
        return varint(bytes(page.content[:10]) + b"\0", 0)[0]
    return len(page.content) if codec == UNCOMPRESSED else page.uncompressed_bytes


def has_values(file: memoryview, start: int, stop: int, count: bytes) -> bool:
    """Tell whether the data pages from one offset to the other have so many values together, nulls included.

    The first page may be a dictionary. The answer is ``False`` for pages of the second version, whose headers are not read.

    :param count: as Thrift encodes it.
    :raises CorruptThrift: statistics of a page are malformed.
    :raises IndexError: they end behind the file.
    """
    dictionary = dictionary_page.USUAL_HEADER.match(file, start, stop)
    if dictionary is not None:
        start = dictionary.end() + integer(dictionary["compressed"])
    total = 0
    while start < stop:
        page = _DATA_HEADER.match(file, start, stop)
        if page is None:
            return False
        if not total and page[2] == count:
            # Readers look for no further page then.
            return True
        total += integer(page[2])
        at = page.end()
        if file[at : at + 1] == _STATISTICS:
            plain = _STATISTICS_OF_NUMBERS.match(file, at, stop)
            at = end_of(file, at + 1, STRUCT) if plain is None else plain.end()  # type: ignore[arg-type]
        start = at + len(_END) + integer(page[1])
        if file[at : at + len(_END)] != _END or start <= at:
            return False
    return start == stop and encoded_integer(total) == count


def dictionary_at(file: memoryview, start: int) -> Page | None:
    """Return the dictionary page that begins at an offset; ``None`` if there is none with a usual header.

    Its values are plain. It may claim more bytes than there are.
    """
    usual = dictionary_page.USUAL_HEADER.match(file, start)
    if usual is None:
        return None
    uncompressed, compressed, values = (integer(usual[name]) for name in ("bytes", "compressed", "values"))
    if uncompressed < 0 or compressed < 0:
        raise CorruptThrift(start, f"a dictionary claims {compressed} bytes")
    stop = usual.end() + compressed
    return Page(start, stop, file[usual.end() : stop], uncompressed, values, PLAIN)


def page_at(file: memoryview, start: int) -> Page:
    """Return the page that begins at an offset. It may claim more bytes than there are.

    :raises CorruptThrift: it is no data page of the first version, or its header is malformed.
    """
    usual = _USUAL_HEADER.match(file, start)
    if usual is not None:
        length = usual.end() - start
        uncompressed, compressed, values, encoding = (integer(value) for value in usual.groups())
    else:
        header, length = _header(file, start)
        page = header.struct(_DATA)
        kinds = page is not None and (_number(header, _KIND), _number(page, _DEFINITION_ENCODING))
        if page is None or kinds != (_DATA_PAGE, _RLE):
            raise CorruptThrift(start, "this is no data page of the first version")
        uncompressed, compressed = _number(header, _UNCOMPRESSED_BYTES), _number(header, _COMPRESSED_BYTES)
        values, encoding = _number(page, _NUM_VALUES), _number(page, _ENCODING)
    if compressed < 0 or uncompressed < 0 or values < 1:
        raise CorruptThrift(start, f"a page claims {compressed} bytes and {values} values")
    stop = start + length + compressed
    return Page(start, stop, file[start + length : stop], uncompressed, values, encoding)


def _header(file: memoryview, start: int) -> tuple[Fields, int]:
    """Read a header of any form, and return it with its length."""
    with suppress(CorruptThrift):
        return Fields.first_of(bytes(file[start : start + _SHORT_HEADER_BYTES]), _SHAPE)
    return Fields.first_of(bytes(file[start : start + HEADER_BYTES]), _SHAPE)


def _number(fields: Fields, number: int) -> int:
    """Return a number of 32 bits; readers take no other for one."""
    if fields.get(number, (I32, None))[0] != I32:
        raise CorruptThrift(0, f"field {number} holds no number of 32 bits")
    return fields.required_number(number)
