"""Turns the pages of a chunk with a dictionary into a plain page, where nearly all values differ.

Some writers begin each chunk with a dictionary. If no value repeats, the dictionary holds the values in the order of the rows, and the
pages count from zero. Then the content of the dictionary is that of a plain page, and no value is decoded, encoded or compressed:

* What the pages hold is compared with the numbers from zero on.
* The levels, which tell what rows are null, are put before the values. To a stream of Snappy's they are one more literal.

If a few numbers repeat, all of them are looked up in the dictionary and compressed again.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice

import numpy as np
import pyarrow as pa
from msgspec import Struct

from delta_log.parquet.chunk_form import DICTIONARIES
from delta_log.parquet.footer import ColumnChunk
from delta_log.parquet.page import (
    LENGTH_BYTES,
    PLAIN,
    SNAPPY,
    UNCOMPRESSED,
    Page,
    behind_levels,
    decompressed,
    dictionary_at,
    pages_of,
)
from delta_log.parquet.rle_hybrid import MOST_BITS, Unsigned, counted, decoded, packed_run, run_of
from delta_log.parquet.schema_elements import Leaf
from delta_log.parquet.thrift_compact import CorruptThrift
from delta_log.parquet.thrift_fields import encoded_varint, varint

#: Codecs of chunks that can be turned.
TURNABLE_CODECS = frozenset({UNCOMPRESSED, SNAPPY})
#: The least part of the values that is in the dictionary, if values may repeat. Below, a dictionary may make the column smaller.
_LEAST_UNIQUE = 15 / 16
#: Chunks of more values, and chunks with a dictionary of more pages, are not looked into.
MOST_VALUES, _MOST_PAGES = 1 << 20, 1 << 10
#: The physical type of texts, and of others whose values differ in length.
_BYTE_ARRAY = 6
#: The longest literal of Snappy's whose tag tells its length, and the tag before a length of one byte.
_SHORT_LITERAL_BYTES, _LONG_LITERAL = 60, 60


class PlainPages(Struct, frozen=True):
    """The data pages of a chunk, and the plain values in each.

    :param are_proven: all values that the pages claim to hold are there. Otherwise, decoding them tells.
    :param repeats: values were looked up in the dictionary, since some of them repeat.
    """

    pages: list[Page]
    values: list[memoryview]
    are_proven: bool
    repeats: bool = False


class _Content(Struct, frozen=True):
    """What is in a page.

    :param levels: encoded, behind their length; empty where no value can be null.
    :param defined: the definition level of each value; ``None``: no value is null.
    :param values: plain, or the places in the dictionary, encoded, behind their width.
    """

    page: Page
    levels: memoryview
    defined: Unsigned | None
    num_defined: int
    values: memoryview


def has_dictionary(encodings: Sequence[int]) -> bool:
    """Tell whether a chunk with some encodings may have a dictionary."""
    return not DICTIONARIES.isdisjoint(encodings)


def plain_pages(file: memoryview, chunk: ColumnChunk, leaf: Leaf, *, may_repeat: bool) -> PlainPages:
    """Return one page in the place of those that use the dictionary, and the plain pages behind them.

    :param leaf: outside of lists and maps.
    :param may_repeat: a few values may stand there more than once.
    :raises CorruptThrift: values repeat, or the chunk cannot be turned, or is malformed.
    """
    start, size = chunk.place
    codec, stop, dictionary = chunk.form.codec, start + size, dictionary_at(file, start)
    if (
        dictionary is None
        or dictionary.stop > stop
        or codec not in TURNABLE_CODECS
        or (leaf.width is None and leaf.physical_type != _BYTE_ARRAY)
    ):
        raise CorruptThrift(start, "the chunk has no dictionary that is read here")
    if not 0 < dictionary.num_values <= chunk.num_values:
        raise CorruptThrift(
            start, f"{dictionary.num_values} of {chunk.num_values} values are in the dictionary"
        )
    pages = list(islice(pages_of(file, dictionary.stop, stop), _MOST_PAGES))
    _check_number(pages, chunk)
    num_using = next((n for n, page in enumerate(pages) if page.encoding not in DICTIONARIES), len(pages))
    least_unique = _LEAST_UNIQUE if may_repeat and leaf.width is not None else 1.0
    num_defined = None
    if num_using == len(pages) and chunk.null_count is not None:
        # Most columns are not like that. This finds it out before anything is decompressed.
        num_defined = chunk.num_values - chunk.null_count
        _check_unique(dictionary, num_defined, least_unique)
    using = [_content(page, codec, leaf) for page in pages[:num_using]]
    found = sum(page.num_defined for page in using)
    _check_unique(dictionary, found, least_unique)
    if num_defined not in (None, found):
        raise CorruptThrift(start, f"{found} values are not null, and {num_defined} by the footer")
    turned, values, repeats = _turned(dictionary, using, codec, leaf)
    behind = _plain(pages[num_using:], codec, leaf)
    has_checksums = all(page.checksum is not None for page in (dictionary, *pages[:num_using]))
    return PlainPages(
        [turned, *behind.pages],
        [values, *behind.values],
        behind.are_proven and (has_checksums or _are_there(values, found, leaf)),
        repeats,
    )


def stored_pages(pages: list[Page], chunk: ColumnChunk, leaf: Leaf) -> PlainPages:
    """Return the pages of a chunk without a dictionary, if all of them are plain.

    :raises CorruptThrift: one is not, or is malformed, or the chunk has more than :data:`MOST_VALUES`.
    """
    _check_number(pages, chunk)
    return _plain(pages, chunk.form.codec, leaf)


def _check_number(pages: Sequence[Page], chunk: ColumnChunk) -> None:
    """Compare the numbers of values, since what a page claims to hold may take any amount of memory."""
    if not sum(page.num_values for page in pages) == chunk.num_values <= MOST_VALUES:
        raise CorruptThrift(chunk.place[0], f"the pages do not have {chunk.num_values} values, or too many")


def _plain(pages: list[Page], codec: int, leaf: Leaf) -> PlainPages:
    contents = [_content(page, codec, leaf) for page in pages]
    if any(page.encoding != PLAIN for page in pages):
        raise CorruptThrift(pages[0].start, "not all pages have plain values")
    proven = [
        page.checksum is not None or _are_there(content.values, content.num_defined, leaf)
        for page, content in zip(pages, contents, strict=True)
    ]
    return PlainPages(pages, [content.values for content in contents], all(proven))


def _are_there(values: memoryview, count: int, leaf: Leaf) -> bool:
    """Tell whether so many plain values are certainly there. Where their lengths differ, only decoding them tells.

    :raises CorruptThrift: they are not.
    """
    if leaf.width is not None:
        if len(values) < count * leaf.width:
            raise CorruptThrift(0, "a page does not have the bytes of its values")
        return True
    if leaf.physical_type != _BYTE_ARRAY or not count:
        return not count
    length = int.from_bytes(values[:LENGTH_BYTES], "little")
    width = LENGTH_BYTES + length
    if len(values) != count * width:
        return False
    lengths = np.dtype({"names": ["length"], "formats": ["<u4"], "offsets": [0], "itemsize": width})
    return bool((np.frombuffer(values, lengths)["length"] == length).all())


def _content(page: Page, codec: int, leaf: Leaf) -> _Content:
    page.compare_checksum()
    content = decompressed(page, codec)
    start = behind_levels(content, leaf)
    levels, defined, num_defined = content[LENGTH_BYTES:start], None, page.num_values
    if leaf.most_defined:
        width = leaf.most_defined.bit_length()
        if bytes(levels) != run_of(leaf.most_defined, width, page.num_values):
            defined = decoded(levels, width, page.num_values)
            if defined.max(initial=0) > leaf.most_defined:
                raise CorruptThrift(page.start, f"a level is above {leaf.most_defined}")
            num_defined = int(np.count_nonzero(defined == leaf.most_defined))
    return _Content(page, levels, defined, num_defined, content[start:])


def _check_unique(dictionary: Page, num_values: int, least_unique: float) -> None:
    if not least_unique * num_values <= dictionary.num_values <= num_values:
        raise CorruptThrift(
            dictionary.start, f"{dictionary.num_values} of {num_values} values are in the dictionary"
        )


def _turned(
    dictionary: Page, using: Sequence[_Content], codec: int, leaf: Leaf
) -> tuple[Page, memoryview, bool]:
    """Return a plain page with the rows of some pages, its values, and whether some of them repeat."""
    dictionary.compare_checksum()
    values, body = decompressed(dictionary, codec), dictionary.content
    width = leaf.width
    if width is not None and len(values) != width * dictionary.num_values:
        raise CorruptThrift(dictionary.start, "a dictionary does not have the bytes of its values")
    places, num_defined = _places(using), sum(page.num_defined for page in using)
    repeats = places is not None
    if places is None and num_defined != dictionary.num_values:
        raise CorruptThrift(dictionary.start, "values are not in the dictionary")
    if places is not None:
        if width is None or int(places.max()) >= dictionary.num_values:
            raise CorruptThrift(dictionary.start, "texts repeat, or are not in the dictionary")
        values = memoryview(np.frombuffer(values, f"V{width}")[places].tobytes())
        body = values if codec == UNCOMPRESSED else memoryview(pa.compress(values, "snappy", asbytes=True))
    levels = _joined_levels(using, leaf)
    before, behind = (levels, 0) if codec == UNCOMPRESSED else _literal_before(levels, body)
    page = Page(
        dictionary.start,
        using[-1].page.stop,
        body[behind:],
        len(levels) + len(values),
        sum(page.page.num_values for page in using),
        PLAIN,
        None,
        before,
    )
    return page, values, repeats


def _places(using: Sequence[_Content]) -> Unsigned | None:
    """Return the places of all values in the dictionary; ``None``: they count from zero."""
    found: list[Unsigned] = []
    first, counts = 0, True
    for page in using:
        if not page.num_defined:
            continue
        if not page.values:
            raise CorruptThrift(page.page.start, "a page has no places in the dictionary")
        width, encoded = page.values[0], bytes(page.values[1:])
        last = first + page.num_defined - 1
        if last.bit_length() <= width <= MOST_BITS and encoded == counted(first, page.num_defined, width):
            places: Unsigned = np.arange(first, first + page.num_defined, dtype=np.uint32)
        else:
            # A few values, or other writers' runs.
            places = decoded(memoryview(encoded), width, page.num_defined)
            counts = counts and np.array_equal(places, np.arange(first, first + page.num_defined))
        found.append(places)
        first += page.num_defined
    return None if counts else np.concatenate(found)


def _joined_levels(using: Sequence[_Content], leaf: Leaf) -> bytes:
    """Return the levels of all pages, behind their length."""
    if not leaf.most_defined:
        return b""
    width = leaf.most_defined.bit_length()
    if len(using) == 1:
        levels = bytes(using[0].levels)
    elif all(page.defined is None for page in using):
        levels = run_of(leaf.most_defined, width, sum(page.num_defined for page in using))
    else:
        levels = packed_run(np.concatenate([_levels(page, leaf) for page in using]), width)
    return len(levels).to_bytes(LENGTH_BYTES, "little") + levels


def _levels(page: _Content, leaf: Leaf) -> Unsigned:
    if page.defined is not None:
        return page.defined
    return np.full(page.num_defined, leaf.most_defined, np.uint8)


def _literal_before(content: bytes, stream: memoryview) -> tuple[bytes, int]:
    """Return the beginning of a stream of Snappy's that has some bytes before those of another stream.

    The second member is the length of what it takes the place of. Streams refer to nothing by its distance from the beginning.
    """
    num_bytes, behind = varint(bytes(stream[:10]) + b"\0", 0)
    head = encoded_varint(len(content) + num_bytes)
    if not content:
        return head, behind
    last = len(content) - 1
    if last < _SHORT_LITERAL_BYTES:
        return b"%b%c%b" % (head, last << 2, content), behind
    length = last.to_bytes((last.bit_length() + 7) // 8, "little")
    return b"%b%c%b%b" % (head, (_LONG_LITERAL + len(length) - 1) << 2, length, content), behind
