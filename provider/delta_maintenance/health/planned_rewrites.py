"""What OPTIMIZE or a purge would do to a version, by their own planner, so that a reading and a run agree."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from delta_log.arrow.arrays import arrow_array
from delta_log.errors import InvalidPartitionValue
from delta_log.snapshot.deletion_ratio import predicate_of
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.version_checksum import VersionChecksum
from delta_log.stats.file_histogram import FileHistogram
from delta_log.table_config.features import Operation, supports
from delta_log.table_config.partition_values import parse
from delta_log.table_config.schema import PrimitiveType
from delta_maintenance.health.facts import FileTotal, PlannedLayout, PlannedRewrite
from delta_maintenance.health.file_sizes import in_classes
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.optimize.forecast.layout_advice import Query, advised_layout, clustering_advice
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.plan import ForeignFiles, OptimizePlan
from delta_maintenance.optimize.plan.planner import plan_optimize
from delta_maintenance.optimize.plan.rewrite_tag import target_size
from delta_maintenance.optimize.plan.table_layout import clustered_columns
from delta_maintenance.optimize.tasks import require_rewritable
from delta_maintenance.partitions.partition_groups import partition_groups

#: A predicate with more partitions is longer than a person reads.
_MAX_NAMED_PARTITIONS = 20
#: Types of partition columns whose raw values a predicate compares just as the planner does.
_NAMEABLE = frozenset({"string", "date", "boolean", "byte", "short", "integer", "long"})


def files_to_merge(snapshot: Snapshot, small_file_bytes: int, now_ms: int) -> int:
    """Count the files that OPTIMIZE would put together with others.

    :param small_file_bytes: size below which files are small; at most the table's target size counts.
    :raises DeltaLogError: OPTIMIZE refuses the table.
    """
    require_rewritable(snapshot, Operation.OPTIMIZE)
    smallest = min(small_file_bytes, target_size(snapshot, OptimizeOptions()))
    return plan_optimize(snapshot, OptimizeOptions(min_file_size_bytes=smallest), now_ms).num_files_to_merge


def has_no_vectors(checksum: VersionChecksum) -> bool:
    """Whether a checksum shows that no file has a deletion vector."""
    if checksum.protocol is not None and not supports(checksum.protocol, "deletionVectors"):
        return True
    return checksum.numDeletionVectorsOpt == 0


def most_files_to_merge(checksum: VersionChecksum, small_file_bytes: int) -> int:
    """The most files that OPTIMIZE may find to merge, by a checksum alone.

    :param small_file_bytes: size below which files are small.
    """
    histogram = checksum.fileSizeHistogram or checksum.histogramOpt
    if histogram is None or not has_no_vectors(checksum):
        return checksum.numFiles
    starts, counts = histogram.sortedBinBoundaries, histogram.fileCounts
    if starts[:1] != [0] or starts != sorted(starts) or len(starts) != len(counts) or min(counts) < 0:
        return checksum.numFiles
    return sum(count for start, count in zip(starts, counts, strict=True) if start < small_file_bytes)


def planned_rewrite(
    snapshot: Snapshot, request: Mapping[str, Any], now_ms: int, *, purge: bool = False
) -> tuple[PlannedRewrite, ForeignFiles]:
    """Plan a run; return the numbers of the plan, and the files that no run touches.

    :param request: the options of the run's job spec.
    :raises InvalidRequest: the options make no sense for this table.
    """
    plan = plan_optimize(snapshot, OptimizeOptions.from_mapping(request, purge=purge), now_ms)
    return rewrite_of(plan, snapshot, request), plan.foreign


def rewrite_of(plan: OptimizePlan, snapshot: Snapshot, request: Mapping[str, Any]) -> PlannedRewrite:
    """Return the numbers of a plan.

    :param request: the options of the run's job spec.
    """
    partitions = _partitions(plan, snapshot)
    return _summary(plan, snapshot, partitions, request, _where(partitions, snapshot))


def _summary(
    plan: OptimizePlan,
    snapshot: Snapshot,
    partitions: list[Mapping[str, str | None]],
    request: Mapping[str, Any],
    where: str | None,
) -> PlannedRewrite:
    return PlannedRewrite(
        num_bins=len(plan.bins),
        num_files=plan.num_files,
        num_files_to_merge=plan.num_files_to_merge,
        bytes_in=plan.bytes_in,
        num_outputs=plan.num_outputs,
        live_bytes=plan.live_bytes,
        target_size_bytes=plan.target_size_bytes,
        min_file_size_bytes=plan.min_file_size_bytes,
        num_partitions=len(partitions),
        options=request,
        where=where,
        merged_sizes=_merged_sizes(plan),
        merged_by_partition=_merged_by_partition(plan, snapshot),
    )


def _merged_sizes(plan: OptimizePlan) -> dict[int, FileTotal]:
    if not plan.num_files_to_merge:
        return {}
    is_merged = np.zeros(plan.num_files, bool)
    for planned in plan.bins:
        is_merged[planned.start : planned.end] = planned.num_files > 1
    files = plan.files.filter(arrow_array(is_merged))
    nothing = pa.nulls(files.num_rows, pa.int64())
    return in_classes(FileHistogram.of(files.column("size"), nothing))


def _merged_by_partition(
    plan: OptimizePlan, snapshot: Snapshot
) -> dict[tuple[tuple[str, str | None], ...], FileTotal]:
    columns = [(column.name, column.physical_name) for column in snapshot.partition_schema]
    found: dict[tuple[tuple[str, str | None], ...], FileTotal] = {}
    for planned in plan.bins:
        if planned.num_files > 1:
            key = tuple((name, planned.partition_values.get(physical) or None) for name, physical in columns)
            found[key] = found.get(key, FileTotal()).plus(planned.num_files, planned.bytes_in)
    return found


def _partitions(plan: OptimizePlan, snapshot: Snapshot) -> list[Mapping[str, str | None]]:
    """The partitions of a plan's bins: logical column names to raw values."""
    columns = [(column.name, column.physical_name) for column in snapshot.partition_schema]
    found: dict[tuple[str | None, ...], Mapping[str, str | None]] = {}
    for planned in plan.bins:
        # Empty text stands for null (protocol section "Partition Value Serialization").
        values = {name: planned.partition_values.get(physical) or None for name, physical in columns}
        found.setdefault(tuple(values.values()), values)
    return list(found.values())


def _is_plain(value: str) -> bool:
    """Whether a value may stand in a command line, and in an operator's argument, which is a template."""
    return value.isprintable() and "{" not in value


def _where(partitions: list[Mapping[str, str | None]], snapshot: Snapshot) -> str | None:
    kinds = [column.type for column in snapshot.partition_schema]
    if not kinds or not 0 < len(partitions) <= _MAX_NAMED_PARTITIONS:
        return None
    if not all(isinstance(kind, PrimitiveType) and kind.name in _NAMEABLE for kind in kinds):
        return None
    if not all(value is None or _is_plain(value) for one in partitions for value in one.values()):
        return None
    try:  # a predicate selects no file with a value that cannot be read
        for one in partitions:
            for column in snapshot.partition_schema:
                parse(one[column.name], column.type, column.name)
    except InvalidPartitionValue:
        return None
    groups = partition_groups(
        snapshot.files(["partition_values"]).column("partition_values"), snapshot.partition_schema
    )
    return None if groups.max() < len(partitions) else predicate_of(snapshot, partitions)


def looks_for_layout(snapshot: Snapshot, options: HealthOptions) -> bool:
    """Whether a reading says anything about layouts."""
    return options.queries is not None or bool(clustered_columns(snapshot))


def planned_layout(snapshot: Snapshot, options: HealthOptions, now_ms: int) -> PlannedLayout | None:
    """Find the layout for the queries of a reading; ``None``: none would change anything.

    :raises InvalidRequest: the queries cannot be read, or name too many columns.
    """
    queries: list[Query] = []
    if options.queries is not None:
        # Imported here: most readings parse no SQL.
        from delta_maintenance.partitions.predicate import filtered_columns

        queries = [query for text in options.queries for query in filtered_columns(text)]
    request = OptimizeOptions.from_mapping(options.optimize_request)
    is_clustered = bool(clustered_columns(snapshot))
    advise = clustering_advice if is_clustered else advised_layout
    advice = advise(snapshot, queries, request, now_ms)
    if advice is None:
        return None
    layout = advice.plan.layout
    assert layout is not None
    wanted = {} if is_clustered else {"layout": advice.options.sorts, "by": list(advice.options.by or ())}
    return PlannedLayout(
        "clustering" if is_clustered else layout.layout.kind,
        layout.names,
        advice.now,
        max(advice.now, advice.after),
        rewrite_of(advice.plan, snapshot, {**options.optimize_request, **wanted}),
        advice.unusable,
    )
