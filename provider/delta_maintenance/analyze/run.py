"""Runs ANALYZE: computes statistics, and commits the files with them again, with ``dataChange`` false.

No data file is written. Each file is a group of the commit by itself, so a file that another writer has changed meanwhile is left out.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from msgspec import Struct, field
from msgspec.structs import replace

from delta_log.arrow.prefetch import map_ordered
from delta_log.errors import TableError
from delta_log.log.actions import Add
from delta_log.log.data_path import is_external
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation
from delta_log.transaction.commit_body import Change, FileGroup
from delta_log.transaction.conflict import RUN_TAG
from delta_log.transaction.file_actions import ROW_COLUMNS, add_of_row
from delta_log.transaction.transaction import Transaction
from delta_maintenance.analyze.file_reading import StatsReader
from delta_maintenance.analyze.options import AnalyzeOptions
from delta_maintenance.analyze.plan import are_missing, are_untrue
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.job_context import JobContext
from delta_maintenance.partitions.partition_scope import PartitionScope

_SHOWN_FILES = 10


class Analysis(Struct):
    """What a run has found.

    :ivar adds: files with new statistics.
    :ivar unreadable: what is wrong with files that cannot be read, by path.
    :ivar num_missing: number of files that lacked statistics, and ``num_untrue`` the number of files whose statistics were wrong.
    """

    num_files: int = 0
    num_missing: int = 0
    num_untrue: int = 0
    num_files_with_columns_read: int = 0
    adds: list[Add] = field(default_factory=list)
    unreadable: dict[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """The result as JSON values."""
        return {
            "numFilesAnalyzed": self.num_files,
            "numFilesWithoutStatistics": self.num_missing,
            "numFilesWithUntrueStatistics": self.num_untrue,
            "numFilesToUpdate": len(self.adds),
            "numFilesWithColumnsRead": self.num_files_with_columns_read,
            "numUnreadableFiles": len(self.unreadable),
            "unreadable": dict(list(self.unreadable.items())[:_SHOWN_FILES]),
        }


def run(spec: JobSpec, context: JobContext) -> JobReport:
    """Compute the statistics that are missing, or all of them, and commit those that change.

    :raises InvalidRequest: the predicate cannot be used.
    :raises CommitFailed: other writers changed all of the files meanwhile.
    """
    options = AnalyzeOptions.from_mapping(spec.options)
    storage, snapshot = context.table.storage, context.table.snapshot()
    table_features.require(snapshot.protocol, Operation.ANALYZE, snapshot.unused_features)
    done = None if spec.dry_run else context.version_of_an_earlier_try(spec, snapshot)
    if done is not None:
        return context.report(
            spec, "already_done", snapshot.version, version=done, transaction=spec.transaction
        )
    found = analyze(storage, snapshot, options)
    context.saw(snapshot)
    facts = {"transaction": spec.transaction, "plan": {"readVersion": snapshot.version, **found.to_dict()}}
    if spec.dry_run:
        return context.report(spec, "planned", snapshot.version, **facts)
    if not found.adds:
        return context.report(spec, "nothing_to_do", snapshot.version, **facts)
    storage.require_writable()
    change = _change(found, spec, options)
    result = Transaction(storage, snapshot, Operation.ANALYZE, context.runtime).commit(change)
    context.saw(result.snapshot, result.checkpointed)
    status = "already_done" if result.already_done else "committed"
    metrics = {"numUpdatedFiles": len(found.adds) - len(result.dropped)}
    return context.report(spec, status, snapshot.version, version=result.version, metrics=metrics, **facts)


def analyze(storage: Storage, snapshot: Snapshot, options: AnalyzeOptions) -> Analysis:
    """Compute statistics; write nothing."""
    reader, found = StatsReader.of(storage, snapshot), Analysis()
    columns = reader.settings.stats_columns

    def read(row: Mapping[str, Any]) -> tuple[Mapping[str, Any], Any]:
        try:
            return row, reader.read(row["key"], has_vector=row["deletion_vector"] is not None)
        except TableError as error:
            return row, error

    rows = _rows(snapshot, options, reader)
    for row, computed in map_ordered(read, rows, storage.concurrency):
        found.num_files += 1
        if isinstance(computed, TableError):
            found.unreadable[row["path"]] = str(computed)
            continue
        found.num_files_with_columns_read += computed.num_columns_read > 0
        if row["is_missing"]:
            found.num_missing += 1
        elif are_untrue(row["stats"], computed.exact, columns):
            found.num_untrue += 1
        else:
            continue
        if computed.text != row["stats"]:
            found.adds.append(replace(add_of_row(row, data_change=False), stats=computed.text))
    return found


def _rows(snapshot: Snapshot, options: AnalyzeOptions, reader: StatsReader) -> Iterator[Mapping[str, Any]]:
    """Yield the files to look at: in the table's directory, and without statistics unless every file is asked for."""
    scope = None if options.where is None else PartitionScope.of(snapshot, options.where)
    left = options.max_files
    for batch in snapshot.file_batches(("key", *ROW_COLUMNS), None if scope is None else scope.predicate):
        missing = are_missing(batch.column("stats"), reader.settings.stats_columns)
        marked = batch.append_column("is_missing", missing)
        wanted = marked if options.every_file else marked.filter(missing)
        for row in wanted.to_pylist():
            if left == 0:
                return
            if not is_external(row["key"]):
                left = None if left is None else left - 1
                yield row


def _change(found: Analysis, spec: JobSpec, options: AnalyzeOptions) -> Change:
    return Change(
        # As delta-spark names it.
        operation="COMPUTE STATS",
        groups=[FileGroup([add]) for add in found.adds],
        parameters={"predicate": [] if options.where is None else [options.where]},
        metrics=lambda kept: {"numUpdatedFiles": len(kept)},
        transaction=spec.piece_of_work,
        tags={**spec.tags, RUN_TAG: spec.run_id},
    )
