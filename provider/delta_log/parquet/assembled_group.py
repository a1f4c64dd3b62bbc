"""Puts a Parquet file of one row group together in memory from column chunks: some of another file, some joined from those of many.

The order of the parts is that of :mod:`delta_log.parquet.assembled_file`: pages, column indexes, offset indexes, footer.
"""

from __future__ import annotations

from msgspec import Struct, field

from delta_log.parquet.assembled_file import moved_offset_index
from delta_log.parquet.chunk_form import Path
from delta_log.parquet.footer import COLUMN_INDEX, MAGIC, OFFSET_INDEX, ColumnChunk, Footer, RowGroup
from delta_log.parquet.joined_chunk import JoinedChunk
from delta_log.parquet.part_file import PartFile
from delta_log.parquet.thrift_compact import LIST
from delta_log.parquet.thrift_fields import Fields

# Fields of RowGroup.
_COLUMNS, _TOTAL_BYTES, _NUM_ROWS, _GROUP_OFFSET, _COMPRESSED_BYTES = 1, 2, 3, 5, 6


class AssembledGroup(Struct):
    """A new file of one row group. Call :meth:`copy` or :meth:`join` for each leaf in their order, then :meth:`finish`.

    :param file: an empty one.
    :param like: a footer with the columns of the file.
    """

    file: PartFile
    like: Footer
    _uncompressed_bytes: int = 0
    _chunks: list[ColumnChunk] = field(default_factory=list)
    #: Chunks of the new file, each with its indexes.
    _indexes: list[tuple[ColumnChunk, bytes | None, bytes | None]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.file.write(MAGIC)

    def copy(self, source: PartFile, chunk: ColumnChunk) -> None:
        """Copy a chunk of another file, with its page index if it has one.

        :raises CorruptThrift: a place lies outside of that file.
        """
        start, size = chunk.place
        by = self.file.tell() - start
        source.share_with(self.file, start, size)
        moved = chunk.moved(by)
        offsets, bounds = (
            source.read(chunk.required_number(offset), chunk.required_number(length))
            if offset in chunk.form.places
            else None
            for offset, length in (OFFSET_INDEX, COLUMN_INDEX)
        )
        self._indexes.append((moved, offsets and moved_offset_index(offsets, by), bounds))
        self._chunks.append(moved)
        self._uncompressed_bytes += chunk.uncompressed_bytes

    def join(self, joined: JoinedChunk) -> None:
        """Write the pages of a joined chunk."""
        described = joined.describe(self.file.tell())
        for piece in joined.pieces:
            self.file.keep(piece)
        self._chunks.append(described[0])
        self._indexes.append(described)
        self._uncompressed_bytes += joined.uncompressed_bytes

    def finish(self, num_rows: int) -> RowGroup:
        """Write the rest of the file, and return its row group."""
        compressed_bytes = self.file.tell() - len(MAGIC)
        for chunk, _, bounds in self._indexes:
            self._put(chunk, COLUMN_INDEX, bounds)
        for chunk, offsets, _ in self._indexes:
            self._put(chunk, OFFSET_INDEX, offsets)
        fields = Fields()
        fields[_COLUMNS] = (LIST, self._chunks)
        fields.put_number(_TOTAL_BYTES, self._uncompressed_bytes)
        fields.put_number(_NUM_ROWS, num_rows)
        fields.put_number(_GROUP_OFFSET, len(MAGIC))
        fields.put_number(_COMPRESSED_BYTES, compressed_bytes)
        group = RowGroup(fields)
        self.file.write(self.like.with_row_groups([group], num_rows, {}).to_end())
        return group

    def _put(self, chunk: ColumnChunk, place: tuple[Path, Path], content: bytes | None) -> None:
        """Write an index, and put its place into the chunk that names it."""
        if content is not None:
            chunk.put_number(place[0], self.file.tell())
            chunk.put_number(place[1], len(content))
            self.file.write(content)
