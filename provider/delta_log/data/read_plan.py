"""How many rows of a data file are decoded at once, so that a batch is of bearable size whatever the width of a row.

The bytes of pages say little of the values in them: a dictionary holds once what thousands of rows may have, a run of
equal numbers is a few bytes, and one row group may be a hundred times as wide as the one before it. Therefore

1. small row groups are read together, and each large one is a *step* of its own;
2. texts count with the mean width of their dictionary's values, which the header of the dictionary's page tells, where
   a look at it costs no request;
3. where that leaves a doubt, a step begins with few rows, and goes on with as many as the last batch makes advisable.

A known gap: among many narrow values of a dictionary there may be a wide one that thousands of rows in succession have.
The first batch of them is larger than it should be, those that follow are not.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

#: Rows of one batch at most: enough for vectorised work, and little memory even with many columns.
BATCH_ROWS = 1 << 16
#: A batch is of about so many bytes at most: whoever writes collects batches until a row group is full.
_BATCH_BYTES = 16 << 20
#: Of a number, as Arrow holds it, or of a text's offset and validity: about.
_VALUE_BYTES = 8
#: In doubt: rows to begin with where the mean width of texts is known, and where it is not; and the most rows.
_FIRST_ROWS_BY_MEAN, _FIRST_ROWS, _MOST_ROWS = 1 << 12, 1 << 8, 1 << 14
#: Each batch has at most so many times the rows of the one before it; and so many rows of that are its end.
_GROWTH, _END_ROWS = 4, 64

#: Some bytes of the file: how many, and from where.
ReadAt = Callable[[int, int], bytes]

#: A page begins with a struct ``PageHeader`` of the Parquet format in Thrift's compact protocol: 1 is the kind of page,
#: here a dictionary, 2 and 3 are its bytes before and after compression, 4 may be a checksum, and 7 a struct of which 1 is
#: the number of values.
_I32 = rb"\x15([\x80-\xff]*[\x00-\x7f])"
_DICTIONARY_PAGE = re.compile(rb"\x15\x04" + _I32 + _I32 + rb"(?:\x4c|" + _I32 + rb"\x3c)" + _I32)
_PAGE_HEADER_BYTES = 64


@dataclass(frozen=True, slots=True)
class Leaves:
    """The columns of Parquet, by number, that the asked columns of a table consist of.

    :param texts: of variable width; :param repeated: within lists or maps.
    """

    asked: tuple[int, ...]
    texts: tuple[int, ...]
    repeated: tuple[int, ...]

    @classmethod
    def of(cls, schema: pq.ParquetSchema, names: Collection[str]) -> Leaves:
        """
        :param names: of columns of the file's uppermost level.
        """
        columns = [(number, schema.column(number)) for number in range(len(schema))]
        asked = [(number, column) for number, column in columns if _is_within(column.path, names)]
        return cls(
            tuple(number for number, _ in asked),
            tuple(number for number, column in asked if column.physical_type == "BYTE_ARRAY"),
            tuple(number for number, column in asked if column.max_repetition_level),
        )


@dataclass(frozen=True, slots=True)
class ReadStep:
    """Row groups that are read in one go.

    :param first_rows: of the first batch; :param most_rows: of any.
    """

    row_groups: tuple[int, ...]
    num_rows: int
    first_rows: int
    most_rows: int

    def rows_after(self, batch: pa.RecordBatch) -> int:
        """Of the next batch, which goes on as this one is, or as it ends: tables are sorted."""
        end = batch.slice(max(0, batch.num_rows - _END_ROWS))
        row_bytes = max(part.nbytes // max(1, part.num_rows) for part in (batch, end))
        rows: int = min(self.most_rows, _GROWTH * batch.num_rows, _BATCH_BYTES // max(1, row_bytes))
        return max(1, rows)


@dataclass(frozen=True, slots=True)
class _Group:
    """What is known of a row group: its rows, their bytes once decoded, and how many of them to read at once."""

    number: int
    num_rows: int
    decoded_bytes: int
    first_rows: int
    most_rows: int


def plan_reads(
    metadata: pq.FileMetaData, leaves: Leaves, most_rows: int, read_at: ReadAt | None
) -> Iterator[ReadStep]:
    """A file's row groups, in their order.

    :param most_rows: of a batch.
    :param read_at: ``None``: to read of the file costs a request.
    """
    together: list[_Group] = []
    together_bytes = 0
    for number in range(metadata.num_row_groups):
        group = _group(metadata, number, leaves, most_rows, read_at)
        if together and together_bytes + group.decoded_bytes > _BATCH_BYTES:
            yield _read_step(together, together_bytes)
            together, together_bytes = [], 0
        together.append(group)
        together_bytes += group.decoded_bytes
    if together:
        yield _read_step(together, together_bytes)


def _read_step(groups: list[_Group], decoded_bytes: int) -> ReadStep:
    num_rows = sum(group.num_rows for group in groups)
    bearable = max(1, _BATCH_BYTES * num_rows // max(1, decoded_bytes))
    most_rows = min(bearable, *(group.most_rows for group in groups))
    first_rows = min(most_rows, *(group.first_rows for group in groups))
    return ReadStep(tuple(group.number for group in groups), num_rows, first_rows, most_rows)


def _group(
    metadata: pq.FileMetaData, number: int, leaves: Leaves, most_rows: int, read_at: ReadAt | None
) -> _Group:
    group = metadata.row_group(number)
    chunks = {leaf: group.column(leaf) for leaf in leaves.asked}
    values = group.num_rows * (len(leaves.asked) - len(leaves.repeated))
    values += sum(chunks[leaf].num_values for leaf in leaves.repeated)
    pages_bytes = sum(chunk.total_uncompressed_size for chunk in chunks.values())
    decoded_bytes = max(pages_bytes, _VALUE_BYTES * values)
    # A batch may have rows of all row groups, or not all rows of one.
    harmless_bytes = _BATCH_BYTES // metadata.num_row_groups
    share = min(1.0, most_rows / max(1, group.num_rows))
    first_rows = most_rows
    for leaf in leaves.texts:
        texts = _texts(chunks[leaf], share, harmless_bytes, read_at)
        decoded_bytes += texts.more_bytes
        if texts.first_rows is not None:
            first_rows, most_rows = min(first_rows, texts.first_rows), min(most_rows, _MOST_ROWS)
    return _Group(number, group.num_rows, decoded_bytes, first_rows, most_rows)


@dataclass(frozen=True, slots=True)
class _Texts:
    """What is known of a column chunk of texts.

    :param more_bytes: of the values, as far as its pages do not hold them.
    :param first_rows: to read in order to know more; ``None``: there is no doubt.
    """

    more_bytes: int = 0
    first_rows: int | None = None


def _texts(chunk: Any, share: float, harmless_bytes: int, read_at: ReadAt | None) -> _Texts:
    """
    :param chunk: the metadata of a column chunk; :param share: of its values, in a batch at most.
    :param harmless_bytes: of such a batch.
    """
    # If each value were as wide as all pages together.
    if share * chunk.num_values * chunk.total_uncompressed_size <= harmless_bytes:
        return _Texts()
    encodings = " ".join(chunk.encodings)
    if "DELTA_BYTE_ARRAY" in encodings:
        # Of each value there is what it has not in common with the one before it.
        return _Texts(first_rows=_FIRST_ROWS)
    if "DICTIONARY" not in encodings:
        return _Texts()
    dictionary = _dictionary_of(chunk, read_at)
    if dictionary is None:
        return _Texts(first_rows=_FIRST_ROWS)
    more_bytes = dictionary.num_bytes * chunk.num_values // dictionary.num_values
    harmless = share * chunk.num_values * dictionary.num_bytes <= harmless_bytes
    return _Texts(more_bytes, None if harmless else _FIRST_ROWS_BY_MEAN)


@dataclass(frozen=True, slots=True)
class _Dictionary:
    """How many values the dictionary of a column chunk has, and of how many bytes they are together."""

    num_values: int
    num_bytes: int


def _dictionary_of(chunk: Any, read_at: ReadAt | None) -> _Dictionary | None:
    """
    :param chunk: the metadata of a column chunk.
    """
    if read_at is None:
        return None
    # Spark before 3.2 says nothing of dictionary pages: what it calls the first data page is one.
    start = chunk.dictionary_page_offset or chunk.data_page_offset
    header = _DICTIONARY_PAGE.match(read_at(_PAGE_HEADER_BYTES, start))
    return _Dictionary(max(1, _number(header[4])), _number(header[1])) if header else None


def _number(digits: bytes) -> int:
    """A number of Thrift's compact protocol that is not negative: seven bits a byte, the lowest first, then a sign."""
    return sum((digit & 0x7F) << 7 * place for place, digit in enumerate(digits)) >> 1


def _is_within(path: str, names: Collection[str]) -> bool:
    """Is a column of Parquet part of one of these? Names may have dots in them."""
    if path in names:
        return True
    parts = path.split(".")
    return any(".".join(parts[:length]) in names for length in range(1, len(parts)))
