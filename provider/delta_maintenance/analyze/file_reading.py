"""Computes the statistics of one data file from its footer, and from the columns for which the footer is not enough.

=====================================================  =======================================
statistics                                             taken from
=====================================================  =======================================
``numRecords``                                         the footer
columns whose bounds and null counts are all there     the footer
floats that may hold a NaN, by the file's writer       the column
arrays, maps, variants                                 the column
bounds that the footer left out, such as long texts    the column
a file with other columns or types than the table      all columns with statistics
=====================================================  =======================================

Which footers are trusted is decided as for row groups that a rewrite copies (:mod:`delta_maintenance.rewrite.copy.copy_rules`).
Deleted rows count: bounds of a file with a deletion vector are wide (``tightBounds`` is false).
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from itertools import count

import pyarrow as pa
from msgspec import Struct, field
from msgspec.structs import replace

from delta_log.data.data_file import DataFile
from delta_log.errors import CorruptLog
from delta_log.snapshot.snapshot import Snapshot
from delta_log.stats.file_stats import StatsCollector, StatsColumn
from delta_log.storage.storage import Storage
from delta_log.table_config.clustering import clustering_columns
from delta_log.table_config.features import reader_features
from delta_log.table_config.schema import StructType, arrow_schema
from delta_maintenance.rewrite.copy.copied_stats import NewFileStats
from delta_maintenance.rewrite.copy.copy_rules import CopyDecision, CopyRules
from delta_maintenance.rewrite.encode.encoded_part import empty_footer
from delta_maintenance.rewrite.encode.footer_stats import file_leaves
from delta_maintenance.rewrite.encode.writer_settings import WriterSettings
from parquet_parts.footer import END_BYTES, FileEnd, footer_length, read_end
from parquet_parts.thrift import CorruptThrift

#: No string is longer.
_UNCUT = 1 << 31


class ComputedStats(Struct, frozen=True):
    """The statistics of a file.

    :param text: JSON text for ``add.stats``; ``exact``: the same with uncut strings.
    :param num_columns_read: number of columns whose values were read.
    """

    text: str
    exact: str
    num_columns_read: int


class StatsReader(Struct):
    """Computes the statistics of the files of one version. Several threads may do so at once."""

    storage: Storage
    stored: StructType
    mapping_mode: str
    settings: WriterSettings
    _schema: pa.Schema
    _rules: tuple[CopyRules, ...]
    _lock: threading.Lock = field(default_factory=threading.Lock)

    @classmethod
    def of(cls, storage: Storage, snapshot: Snapshot) -> StatsReader:
        stored = snapshot.schema.without(snapshot.partition_columns)
        settings = WriterSettings.of(
            snapshot.properties,
            stored,
            reader_features(snapshot.protocol),
            clustering_columns(snapshot.domain_metadata),
        )
        schema = arrow_schema(stored, physical=True)
        # Writers store decimals in two ways.
        likes = [empty_footer(schema, replace(settings, decimals_as_integers=flag)) for flag in (True, False)]
        rules = tuple(CopyRules("copy", like) for like in likes)
        return cls(storage, stored, snapshot.mapping_mode, settings, schema, rules)

    def read(self, key: str, *, has_vector: bool) -> ComputedStats:
        """Compute the statistics of a file.

        :raises CorruptLog: the file is missing or broken.
        :raises UnsupportedFeature: the file is encrypted, or holds values that readers understand differently.
        """
        end, decision = self._footer(key)
        tight = None if self.settings.tight_bounds is None else not has_vector
        found = StatsCollector(self.settings.stats_columns, self.settings.string_prefix_length, tight)
        told = self._told_by_footer(end, decision)
        in_footer = [column for column in found.columns if column.path in told]
        others = [column for column in found.columns if column.path not in told]
        if in_footer and decision is not None:
            footer_stats = NewFileStats(lambda: StatsCollector(in_footer), self._schema)
            footer_stats.add(end.footer.row_groups, decision.distrust)
            found.take(footer_stats.finish())
        if others:
            found.take(self._of_values(key, end, others))
        found.num_records = end.footer.num_rows
        return ComputedStats(
            found.finish(), replace(found, string_prefix_length=_UNCUT).finish(), len(others)
        )

    def _footer(self, key: str) -> tuple[FileEnd, CopyDecision | None]:
        """Read a footer, and decide whether to trust it; ``None``: only in the number of rows."""
        try:
            with self.storage.open_read(key) as source:
                tail = read_end(source)
                size_bytes = source.seek(0, 2)
            end = FileEnd.of(tail)
        except FileNotFoundError as error:
            raise CorruptLog(key, "the log names this data file, but it is missing") from error
        except CorruptThrift as error:
            raise CorruptLog(key, f"it is not a readable Parquet file ({error})") from error
        data_end = size_bytes - footer_length(tail[-END_BYTES:]) - END_BYTES
        with self._lock:
            judged = (rules.judge(end.footer, data_end) for rules in self._rules)
            return end, next((decision for decision in judged if decision.is_whole), None)

    def _told_by_footer(self, end: FileEnd, decision: CopyDecision | None) -> set[tuple[str, ...]]:
        """Select the columns whose statistics the footer has, by their paths."""
        if decision is None:
            return set()
        groups = [group.chunks for group in end.footer.row_groups if group.num_rows]
        leaves = file_leaves(list(self._schema), (), count())
        return {
            path
            for path, number, _ in leaves
            if all(
                chunks[number].is_null
                or (
                    chunks[number].bounds is not None
                    and chunks[number].null_count is not None
                    and number not in decision.distrust.bounds
                )
                for chunks in groups
            )
        }

    def _of_values(self, key: str, end: FileEnd, columns: Sequence[StatsColumn]) -> StatsCollector:
        names = {column.path[0] for column in columns}
        fields = [member for member in self.stored if member.physical_name in names]
        found = StatsCollector(columns)
        file = DataFile(self.storage, key, self.mapping_mode, end=end)
        try:
            for rows in file.read(fields, physical=True, on_all_processors=False):
                found.update(
                    pa.RecordBatch.from_arrays(list(rows.arrays), [member.physical_name for member in fields])
                )
        finally:
            file.close()
        return found
