"""The footer of a Parquet file, read as deep as the moving of row groups needs.

The numbers of fields are the numbers in ``parquet.thrift``. Everything that this module does not name keeps its bytes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import msgspec
from msgspec import Struct

from parquet_parts import chunk_template as form
from parquet_parts.chunk_template import ChunkTemplate, Path, Values
from parquet_parts.schema_elements import UNKNOWN_TYPE, drop_unknown_groups
from parquet_parts.thrift import (
    BINARY,
    I32,
    LIST,
    STRUCT,
    CorruptThrift,
    Fields,
    Shape,
    encoded_integer,
    encoded_varint,
    end_of,
    integer,
    list_head,
    varint,
)

MAGIC = b"PAR1"
#: The footer's length, followed by the magic number.
END_BYTES = 8

# Fields of FileMetaData.
_VERSION, _SCHEMA, _FILE_ROWS, _ROW_GROUPS, _KEY_VALUES, _CREATED_BY, _COLUMN_ORDERS, _ENCRYPTION = range(
    1, 9
)
# Fields of KeyValue.
_KEY, _VALUE = 1, 2
# Fields of RowGroup.
_COLUMNS, _TOTAL_BYTES, _NUM_ROWS, _GROUP_OFFSET, _ORDINAL = 1, 2, 3, 5, 7
#: Places of parts that readers find through a column chunk: their offset and their length.
OFFSET_INDEX, COLUMN_INDEX, BLOOM_FILTER = form.OFFSET_INDEX, form.COLUMN_INDEX, form.BLOOM_FILTER

_FORMAT_VERSION = 2
#: The order of values that their type defines, for one leaf.
_TYPE_ORDER = b"\x1c\0\0"
#: A plain footer of a file with encrypted columns is signed. The signature follows it.
_SIGNATURE_BYTES = 28
#: Bytes at the end of a file that are read at once, as Arrow does.
_END_AHEAD_BYTES = 64 << 10
#: The encodings of the physical types FLOAT and DOUBLE.
FLOAT_CODES = {4: "<f", 5: "<d"}
#: Forms that the chunks of one leaf may have before the oldest are forgotten.
_MOST_FORMS = 16
#: Of more leaves nothing is remembered at once. A form takes a few kilobytes.
_MOST_LEAVES = 10_000


class ColumnChunk(Struct):
    """The values of one leaf in one row group.

    :param form: template of the chunk: what the chunk says but for its numbers and bounds.
    """

    form: ChunkTemplate
    values: Values
    _place: tuple[int, int] | None = None

    def number(self, path: Path) -> int | None:
        """Return the number of a field; ``None`` if it is absent."""
        place = self.form.places.get(path)
        return None if place is None else integer(self.values[place])

    def required_number(self, path: Path) -> int:
        """
        :raises CorruptThrift: the field is absent.
        """
        found = self.number(path)
        if found is None:
            raise CorruptThrift(0, f"a column chunk has no field {path[-1]}")
        return found

    def put_number(self, path: Path, value: int) -> None:
        """Set the number of a field that is there."""
        self.values[self.form.places[path]] = encoded_integer(value)

    @property
    def place(self) -> tuple[int, int]:
        """The offset of its first page, and the bytes of all its pages.

        :raises CorruptThrift: its first data page lies outside of them.
        """
        if self._place is None:
            data_page, dictionary_page, pages = self.form.extent
            if data_page is None or pages is None:
                raise CorruptThrift(0, "a column chunk does not say where its pages are")
            start = first = integer(self.values[data_page])
            if dictionary_page is not None:
                # Some writers say 0 where there is no dictionary.
                start = min(first, integer(self.values[dictionary_page]) or first)
            size = integer(self.values[pages])
            if first >= start + size:
                raise CorruptThrift(0, f"pages are {size} bytes from {start} on, and the first is at {first}")
            self._place = start, size
        return self._place

    @property
    def num_values(self) -> int:
        """Values, nulls included."""
        return self.required_number(form.NUM_VALUES)

    @property
    def uncompressed_bytes(self) -> int:
        """The bytes of all its pages and of their headers if nothing were compressed."""
        return self.required_number(form.UNCOMPRESSED_BYTES)

    @property
    def is_null(self) -> bool:
        """Whether the footer says that all its values are null."""
        nulls = self._raw(form.NULL_COUNT)
        return nulls is not None and nulls == self._raw(form.NUM_VALUES)

    def _raw(self, path: Path) -> bytes | None:
        place = self.form.places.get(path)
        return None if place is None else self.values[place]

    @property
    def has_bloom_filter(self) -> bool:
        return BLOOM_FILTER[0] in self.form.places

    @property
    def dotted_path(self) -> str:
        """The names of the leaf from the top down, with dots between them."""
        return b".".join(self.form.leaf).decode("utf-8", "replace")

    @property
    def null_count(self) -> int | None:
        return self.number(form.NULL_COUNT)

    @property
    def bounds(self) -> tuple[bytes, bytes] | None:
        """The lower and the upper bound, as encoded for the type; ``None`` if one is absent."""
        places = self.form.places
        low, high = places.get(form.LOW), places.get(form.HIGH)
        if low is None or high is None:
            return None
        return _content(self.values[low]), _content(self.values[high])

    @property
    def has_own_old_bounds(self) -> bool:
        """Whether a bound of the deprecated form is not the bound of the present form, too."""
        if not self.form.has_old_bounds:
            return False
        places, values = self.form.places, self.values
        for old, new in form.OLD_BOUNDS:
            if old in places and (new not in places or values[places[old]] != values[places[new]]):
                return True
        return False

    def get_bytes(self, path: Path) -> bytes | None:
        """Return a value of bytes; ``None`` if it is absent."""
        raw = self._raw(path)
        return None if raw is None else _content(raw)

    def put_bytes(self, path: Path, value: bytes) -> None:
        """Set a value of bytes that the chunk has."""
        self.values[self.form.places[path]] = encoded_varint(len(value)) + value

    def moved(self, by: int) -> ColumnChunk:
        """Return the chunk for a file in which its pages lie ``by`` bytes further on."""
        values = self.values.copy()
        self.form.move(values, by)
        return ColumnChunk(self.form, values)

    def without_old_bounds(self) -> ColumnChunk:
        """Return the chunk without bounds of the deprecated form, whose order depends on the writer."""
        return self._edited("without old bounds")

    def without_bounds(self) -> ColumnChunk:
        """Return the chunk without bounds and column index, so that no reader skips it for its values."""
        return self._edited("without bounds")

    def without_column_index(self) -> ColumnChunk:
        """Return the chunk without its column index, so that no reader skips pages for their values."""
        return self._edited("without column index")

    def without_membership(self) -> ColumnChunk:
        """Return the chunk without what tells a reader that the dictionary or the Bloom filter covers all values.

        parquet-java looks a value up in the dictionary if ``encoding_stats`` says that all pages use it.
        """
        return self._edited("without membership")

    def _edited(self, edit: str) -> ColumnChunk:
        return ColumnChunk(*self.form.edited(edit, self.values))

    def to_bytes(self) -> bytes:
        return self.form.to_bytes(self.values)


class RowGroup(Struct, frozen=True):
    """A row group, and the column chunks that it consists of, in the order of the leaves."""

    fields: Fields

    @property
    def chunks(self) -> list[ColumnChunk]:
        found = self.fields.get(_COLUMNS, (LIST, []))[1]
        assert isinstance(found, list)
        return found

    @property
    def num_rows(self) -> int:
        return self.fields.required_number(_NUM_ROWS)

    @property
    def uncompressed_bytes(self) -> int:
        return self.fields.required_number(_TOTAL_BYTES)

    @property
    def extent(self) -> tuple[int, int]:
        """The offsets of its first page and behind its last page.

        :raises CorruptThrift: it has no column chunks, or they lie in front of the file.
        """
        ranges = [chunk.place for chunk in self.chunks]
        if not ranges:
            raise CorruptThrift(0, "a row group has no column chunks")
        start, end = min(ranges)[0], max(start + size for start, size in ranges)
        if not len(MAGIC) <= start <= end:
            raise CorruptThrift(0, f"a row group would begin at {start} and end at {end}")
        return start, end

    def moved(self, start: int, chunks: Iterable[ColumnChunk | Encoded]) -> RowGroup:
        """Return the row group for another file.

        :param start: the offset of its first page.
        :param chunks: the moved ones.
        """
        group = Fields(self.fields)
        group[_COLUMNS] = (LIST, list(chunks))
        if _GROUP_OFFSET in group:
            group.put_number(_GROUP_OFFSET, start)
        # Only encryption needs it, and parquet-rs refuses a file in which some row groups have one and others do not.
        group.drop(_ORDINAL)
        return RowGroup(group)

    def to_bytes(self) -> bytes:
        return self.fields.to_bytes()


class Encoded(Struct, frozen=True):
    """A row group or a column chunk to which nothing is added any more, as bytes, which take the least memory."""

    content: bytes

    def to_bytes(self) -> bytes:
        return self.content


class _Memory(Struct):
    """What footers that were read before had in common with the next ones. Most files of a table are written alike.

    All threads of a process share it. Each change replaces a whole entry, so that no lock is needed.

    :ivar forms: forms of the chunks of each leaf; the one that was met last is the first.
    """

    forms: dict[int, tuple[ChunkTemplate, ...]] = msgspec.field(default_factory=dict)
    _bytes: dict[int, bytes] = msgspec.field(default_factory=dict)

    @property
    def shape(self) -> Shape:
        """How to read a footer with this memory."""
        return {
            _SCHEMA: partial(self._raw, _SCHEMA),
            _ROW_GROUPS: {_COLUMNS: self._chunks},
            _KEY_VALUES: partial(self._raw, _KEY_VALUES),
            _COLUMN_ORDERS: partial(self._raw, _COLUMN_ORDERS),
        }

    def _raw(self, number: int, data: bytes, at: int, kind: int) -> tuple[bytes, int]:
        """Return the bytes of a long field, which are compared before they are read."""
        if kind != LIST:
            raise CorruptThrift(at, f"field {number} holds no list")
        known = self._bytes.get(number)
        if known is not None and data.startswith(known, at):
            return known, at + len(known)
        end = end_of(data, at, kind)
        self._bytes[number] = data[at:end]
        return data[at:end], end

    def _chunks(self, data: bytes, at: int, kind: int) -> tuple[list[ColumnChunk], int]:
        item_kind, count, at = list_head(data, at) if kind == LIST else (0, 1, at)
        if count and item_kind != STRUCT:
            raise CorruptThrift(at, "a row group has no list of column chunks")
        chunks = []
        for leaf in range(count):
            known = self.forms.get(leaf)
            last = known[0] if known else None
            found = last.match(data, at) if last is not None else None
            if last is not None and found is not None:
                chunk, at = ColumnChunk(last, found[0]), found[1]
            else:
                chunk, at = self._chunk(leaf, data, at)
            chunks.append(chunk)
        return chunks, at

    def _chunk(self, leaf: int, data: bytes, at: int) -> tuple[ColumnChunk, int]:
        """Read a chunk that has another form than the one before it."""
        known = self.forms.get(leaf, ())
        for number, candidate in enumerate(known):
            found = candidate.match(data, at)
            if found is not None:
                if number:
                    self.forms[leaf] = (candidate, *known[:number], *known[number + 1 :])
                return ColumnChunk(candidate, found[0]), found[1]
        read, values, end = ChunkTemplate.read(data, at)
        if len(self.forms) > _MOST_LEAVES:
            self.forms.clear()
        self.forms[leaf] = (read, *known[: _MOST_FORMS - 1])
        return ColumnChunk(read, values), end


_SHAPE = _Memory().shape


class Footer(Struct, frozen=True):
    """The footer of one file (``FileMetaData``)."""

    fields: Fields

    @classmethod
    def from_bytes(cls, data: bytes) -> Footer:
        """Read a footer, without the length and the magic number that follow it.

        :raises CorruptThrift: the bytes are no footer.
        """
        fields, end = Fields.first_of(data, _SHAPE)
        rest = len(data) - end
        if rest and not (rest == _SIGNATURE_BYTES and _ENCRYPTION in fields):
            raise CorruptThrift(end, f"the footer ends here, and {rest} more bytes follow")
        return cls(fields)

    @classmethod
    def from_end(cls, end: bytes) -> Footer:
        """Read the footer from the last bytes of a file.

        :raises CorruptThrift: the bytes do not end with a footer, or begin within it.
        """
        return cls.from_bytes(end[footer_start(end) : -END_BYTES])

    @property
    def schema_bytes(self) -> bytes:
        """The schema as encoded."""
        found: bytes = self.fields.get(_SCHEMA, (LIST, b""))[1]
        return found

    @property
    def schema(self) -> list[Fields]:
        """The ``SchemaElement`` structs, depth first; the first is the root."""
        return self._structs(_SCHEMA)

    @property
    def num_rows(self) -> int:
        return self.fields.required_number(_FILE_ROWS)

    @property
    def row_groups(self) -> list[RowGroup]:
        return [RowGroup(group) for group in self.fields.structs(_ROW_GROUPS)]

    def row_groups_of(self, num_leaves: int) -> list[RowGroup]:
        """Return the row groups.

        :param num_leaves: number of leaves of the schema.
        :raises CorruptThrift: a column is encrypted, or a row group has another number of column chunks.
        """
        groups = self.row_groups
        if self.is_signed or any(chunk.form.is_encrypted for group in groups for chunk in group.chunks):
            raise CorruptThrift(0, "a column is encrypted")
        for group in groups:
            if len(group.chunks) != num_leaves:
                raise CorruptThrift(
                    0, f"a row group has {len(group.chunks)} column chunks for {num_leaves} leaves"
                )
        return groups

    @property
    def writer_bytes(self) -> tuple[bytes, bytes]:
        """The writer's name and the key-value metadata, as encoded. Those of the files of one writer are often the same."""
        name, notes = (self.fields.get(number, (BINARY, b""))[1] for number in (_CREATED_BY, _KEY_VALUES))
        return name, notes

    @property
    def created_by(self) -> str:
        """The writer, as it names itself; empty if it does not."""
        return (self.fields.binary(_CREATED_BY) or b"").decode("utf-8", "replace")

    @property
    def key_values(self) -> dict[bytes, bytes]:
        """The key-value metadata."""
        return {pair.binary(_KEY) or b"": pair.binary(_VALUE) or b"" for pair in self._structs(_KEY_VALUES)}

    @property
    def has_type_orders(self) -> bool:
        """Whether the writer compared the values of all leaves as their types define, for the bounds."""
        raw: Any = self.fields.get(_COLUMN_ORDERS, (LIST, b""))[1]
        if not raw:
            return False
        _, count, at = list_head(raw, 0)
        return bool(raw[at:] == _TYPE_ORDER * count)

    @property
    def is_signed(self) -> bool:
        """Whether columns are encrypted, and the plain footer is signed."""
        return _ENCRYPTION in self.fields

    def with_row_groups(
        self, groups: Sequence[RowGroup | Encoded], num_rows: int, key_values: Mapping[str, str]
    ) -> Footer:
        """Return a footer of the same schema for other row groups.

        :param num_rows: number of rows of all row groups.
        """
        fields = Fields(self.fields)
        fields.put_number(_VERSION, _FORMAT_VERSION, I32)
        fields.put_number(_FILE_ROWS, num_rows)
        fields[_ROW_GROUPS] = (LIST, list(groups))
        pairs = []
        for key, value in key_values.items():
            pair = Fields()
            pair.put_binary(_KEY, key.encode())
            pair.put_binary(_VALUE, value.encode())
            pairs.append(pair)
        fields.put_structs(_KEY_VALUES, pairs)
        return Footer(fields)

    def is_like(self, other: Footer) -> bool:
        """Tell whether a footer differs from another one in its row groups at most."""
        return self.of_row_groups(()).fields == other.of_row_groups(()).fields

    def of_row_groups(self, groups: Sequence[RowGroup]) -> Footer:
        """Return the footer of a file that the same writer would have written with these row groups."""
        fields = Fields(self.fields)
        fields.put_number(_FILE_ROWS, sum(group.num_rows for group in groups))
        fields[_ROW_GROUPS] = (LIST, list(groups))
        return Footer(fields)

    def to_end(self) -> bytes:
        """Return the end of a file: the footer, its length and the magic number."""
        content = self.fields.to_bytes()
        return content + len(content).to_bytes(4, "little") + MAGIC

    def _structs(self, number: int) -> list[Fields]:
        kind, raw = self.fields.get(number, (LIST, b"\0"))
        if not isinstance(raw, bytes):
            return self.fields.structs(number)
        alone = Fields({number: (kind, raw)})
        return Fields.from_bytes(alone.to_bytes(), {number: {}}).structs(number)


class FileEnd(Struct, frozen=True):
    """The end of a file, as it was read.

    :param content: the bytes from the footer on.
    """

    footer: Footer
    content: bytes

    @classmethod
    def of(cls, tail: bytes) -> FileEnd:
        """Read the footer from the last bytes of a file.

        :raises CorruptThrift: the bytes do not end with a footer, or begin within it.
        """
        return cls(Footer.from_end(tail), tail[footer_start(tail) :])


def footer_of(file: memoryview, data_end: int, end: FileEnd | None = None) -> Footer:
    """Read the footer of a file in memory.

    :param data_end: offset at which the footer begins.
    :param end: end of the file, if it was read before. It counts if the file still ends so; its footer is returned, no copy.
    :raises CorruptThrift: the bytes are no footer.
    """
    content = bytes(file[data_end:])
    if end is not None and end.content == content:
        return end.footer
    return Footer.from_bytes(content[:-END_BYTES])


def read_end(source: Any) -> bytes:
    """Read the end of a file, from the footer on, without faults of writers that readers forgive (:func:`corrected_end`).

    Arrow ends the process when it is asked for the metadata of a column chunk that is encrypted, or contradicts the schema. So
    footers are read by this module before Arrow is asked for what they say of chunks.

    :param source: an open file, of Arrow or of Python.
    :raises CorruptThrift: it does not end with a plain footer.
    """
    source.seek(0, os.SEEK_END)
    size = source.tell()
    wanted = _END_AHEAD_BYTES
    while True:
        wanted = min(wanted, size)
        source.seek(size - wanted)
        end: bytes = source.read(wanted)
        needed = footer_length(end[-END_BYTES:]) + END_BYTES
        if needed <= len(end):
            return corrected_end(end[-needed:])
        if needed > size:
            raise CorruptThrift(0, f"the footer has {needed} bytes, and the file {size}")
        wanted = needed


def corrected_end(end: bytes) -> bytes:
    """Return the end of a file, with a schema that Arrow reads.

    parquet-java 1.11.0 gives the entries of a map the logical type UNKNOWN beside MAP_KEY_VALUE. A group has no such
    type, so Arrow refuses the file; other readers take no notice.

    :param end: bytes of the file from the footer on.
    :raises CorruptThrift: it has a schema that may need a correction, and is malformed.
    """
    if UNKNOWN_TYPE not in end:
        return end
    footer = Footer.from_end(end)
    elements = footer.schema
    if footer.is_signed or not drop_unknown_groups(elements):
        return end
    fields = Fields(footer.fields)
    fields.put_structs(_SCHEMA, elements)
    return Footer(fields).to_end()


def footer_start(end: bytes | memoryview) -> int:
    """Return where the footer begins within the last bytes of a file.

    :raises CorruptThrift: the bytes are not the end of a Parquet file with a plain footer, or the footer begins before them.
    """
    start = len(end) - footer_length(bytes(end[-END_BYTES:])) - END_BYTES
    if start < 0:
        raise CorruptThrift(0, f"the footer begins {-start} bytes before these")
    return start


def footer_length(end: bytes) -> int:
    """Return the length of the footer that the last eight bytes of a file tell.

    :raises CorruptThrift: the bytes are not the end of a Parquet file with a plain footer.
    """
    if len(end) != END_BYTES or end[-4:] != MAGIC:
        raise CorruptThrift(len(end), "the file does not end with a plain footer")
    return int.from_bytes(end[:4], "little")


def _content(value: bytes) -> bytes:
    """Return a binary value without its length."""
    return value[1:] if value[0] < 128 else value[varint(value, 0)[1] :]
