"""Makes tasks of the bins of a plan: an engine needs nothing else to rewrite them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import overload

from msgspec.structs import replace

from delta_log.errors import SymbolicLinkRefused, UnsupportedFeature
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.features import Operation, materializes_partitions
from delta_log.table_config.schema import parquet_levels, storable
from delta_maintenance.optimize.plan.plan import OptimizePlan
from delta_maintenance.rewrite.encode.writer_settings import WriterSettings
from delta_maintenance.rewrite.read.row_reader import row_tracking
from delta_maintenance.rewrite.task import RewriteTask


def task_template(snapshot: Snapshot, run_id: str, table_uri: str) -> RewriteTask:
    """Return a task with all facts of the table, and without files."""
    return RewriteTask(
        bin_id="",
        table_uri=table_uri,
        run_id=run_id,
        schema_json=snapshot.metadata.schemaString,
        partition_columns=snapshot.partition_columns,
        mapping_mode=snapshot.mapping_mode,
        configuration=snapshot.properties,
        reader_features=tuple(snapshot.protocol.readerFeatures or ()),
        partition_values={},
        sources=(),
        target_size_bytes=0,
        rewrite_tag="",
        materializes_partitions=materializes_partitions(snapshot.properties, snapshot.protocol),
    )


class PlannedTasks(Sequence[RewriteTask]):
    """The bins of a plan as tasks. Each task is made on access, so a million sources are never in memory as objects."""

    def __init__(
        self,
        plan: OptimizePlan,
        snapshot: Snapshot,
        run_id: str,
        table_uri: str,
        begin_before_ms: int | None = None,
    ) -> None:
        self._plan, self._begin_before_ms = plan, begin_before_ms
        self._template = task_template(snapshot, run_id, table_uri)

    def __len__(self) -> int:
        return len(self._plan.bins)

    @overload
    def __getitem__(self, index: int) -> RewriteTask: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[RewriteTask]: ...
    def __getitem__(self, index: int | slice) -> RewriteTask | Sequence[RewriteTask]:
        if isinstance(index, slice):
            return [self[at] for at in range(*index.indices(len(self)))]
        planned = self._plan.bins[index]
        return replace(
            self._template,
            bin_id=planned.bin_id,
            partition_values=planned.partition_values,
            sources=self._plan.sources(planned),
            target_size_bytes=self._plan.target_size_bytes,
            rewrite_tag=self._plan.rewrite_tag,
            verify=self._plan.options.verify,
            num_outputs=planned.num_outputs,
            rewrite=self._plan.options.rewrite,
            # The first bin is begun in any case, so that every run makes progress.
            begin_before_ms=self._begin_before_ms if index % len(self) else None,
            planned_bytes=planned.live_bytes,
            layout=self._plan.layout.layout if self._plan.layout is not None else None,
            clustering_columns=self._plan.clustered_by,
            clustering_provider=planned.clustering[0] if planned.clustering is not None else None,
            clustering_tags=planned.clustering[1] if planned.clustering is not None else {},
            keeps_row_map=self._plan.options.remap,
        )


def tasks_of(
    plan: OptimizePlan, snapshot: Snapshot, run_id: str, table_uri: str, begin_before_ms: int | None = None
) -> Sequence[RewriteTask]:
    """The bins of a plan as tasks, in their order."""
    return PlannedTasks(plan, snapshot, run_id, table_uri, begin_before_ms)


#: Arrow neither reads nor writes deeper columns. An array or a map takes two levels, a struct or a value one.
MAX_LEVELS = 99


def require_rewritable(snapshot: Snapshot, gate: Operation) -> None:
    """Refuse a table that cannot be rewritten; called before anything else, so that a dry run is refused, too.

    :param gate: OPTIMIZE or PURGE.
    :raises DeltaLogError: this release cannot write a file of the table.
    """
    table_features.require(snapshot.protocol, gate, snapshot.unused_features)
    if snapshot.num_files:
        # Of an empty table no file is ever written.
        for column in storable(snapshot.schema.without(snapshot.partition_columns)):
            if parquet_levels(column.type) > MAX_LEVELS:
                feature = f"the column {column.name!r}, which is nested more than {MAX_LEVELS} levels deep in Parquet"
                raise UnsupportedFeature((feature,), "write files of")
    row_tracking(snapshot.properties)
    WriterSettings.codec_of(snapshot.properties)


def require_no_links(plan: OptimizePlan, storage: Storage) -> None:
    """Refuse a plan with a source that is a symbolic link or lies behind one, before a bin is written.

    A worker that meets a link refuses it, too. By then other bins may be done.

    :raises SymbolicLinkRefused: names the link.
    """
    if not storage.has_directories:
        return
    for batch in plan.files.select(["key"]).to_batches():
        keys = batch.column(0).to_pylist()
        for link in storage.symbolic_links(keys):
            if link is not None:
                raise SymbolicLinkRefused(f"{storage.uri}/{link}", link)
