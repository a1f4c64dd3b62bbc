"""Decides which row groups of a source may be copied as bytes, and says of the others why they are decoded.

A row group is copied only if decoding and encoding it would change nothing but its layout: the columns are those that the writer
would write, and each part of the footer is one that this module knows. Everything else is decoded.

=========  =========================================================================================
mode       row groups that are copied
=========  =========================================================================================
auto       of at least 16 MiB, or of 122,880 rows, since many small row groups cost every reader
copy       all that may be
encode     none
=========  =========================================================================================

Statistics of a copied row group stay where all readers understand them in one way. The rest is left out of the new footer:

==================================================  ==============================================
bounds                                              kept
==================================================  ==============================================
of files that do not say how values compare         never
of the deprecated form                              where the present form says the same
zeros of float and double leaves                    as -0.0 below and 0.0 above
of float and double leaves                          from parquet-java, unless one is a NaN; from others,
                                                    without the bounds of pages, where ``auto`` has found
                                                    no NaN in their pages
of pages                                            from writers whose column indexes are known to be
                                                    right (:mod:`delta_maintenance.rewrite.encode.writer_notes`)
claims of dictionaries and Bloom filters of         never: writers may take 0.0 and -0.0 for two values
float and double leaves
==================================================  ==============================================
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import pairwise

from msgspec import Struct, field

from delta_maintenance.rewrite.encode.writer_notes import WriterNotes
from delta_maintenance.rewrite.encode.writer_settings import CODEC_PROPERTY, WriterSettings
from delta_maintenance.rewrite.limits import LARGE_BYTES, LARGE_ROWS
from delta_maintenance.rewrite.task import RewriteTask, SourceFile
from parquet_parts.assembled_file import OmittedClaims
from parquet_parts.chunk_template import ChunkTemplate
from parquet_parts.footer import MAGIC, Footer, RowGroup
from parquet_parts.page import UNCOMPRESSED
from parquet_parts.schema_elements import (
    DOUBLE,
    FLOAT,
    Leaf,
    columns_of,
    leaves_of,
)
from parquet_parts.thrift import CorruptThrift

#: Numbers of ``CompressionCodec`` by our names for codecs.
_CODECS = {"none": 0, "snappy": 1, "gzip": 2, "brotli": 4, "zstd": 6, "lz4": 7}
_KNOWN_CODECS = tuple(_CODECS.values())
#: Numbers of ``Encoding``: plain, dictionaries, levels, deltas, and split streams.
_ENCODINGS = frozenset({0, 2, 3, 4, 5, 6, 7, 8, 9})
#: Between two column chunks.
_LARGEST_GAP_BYTES = 4 << 10

# Reasons against copying.
DELETED_ROWS = "some of its rows are deleted"
SEVERAL_FILES = "its rows are divided between several new files"
OTHER_COLUMNS = "its columns are not stored as the table stores them today"
UNKNOWN_WRITER = "the rules by which its writer makes statistics are not known"
JULIAN = "it may hold dates of the Julian calendar"
ENCRYPTED = "it is encrypted"
ELSEWHERE = "a part of it is in another file"
OTHER_CODEC = "it has another codec than the table's"
UNKNOWN_CODEC = "its codec is not known"
UNKNOWN_ENCODING = "one of its encodings is not known"
ROW_IDS = "it does not hold the ids of all its rows"
SMALL = "its row groups are small"
ODD_FOOTER = "its footer contradicts itself"
NO_FOOTER = "its footer cannot be read"
OTHER_SIZE = "it has another size than the log says"


class CopyDecision(Struct, frozen=True):
    """What may be copied of a file.

    :param reasons: why each row group is decoded; ``None``: it is copied. Row groups without rows are copied.
    :param distrust: what the new file leaves out of each copied row group.
    """

    reasons: tuple[str | None, ...]
    distrust: OmittedClaims = field(default_factory=OmittedClaims)

    @property
    def is_whole(self) -> bool:
        """Whether the whole file is copied."""
        return not any(self.reasons)


class CopyRules(Struct):
    """Judges the sources of one task.

    :param mode: ``auto`` or ``copy``.
    :param like: the footer that the writer writes.
    :param codec: the number that the table's property names; ``None``: the table names none.
    :param num_row_ids: how many of the last columns keep row ids and versions.
    """

    mode: str
    like: Footer
    codec: int | None = None
    num_row_ids: int = 0
    _leaves: list[Leaf] = field(default_factory=list)
    _floats: frozenset[int] = frozenset()
    #: Whether columns are right, by the bytes of the schema.
    _schemas: dict[bytes, bool] = field(default_factory=dict)
    #: The forms of the chunks of the row group before, the codecs that they might have, and what is against them.
    _last_forms: tuple[tuple[ChunkTemplate, ...], Collection[int], str | None] = ((), (), None)
    #: The writer that was met last, by the bytes that describe it.
    _writers: dict[tuple[bytes, bytes], WriterNotes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._leaves = leaves_of(self.like.schema)
        self._floats = frozenset(
            number for number, leaf in enumerate(self._leaves) if leaf.physical_type in (FLOAT, DOUBLE)
        )

    @classmethod
    def of(cls, task: RewriteTask, like: Footer, num_row_ids: int) -> CopyRules:
        """Take the rules of a task."""
        named = CODEC_PROPERTY in task.configuration
        codec = _CODECS[WriterSettings.codec_of(task.configuration)] if named else None
        return cls(task.rewrite, like, codec, num_row_ids)

    def judge(self, footer: Footer, data_end: int) -> CopyDecision:
        """Decide about a file without deleted rows.

        :param data_end: the offset of the footer.
        """
        try:
            groups = footer.row_groups
            against = self._against_file(footer)
            if against is None:
                against = self._against_places(footer, groups, data_end, self._leaves)
            if against is not None:
                return CopyDecision((against,) * len(groups))
            codecs = self._codecs_of(footer)
            reasons = tuple(self._against_group(group, codecs) for group in groups)
        except CorruptThrift:
            return CopyDecision((ODD_FOOTER,) * max(1, len(footer.row_groups)))
        return CopyDecision(reasons, self._distrust(footer))

    def writer_of(self, footer: Footer) -> WriterNotes:
        """Return what a footer says of the writer of a file."""
        written = footer.writer_bytes
        found = self._writers.get(written)
        if found is None:
            found = WriterNotes.of(footer)
            self._writers = {written: found}
        return found

    def _codecs_of(self, footer: Footer) -> Collection[int]:
        """Return the codecs that the chunks of a file may have: the table's, and none where this provider found it of no use."""
        if self.codec is None:
            return _KNOWN_CODECS
        chose = _CODECS.get(self.writer_of(footer).codec or "") == self.codec
        return (self.codec, UNCOMPRESSED) if chose else (self.codec,)

    def _against_file(self, footer: Footer) -> str | None:
        if footer.is_signed:
            return ENCRYPTED  # its schema may be, too
        schema = footer.schema_bytes
        if schema not in self._schemas:
            self._schemas[schema] = stores_alike(footer, self.like)
        return self._against_writer(footer) if self._schemas[schema] else OTHER_COLUMNS

    def _against_writer(self, footer: Footer) -> str | None:
        if footer.is_signed:
            return ENCRYPTED
        writer = self.writer_of(footer)
        if not writer.is_known:
            return UNKNOWN_WRITER
        return JULIAN if writer.may_be_julian else None

    def _against_places(
        self, footer: Footer, groups: list[RowGroup], data_end: int, leaves: list[Leaf]
    ) -> str | None:
        """Compare what the footer says of the places of pages, and of the numbers of values."""
        if footer.num_rows != sum(group.num_rows for group in groups):
            return ODD_FOOTER
        extents = []
        for group in groups:
            rows, chunks = group.num_rows, group.chunks
            if len(chunks) != len(leaves) or rows < 0:
                return ODD_FOOTER
            if not rows:
                continue
            places = []
            for leaf, chunk in zip(leaves, chunks, strict=True):
                start, size = chunk.place
                if size <= 0 or not (leaf.is_repeated or chunk.num_values == rows):
                    return ODD_FOOTER
                places.append((start, start + size))
            places.sort()
            # Old writers repeat the metadata of a chunk behind it.
            if not all(0 <= start - end <= _LARGEST_GAP_BYTES for (_, end), (start, _) in pairwise(places)):
                return ODD_FOOTER
            extents.append((places[0][0], places[-1][1]))
        extents.sort()
        bounds = [(0, len(MAGIC)), *extents, (data_end, data_end)]
        fits = all(end <= start for (_, end), (start, _) in pairwise(bounds))
        return None if fits else ODD_FOOTER

    def _against_group(self, group: RowGroup, codecs: Collection[int]) -> str | None:
        if not group.num_rows:
            return None
        forms = tuple(chunk.form for chunk in group.chunks)
        # Most files of a table are written alike.
        if (forms, codecs) != self._last_forms[:2]:
            found = (
                self._against_form(leaf, form, codecs) for leaf, form in zip(self._leaves, forms, strict=True)
            )
            against = next((against for against in found if against is not None), None)
            self._last_forms = forms, codecs, against
        if self._last_forms[2] is not None:
            return self._last_forms[2]
        if self.num_row_ids and any(chunk.null_count != 0 for chunk in group.chunks[-self.num_row_ids :]):
            return ROW_IDS
        if self.mode == "auto" and group.num_rows < LARGE_ROWS:
            start, end = group.extent
            if end - start < LARGE_BYTES:
                return SMALL
        return None

    def _against_form(self, leaf: Leaf, form: ChunkTemplate, codecs: Collection[int]) -> str | None:
        if form.is_encrypted:
            return ENCRYPTED
        if form.is_elsewhere:
            return ELSEWHERE
        if form.leaf != leaf.path or form.physical_type != leaf.physical_type:
            return ODD_FOOTER
        if form.codec not in _KNOWN_CODECS:
            return UNKNOWN_CODEC
        if form.codec not in codecs:
            return OTHER_CODEC
        return None if _ENCODINGS.issuperset(form.encodings) else UNKNOWN_ENCODING

    def _distrust(self, footer: Footer) -> OmittedClaims:
        writer = self.writer_of(footer)
        no_bounds = frozenset() if writer.has_true_floats else self._floats
        if not footer.has_type_orders:
            no_bounds = frozenset(range(len(self._leaves)))
        no_indexes = frozenset(
            number
            for number, leaf in enumerate(self._leaves)
            if not (writer.has_true_list_indexes if leaf.is_repeated else writer.has_true_indexes)
        )
        return OmittedClaims(no_bounds, self._floats, is_foreign=True, page_bounds=no_indexes)


def stores_alike(footer: Footer, other: Footer) -> bool:
    """Tell whether two files store the same columns in the same way.

    :raises CorruptThrift: a schema is malformed.
    """
    return columns_of(footer.schema) == columns_of(other.schema)


def against_source(task: RewriteTask, source: SourceFile) -> str | None:
    """Say what the log has against copying from a file; ``None``: its footer decides."""
    if task.num_outputs > 1:
        return SEVERAL_FILES
    return None if source.deletion_vector is None else DELETED_ROWS
