"""Chooses how many rows of a data file to decode at once, so that the bytes of a batch stay bounded.

The size of encoded pages says little about the decoded values. A dictionary stores once a value that thousands of rows
have, a run of equal numbers takes a few bytes, and one row group may be a hundred times as wide as the one before it.
Therefore

1. the plan reads small row groups together, and gives each large one a :class:`ReadStep` of its own;
2. it estimates texts by the mean width of their dictionary's values, from the header of the dictionary page, where reading
   that header costs no request;
3. where the width stays unknown, a step begins with few rows, and each batch decides the size of the next.

Known gap: a dictionary of many narrow values may hold a wide one that thousands of consecutive rows have. Their first
batch is larger than it should be; the batches after it are not.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct

from parquet_parts.chunk_template import DATA_PAGE, DELTA_BYTE_ARRAY, DICTIONARIES, DICTIONARY_PAGE
from parquet_parts.footer import ColumnChunk, RowGroup
from parquet_parts.page import DICTIONARY_HEADER_BYTES, Dictionary, dictionary_of_header

#: The most rows of a batch: enough for vectorised work, and little memory even with many columns.
BATCH_ROWS = 1 << 16
#: About the most bytes of a batch. A writer collects batches until a row group is full.
_BATCH_BYTES = 16 << 20
#: The most bytes of a column in a batch that raise no doubt, if all its values were as wide as one may be: small batches cost time,
#: and hardly any column is like that.
_HARMLESS_BYTES = 32 << 20
#: About the bytes of a number in Arrow, or of a text's offset and validity.
_VALUE_BYTES = 8
#: Where widths are in doubt: the rows of the first batch if the mean width of texts is known, and if it is not; the most
#: rows of any batch.
_FIRST_ROWS_BY_MEAN, _FIRST_ROWS, _MOST_ROWS = 1 << 12, 1 << 8, 1 << 14
#: How many times the rows of a batch the next one may have; how many last rows of a batch count as its end.
_GROWTH, _END_ROWS = 4, 64

#: Reads some bytes of the file, given their number and their start.
ReadAt = Callable[[int, int], bytes]


class Leaves(Struct, frozen=True):
    """The Parquet columns, by number, that the asked columns of a table consist of.

    :param texts: columns of variable width.
    :param repeated: columns within lists or maps.
    """

    asked: tuple[int, ...]
    texts: tuple[int, ...]
    repeated: tuple[int, ...]

    @classmethod
    def of(cls, schema: pq.ParquetSchema, names: Collection[str]) -> Leaves:
        """Find the leaves of some columns.

        :param names: top-level columns of the file.
        """
        columns = [(number, schema.column(number)) for number in range(len(schema))]
        asked = [(number, column) for number, column in columns if is_within(column.path, names)]
        return cls(
            tuple(number for number, _ in asked),
            tuple(number for number, column in asked if column.physical_type == "BYTE_ARRAY"),
            tuple(number for number, column in asked if column.max_repetition_level),
        )


class ReadStep(Struct, frozen=True):
    """Row groups that the reader reads together.

    :param first_rows: the most rows of the first batch.
    :param most_rows: the most rows of any batch.
    """

    row_groups: tuple[int, ...]
    num_rows: int
    first_rows: int
    most_rows: int

    def rows_after(self, batch: pa.RecordBatch) -> int:
        """Choose the rows of the batch after this one. Its rows may be as wide as this batch's last rows: tables are sorted."""
        end = batch.slice(max(0, batch.num_rows - _END_ROWS))
        row_bytes = max(part.nbytes // max(1, part.num_rows) for part in (batch, end))
        rows: int = min(self.most_rows, _GROWTH * batch.num_rows, _BATCH_BYTES // max(1, row_bytes))
        return max(1, rows)


class _Group(Struct, frozen=True):
    """Estimates for a row group: its rows, their decoded bytes, and how many rows to read at once."""

    number: int
    num_rows: int
    decoded_bytes: int
    first_rows: int
    most_rows: int


def plan_reads(
    row_groups: Sequence[RowGroup], leaves: Leaves, most_rows: int, read_at: ReadAt | None, groups: range
) -> Iterator[ReadStep]:
    """Divide row groups of a file into steps, in their order.

    :param row_groups: all row groups of the file.
    :param most_rows: the most rows of a batch.
    :param read_at: function that reads bytes of the file; ``None`` if that would cost a request.
    :param groups: the numbers of the row groups to read.
    :raises CorruptThrift: a column chunk does not say how many values or bytes it has.
    """
    together: list[_Group] = []
    together_bytes = 0
    for number in groups:
        group = _group(row_groups, number, leaves, most_rows, read_at)
        if together and together_bytes + group.decoded_bytes > _BATCH_BYTES:
            yield _read_step(together, together_bytes)
            together, together_bytes = [], 0
        together.append(group)
        together_bytes += group.decoded_bytes
    if together:
        yield _read_step(together, together_bytes)


def _read_step(groups: list[_Group], decoded_bytes: int) -> ReadStep:
    num_rows = sum(group.num_rows for group in groups)
    bounded_rows = max(1, _BATCH_BYTES * num_rows // max(1, decoded_bytes))
    most_rows = min(bounded_rows, *(group.most_rows for group in groups))
    first_rows = min(most_rows, *(group.first_rows for group in groups))
    return ReadStep(tuple(group.number for group in groups), num_rows, first_rows, most_rows)


def _group(
    row_groups: Sequence[RowGroup], number: int, leaves: Leaves, most_rows: int, read_at: ReadAt | None
) -> _Group:
    group = row_groups[number]
    chunks = {leaf: group.chunks[leaf] for leaf in leaves.asked}
    values = group.num_rows * (len(leaves.asked) - len(leaves.repeated))
    values += sum(chunks[leaf].num_values for leaf in leaves.repeated)
    pages_bytes = sum(chunk.uncompressed_bytes for chunk in chunks.values())
    decoded_bytes = max(pages_bytes, _VALUE_BYTES * values)
    # A batch may hold rows of all row groups, or a part of one.
    harmless_bytes = _HARMLESS_BYTES // len(row_groups)
    share = min(1.0, most_rows / max(1, group.num_rows))
    first_rows = most_rows
    for leaf in leaves.texts:
        texts = _texts(chunks[leaf], share, harmless_bytes, read_at)
        decoded_bytes += texts.more_bytes
        if texts.first_rows is not None:
            first_rows, most_rows = min(first_rows, texts.first_rows), min(most_rows, _MOST_ROWS)
    return _Group(number, group.num_rows, decoded_bytes, first_rows, most_rows)


class _Texts(Struct, frozen=True):
    """Estimates for a column chunk of texts.

    :param more_bytes: decoded bytes that its pages do not hold.
    :param first_rows: rows to read first where the width is in doubt; ``None`` if it is not.
    """

    more_bytes: int = 0
    first_rows: int | None = None


def _texts(chunk: ColumnChunk, share: float, harmless_bytes: int, read_at: ReadAt | None) -> _Texts:
    """Estimate a column chunk of texts.

    :param share: the greatest share of its values in one batch.
    :param harmless_bytes: decoded bytes of one batch that raise no doubt.
    """
    # Harmless even if each value were as wide as all pages together.
    if share * chunk.num_values * chunk.uncompressed_bytes <= harmless_bytes:
        return _Texts()
    if DELTA_BYTE_ARRAY in chunk.form.encodings:
        # DELTA_BYTE_ARRAY stores only the suffix in which a value differs from the one before it.
        return _Texts(first_rows=_FIRST_ROWS)
    if DICTIONARIES.isdisjoint(chunk.form.encodings):
        return _Texts()
    dictionary = _dictionary_of(chunk, read_at)
    if dictionary is None:
        return _Texts(first_rows=_FIRST_ROWS)
    more_bytes = dictionary.num_bytes * chunk.num_values // dictionary.num_values
    harmless = share * chunk.num_values * dictionary.widest_bytes <= harmless_bytes
    return _Texts(more_bytes, None if harmless else _FIRST_ROWS_BY_MEAN)


def _dictionary_of(chunk: ColumnChunk, read_at: ReadAt | None) -> Dictionary | None:
    """Read the header of a column chunk's dictionary page; ``None`` if the chunk does not begin with one."""
    if read_at is None:
        return None
    # Spark before 3.2 writes no offset of the dictionary page: its first data page is the dictionary page.
    start = chunk.number(DICTIONARY_PAGE) or chunk.required_number(DATA_PAGE)
    return dictionary_of_header(read_at(DICTIONARY_HEADER_BYTES, start))


def is_within(path: str, names: Collection[str]) -> bool:
    """Tell whether a Parquet column is part of one of these columns. A name may contain dots."""
    if path in names:
        return True
    parts = path.split(".")
    return any(".".join(parts[:length]) in names for length in range(1, len(parts)))
