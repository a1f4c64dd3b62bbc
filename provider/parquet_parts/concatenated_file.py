"""Several Parquet files as one: their bytes behind each other, and a footer that names all of their row groups.

Reading many small files as one file saves a reader the work that it does for each file. A reader of such a file takes the values of
a column from one row group after the other, and does not ask where a row group ends. So a wrong number of values in one file would
shift the values of the next one. Therefore the numbers of values in the headers of pages are compared with the footers. The pages of a
leaf in a list or a map do not tell how many rows they have, so the reader has to count the values in the rows of each row group.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

from msgspec import Struct, field

from parquet_parts.chunk_template import TEXT_BYTES
from parquet_parts.footer import (
    MAGIC,
    ColumnChunk,
    Encoded,
    FileEnd,
    Footer,
    RowGroup,
    footer_of,
    footer_start,
)
from parquet_parts.page import DICTIONARY_HEADER_BYTES, dictionary_of_header, has_values
from parquet_parts.schema_elements import Leaf, leaves_of

_BYTE_ARRAY = 6
#: Numbers of ``Encoding`` whose values are not wider than their pages, or the pages of their dictionary: plain, levels,
#: dictionaries and DELTA_LENGTH_BYTE_ARRAY.
_BOUNDED_ENCODINGS = frozenset((0, 2, 3, 4, 6, 8))
#: About the bytes of a number in memory, or of a text's offset and validity.
_VALUE_BYTES = 8


class CannotGather(Exception):
    """Files have to be read one by one. The message says why."""


class GatheredEnd(Struct, frozen=True):
    """The end of a file that consists of others.

    :param content: the footer, its length and the magic number.
    :param row_groups: row groups of the files, which name the places of their pages there.
    """

    content: bytes
    row_groups: list[RowGroup]


class FileGatherer(Struct):
    """Makes the footers of gathered files. Threads share it, since most files of a table are written alike."""

    #: The leaves of the schema that was met last, by its bytes.
    _leaves: dict[bytes, list[Leaf]] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def end_of(
        self,
        content: memoryview,
        sizes: Sequence[int],
        most_bytes: int,
        known: Sequence[FileEnd | None] | None = None,
    ) -> GatheredEnd:
        """Return the end of a file that consists of some files.

        The footer has no statistics, page indexes and Bloom filters.

        :param content: the bytes of the files behind each other.
        :param sizes: the length of each file.
        :param most_bytes: approximate limit on the bytes of all values, once they are decoded.
        :param known: the ends of the files, so far as they were read before.
        :raises CannotGather: the files differ in more than their row groups, or contradict themselves, or have too many bytes.
        :raises CorruptThrift: a footer is malformed.
        """
        first: Footer | None = None
        groups: list[RowGroup] = []
        moved: list[RowGroup] = []
        start = decoded_bytes = 0
        with self._lock:
            for size, end in zip(sizes, known or [None] * len(sizes), strict=True):
                file = content[start : start + size]
                data_end = footer_start(file)
                footer = footer_of(file, data_end, end)
                if footer.is_signed:
                    raise CannotGather("columns are encrypted")
                first = first or footer
                if not footer.is_like(first):
                    raise CannotGather("a file has another schema or other notes than the first one")
                if footer.num_rows != sum(group.num_rows for group in footer.row_groups):
                    raise CannotGather(
                        f"its footer says {footer.num_rows} rows, and the row groups have others"
                    )
                leaves = self._leaves_of(footer)
                for group in footer.row_groups:
                    if not group.num_rows:
                        continue
                    decoded_bytes += _decoded_bytes(file, data_end, group, leaves)
                    if decoded_bytes > most_bytes:
                        raise CannotGather(f"the values may have more than {most_bytes} bytes")
                    chunks = [Encoded(chunk.form.pages_moved(chunk.values, start)) for chunk in group.chunks]
                    groups.append(group)
                    moved.append(group.moved(start, chunks))
                start += size
        if first is None:
            raise CannotGather("there are no files")
        return GatheredEnd(first.of_row_groups(moved).to_end(), groups)

    def _leaves_of(self, footer: Footer) -> list[Leaf]:
        known = self._leaves.get(footer.schema_bytes)
        if known is None:
            known = leaves_of(footer.schema)
            self._leaves = {footer.schema_bytes: known}
        return known


def _decoded_bytes(file: memoryview, data_end: int, group: RowGroup, leaves: Sequence[Leaf]) -> int:
    """Check a row group, and estimate the bytes of its values.

    :raises CannotGather: a column chunk does not have the group's rows, or is not within the file.
    """
    chunks = group.chunks
    if len(chunks) != len(leaves):
        raise CannotGather(
            f"a row group has {len(chunks)} column chunks, and the schema {len(leaves)} leaves"
        )
    num_rows = group.num_rows
    decoded_bytes = 0
    for chunk, leaf in zip(chunks, leaves, strict=True):
        start, size = chunk.place
        if chunk.form.physical_type != leaf.physical_type:
            raise CannotGather("a column chunk has another type than the schema says")
        if chunk.form.is_encrypted:
            raise CannotGather("columns are encrypted")
        if not len(MAGIC) <= start < start + size <= data_end:
            raise CannotGather(
                f"a column chunk ends at {start + size}, and the data of the file at {data_end}"
            )
        num_values = chunk.num_values if leaf.is_repeated else num_rows
        if not _has_values(file, chunk, num_values):
            raise CannotGather(f"the pages of a column chunk do not have {num_values} values")
        decoded_bytes += _VALUE_BYTES * num_values
        if chunk.form.physical_type == _BYTE_ARRAY:
            decoded_bytes += _text_bytes(file, chunk, num_values)
    return max(group.uncompressed_bytes, decoded_bytes)


def _text_bytes(file: memoryview, chunk: ColumnChunk, num_values: int) -> int:
    """Return the bytes of the texts of a chunk, or the most that they may have beyond the bytes of their pages.

    :raises CannotGather: nothing limits them.
    """
    told = chunk.number(TEXT_BYTES)
    if told is not None:
        return max(0, told)
    if not _BOUNDED_ENCODINGS.issuperset(chunk.form.encodings):
        raise CannotGather("texts may be wider than their pages")
    start, _ = chunk.place
    dictionary = dictionary_of_header(bytes(file[start : start + DICTIONARY_HEADER_BYTES]))
    return 0 if dictionary is None else dictionary.most_bytes(num_values)


def _has_values(file: memoryview, chunk: ColumnChunk, num_values: int) -> bool:
    start, size = chunk.place
    return chunk.num_values == num_values and has_values(file, start, start + size, num_values)
