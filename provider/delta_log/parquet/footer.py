"""The footer of a Parquet file, read as deep as the moving of row groups needs.

The numbers of fields are those of ``parquet.thrift``. Everything that this module does not name keeps its bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from delta_log.parquet.thrift_compact import I32, CorruptThrift
from delta_log.parquet.thrift_fields import Fields, Shape

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
# Fields of ColumnChunk: a file, a deprecated offset, the metadata, and the places of the page indexes.
_FILE_PATH, _FILE_OFFSET, _META_DATA, _CRYPTO, _ENCRYPTED_META = 1, 2, 3, 8, 9
OFFSET_INDEX, COLUMN_INDEX = (4, 5), (6, 7)
# Fields of ColumnMetaData.
PHYSICAL_TYPE, ENCODINGS, CODEC, NUM_VALUES, COMPRESSED_BYTES = 1, 2, 4, 5, 7
_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE, STATISTICS, _ENCODING_STATS = 9, 10, 11, 12, 13
BLOOM_FILTER = (14, 15)
# Fields of Statistics: lower and upper bound in the present and in the deprecated form, and whether they are exact.
BOUNDS, OLD_BOUNDS, _EXACT, NULL_COUNT = (6, 5), (2, 1), (7, 8), 3

_SHAPE: Shape = {_SCHEMA: {}, _ROW_GROUPS: {_COLUMNS: {_META_DATA: {STATISTICS: {}}}}, _KEY_VALUES: {}}
_FORMAT_VERSION = 2
#: Of a row group. The format has no larger one.
_LARGEST_ORDINAL = (1 << 15) - 1


@dataclass(frozen=True, slots=True)
class ColumnChunk:
    """The values of one leaf in one row group."""

    fields: Fields

    @property
    def meta(self) -> Fields:
        """The ``ColumnMetaData``.

        :raises CorruptThrift: the chunk has none.
        """
        found = self.fields.struct(_META_DATA)
        if found is None:
            raise CorruptThrift(0, "a column chunk has no metadata")
        return found

    @property
    def is_encrypted(self) -> bool:
        return _CRYPTO in self.fields or _ENCRYPTED_META in self.fields

    @property
    def is_elsewhere(self) -> bool:
        """Whether its bytes are in another file."""
        return _FILE_PATH in self.fields

    @property
    def start(self) -> int:
        """The offset of its first page."""
        meta = self.meta
        first = meta.required_number(_DATA_PAGE)
        # Some writers say 0 where there is no dictionary.
        dictionary = meta.number(_DICTIONARY_PAGE) or first
        return min(first, dictionary)

    @property
    def end(self) -> int:
        return self.start + self.meta.required_number(COMPRESSED_BYTES)

    def moved(self, by: int) -> ColumnChunk:
        """Return the chunk for a file in which its pages lie ``by`` bytes further on. It names no index and no filter."""
        chunk, meta = Fields(self.fields), Fields(self.meta)
        for page in (_DATA_PAGE, _INDEX_PAGE, _DICTIONARY_PAGE):
            offset = meta.number(page)
            if offset:
                meta.put_number(page, offset + by)
        meta.drop(*BLOOM_FILTER)
        chunk.drop(*OFFSET_INDEX, *COLUMN_INDEX)
        # Deprecated: writers should say 0.
        chunk.put_number(_FILE_OFFSET, 0)
        chunk.put_struct(_META_DATA, meta)
        return ColumnChunk(chunk)

    def drop_bounds(self) -> None:
        """Remove the bounds, so that no reader skips the chunk for its values. The caller drops its column index."""
        meta = self.meta
        there = meta.struct(STATISTICS)
        if there is not None:
            kept = Fields(there)
            kept.drop(*BOUNDS, *OLD_BOUNDS, *_EXACT)
            meta.put_struct(STATISTICS, kept)

    def drop_membership(self) -> None:
        """Remove what tells a reader that the dictionary covers all values.

        parquet-java looks a value up in the dictionary if ``encoding_stats`` says that all pages use it.
        """
        self.meta.drop(_ENCODING_STATS)


@dataclass(frozen=True, slots=True)
class RowGroup:
    """A row group, and the column chunks that it consists of, in the order of the leaves."""

    fields: Fields

    @property
    def chunks(self) -> list[ColumnChunk]:
        return [ColumnChunk(chunk) for chunk in self.fields.structs(_COLUMNS)]

    @property
    def num_rows(self) -> int:
        return self.fields.required_number(_NUM_ROWS)

    @property
    def uncompressed_bytes(self) -> int:
        return self.fields.required_number(_TOTAL_BYTES)

    @property
    def start(self) -> int:
        """The offset of its first page."""
        return min(chunk.start for chunk in self.chunks)

    @property
    def end(self) -> int:
        """The offset behind its last page."""
        return max(chunk.end for chunk in self.chunks)

    def moved(self, by: int, chunks: Iterable[ColumnChunk], ordinal: int) -> RowGroup:
        """Return the row group for a file in which its pages lie ``by`` bytes further on.

        :param chunks: the moved ones.
        :param ordinal: the number of row groups before it.
        """
        group = Fields(self.fields)
        group.put_structs(_COLUMNS, [chunk.fields for chunk in chunks])
        offset = group.number(_GROUP_OFFSET)
        if offset:
            group.put_number(_GROUP_OFFSET, offset + by)
        if _ORDINAL in group and ordinal <= _LARGEST_ORDINAL:
            group.put_number(_ORDINAL, ordinal)
        else:
            group.drop(_ORDINAL)
        return RowGroup(group)


@dataclass(frozen=True, slots=True)
class Footer:
    """The footer of one file (``FileMetaData``)."""

    fields: Fields

    @classmethod
    def from_bytes(cls, data: bytes) -> Footer:
        """Read a footer, without the length and the magic number that follow it.

        :raises CorruptThrift: the bytes are no footer.
        """
        return cls(Fields.from_bytes(data, _SHAPE))

    @classmethod
    def from_end(cls, end: bytes) -> Footer:
        """Read the footer from the last bytes of a file.

        :raises CorruptThrift: the bytes do not end with a footer, or begin within it.
        """
        start = len(end) - footer_length(end[-END_BYTES:]) - END_BYTES
        if start < 0:
            raise CorruptThrift(0, f"the footer begins {-start} bytes before these")
        return cls.from_bytes(end[start:-END_BYTES])

    @property
    def schema(self) -> list[Fields]:
        """The ``SchemaElement`` structs, depth first; the first is the root."""
        return self.fields.structs(_SCHEMA)

    @property
    def num_rows(self) -> int:
        return self.fields.required_number(_FILE_ROWS)

    @property
    def row_groups(self) -> list[RowGroup]:
        return [RowGroup(group) for group in self.fields.structs(_ROW_GROUPS)]

    @property
    def created_by(self) -> str:
        """The writer, as it names itself; empty if it does not."""
        return (self.fields.binary(_CREATED_BY) or b"").decode("utf-8", "replace")

    @property
    def key_values(self) -> dict[str, str]:
        """The key-value metadata."""
        pairs = self.fields.structs(_KEY_VALUES)
        return {
            (pair.binary(_KEY) or b"").decode("utf-8", "replace"): (pair.binary(_VALUE) or b"").decode(
                "utf-8", "replace"
            )
            for pair in pairs
        }

    @property
    def has_column_orders(self) -> bool:
        """Whether the writer says in which order it compared values for the bounds."""
        return _COLUMN_ORDERS in self.fields

    @property
    def is_signed(self) -> bool:
        """Whether columns are encrypted, and the plain footer is signed."""
        return _ENCRYPTION in self.fields

    def with_row_groups(self, groups: list[RowGroup], key_values: Mapping[str, str]) -> Footer:
        """Return a footer of the same schema for other row groups."""
        fields = Fields(self.fields)
        fields.put_number(_VERSION, _FORMAT_VERSION, I32)
        fields.put_number(_FILE_ROWS, sum(group.num_rows for group in groups))
        fields.put_structs(_ROW_GROUPS, [group.fields for group in groups])
        pairs = []
        for key, value in key_values.items():
            pair = Fields()
            pair.put_binary(_KEY, key.encode())
            pair.put_binary(_VALUE, value.encode())
            pairs.append(pair)
        fields.put_structs(_KEY_VALUES, pairs)
        return Footer(fields)

    def to_end(self) -> bytes:
        """Return the end of a file: the footer, its length and the magic number."""
        content = self.fields.to_bytes()
        return content + len(content).to_bytes(4, "little") + MAGIC


def footer_length(end: bytes) -> int:
    """Return the length of the footer that the last eight bytes of a file tell.

    :raises CorruptThrift: the bytes are not the end of a Parquet file with a plain footer.
    """
    if len(end) != END_BYTES or end[-4:] != MAGIC:
        raise CorruptThrift(len(end), "the file does not end with a plain footer")
    return int.from_bytes(end[:4], "little")
