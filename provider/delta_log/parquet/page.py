"""The data pages of a column chunk outside of lists and maps, found by their headers (``PageHeader`` of ``parquet.thrift``).

The header of a page says how long its content is, so the headers are read one after the other.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from delta_log.parquet.thrift_compact import BOOLEAN, CorruptThrift
from delta_log.parquet.thrift_fields import Fields, Shape, integer

# Fields of PageHeader.
_KIND, _UNCOMPRESSED_BYTES, _COMPRESSED_BYTES, _CHECKSUM, _DATA, _DATA_V2 = 1, 2, 3, 4, 5, 8
_NUM_VALUES = 1
#: The field that describes a data page, and the number of the encoding in it, by the kind of the page.
_PLACES = {0: (_DATA, 2), 3: (_DATA_V2, 4)}
#: Of a page of the second version: the bytes of its levels, which are never compressed, and whether its values are.
_DEFINITION_BYTES, _REPETITION_BYTES, _IS_COMPRESSED = 5, 6, 7
_FALSE = BOOLEAN + 1
#: Arrow's names of codecs, by the number in ``CompressionCodec``.
_CODECS = {1: "snappy", 2: "gzip", 4: "brotli", 6: "zstd", 7: "lz4_raw"}
_SHAPE: Shape = {_DATA: {}, _DATA_V2: {}}
#: The longest header, which may hold bounds of texts.
_HEADER_BYTES = 1 << 16
_NUMBER = rb"[\x80-\xff]{0,4}[\x00-\x7f]"
#: A data page of the first version without statistics: kind, sizes, perhaps a checksum, number of values, encodings.
_USUAL_HEADER = re.compile(
    rb"\x15\x00\x15(%b)\x15(%b)(?:\x15(%b)\x1c|\x2c)\x15(%b)\x15([\x00-\x7f])\x15[\x00-\x7f]\x15[\x00-\x7f]\x00\x00"
    % ((_NUMBER,) * 4)
)


@dataclass(frozen=True, slots=True)
class Page:
    """A data page.

    :param start: the offset of the header.
    :param content: the offset of the content, and ``stop`` that behind it.
    :param body: the offset of what may be compressed: of the content, or of the values in a page of the second version.
    :param num_values: nulls included.
    :param encoding: a number of ``Encoding``.
    :param uncompressed_bytes: of what may be compressed; ``None`` if it is not.
    :param checksum: of the content; ``None`` if the header has none.
    """

    start: int
    content: int
    body: int
    stop: int
    num_values: int
    encoding: int
    uncompressed_bytes: int | None
    checksum: int | None

    @property
    def size_bytes(self) -> int:
        """The bytes of the header and of the content."""
        return self.stop - self.start

    def check(self, content: memoryview, codec: int) -> None:
        """Compare the content with its checksum. Without one, decompress it, and forget the values.

        :param content: the file.
        :param codec: a number of ``CompressionCodec``.
        :raises CorruptThrift: the content is not what was written.
        """
        if self.checksum is not None:
            if zlib.crc32(content[self.content : self.stop]) != self.checksum & 0xFFFF_FFFF:
                raise CorruptThrift(self.start, "a page has another checksum than its header says")
        elif codec and self.uncompressed_bytes is not None:
            try:
                pa.decompress(content[self.body : self.stop], self.uncompressed_bytes, _CODECS[codec])
            except (pa.ArrowException, OSError, KeyError, ValueError) as error:
                raise CorruptThrift(self.body, f"a page cannot be decompressed ({error})") from error


def pages_of(content: memoryview, start: int, stop: int) -> Iterator[Page]:
    """Yield the pages that lie from one offset to the other.

    :param content: the file.
    :raises CorruptThrift: a page is no data page, a header is malformed, or the pages end elsewhere.
    """
    while start < stop:
        page = _page_at(content, start)
        start = page.stop
        if start > stop:
            raise CorruptThrift(stop, f"a page claims {start - stop} bytes behind its column chunk")
        yield page


def _page_at(content: memoryview, start: int) -> Page:
    usual = _USUAL_HEADER.match(content, start)
    if usual is not None:
        body = usual.end()
        uncompressed, compressed, checksum, values, encoding = usual.groups()
        return _checked(
            Page(
                start,
                body,
                body,
                body + integer(compressed),
                integer(values),
                integer(encoding),
                integer(uncompressed),
                None if checksum is None else integer(checksum),
            )
        )
    header, length = Fields.first_of(bytes(content[start : start + _HEADER_BYTES]), _SHAPE)
    place, encoding_field = _PLACES.get(header.required_number(_KIND), (0, 0))
    page = header.struct(place)
    if page is None:
        raise CorruptThrift(start, "this is no data page")
    body = start + length
    rest: int | None = header.required_number(_UNCOMPRESSED_BYTES)
    levels = 0
    if place == _DATA_V2 and rest is not None:
        levels = page.required_number(_DEFINITION_BYTES) + page.required_number(_REPETITION_BYTES)
        is_compressed = page.get(_IS_COMPRESSED, (BOOLEAN, b""))[0] != _FALSE
        rest = rest - levels if is_compressed else None
    return _checked(
        Page(
            start,
            body,
            body + levels,
            body + header.required_number(_COMPRESSED_BYTES),
            page.required_number(_NUM_VALUES),
            page.required_number(encoding_field),
            rest,
            header.number(_CHECKSUM),
        )
    )


def _checked(page: Page) -> Page:
    if (
        not page.content <= page.body <= page.stop
        or page.num_values < 0
        or (page.uncompressed_bytes or 0) < 0
    ):
        raise CorruptThrift(
            page.start, f"a page claims {page.stop - page.content} bytes and {page.num_values} values"
        )
    return page
