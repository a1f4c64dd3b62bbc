"""What the commit of an EXPIRE does with each file: pure for files that go, and written rows for the others."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from uuid import UUID

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from delta_log.data.deletion_vector import inline_deletion_vector, write_deletion_vectors
from delta_log.log.actions import Add, Remove
from delta_log.snapshot.snapshot import Snapshot
from delta_log.stats.wide_bounds import with_wide_bounds
from delta_log.transaction.commit_body import FileGroup
from delta_log.transaction.file_actions import add_of_row, remove_of_row
from delta_maintenance.expire.plan.expiry_plan import PartlyExpired, WhollyExpired
from delta_maintenance.job_context import JobContext
from delta_maintenance.optimize.options import OptimizeOptions
from delta_maintenance.optimize.plan.bin_id import bin_id_of
from delta_maintenance.optimize.plan.plan import source_of
from delta_maintenance.optimize.plan.rewrite_tag import rewrite_settings_digest, target_size
from delta_maintenance.optimize.plan.table_layout import clustered_columns
from delta_maintenance.optimize.tasks import task_template
from delta_maintenance.rewrite.bin import rewrite_bin
from delta_maintenance.rewrite.task import BinManifest, RewriteTask


class Removal(Struct, frozen=True):
    """What the commit does with one file.

    :param num_rows: live rows that it removes.
    :param manifest: the file that was written in its place; ``None``: none was.
    """

    group: FileGroup
    num_rows: int
    manifest: BinManifest | None = None


def whole_file(gone: WhollyExpired, now_ms: int) -> Removal:
    """Remove a file all of whose rows have expired."""
    return Removal(FileGroup((), [remove_of_row(gone.file, now_ms)]), gone.num_rows)


def with_vectors(context: JobContext, partly: Sequence[PartlyExpired], now_ms: int) -> Iterator[Removal]:
    """Hide the rows by deletion vectors, all of them in one file."""
    if not partly:
        return
    bitmaps = [file.hidden for file in partly]
    vectors = write_deletion_vectors(context.table.storage, bitmaps, UUID(context.runtime.new_id()))
    for file, vector in zip(partly, vectors, strict=True):
        again = replace(
            add_of_row(file.file, data_change=True),
            deletionVector=vector,
            stats=with_wide_bounds(file.file["stats"], file.num_records),
        )
        yield Removal(FileGroup([again], [_removal_of(file, now_ms)]), file.num_expired)


def rewritten(
    context: JobContext, snapshot: Snapshot, run_id: str, partly: Sequence[PartlyExpired], now_ms: int
) -> Iterator[Removal]:
    """Write each file anew without its expired rows, as a rewrite that finds them hidden by a deletion vector."""
    template = task_template(snapshot, run_id, context.table.uri)
    target_bytes = target_size(snapshot, OptimizeOptions())
    template = replace(
        template,
        target_size_bytes=target_bytes,
        rewrite_tag=rewrite_settings_digest(snapshot, target_bytes),
        clustering_columns=clustered_columns(snapshot),
    )
    for file in partly:
        manifest = rewrite_bin(_task(template, file), context.table.storage, context.run_key)
        adds = [_new_file(manifest, number) for number in range(len(manifest.outputs))]
        yield Removal(FileGroup(adds, [_removal_of(file, now_ms)]), file.num_expired, manifest)


def _task(template: RewriteTask, partly: PartlyExpired) -> RewriteTask:
    hidden = msgspec.to_builtins(inline_deletion_vector(partly.hidden))
    source = replace(source_of(partly.file, partly.num_records), deletion_vector=hidden)
    return replace(
        template,
        bin_id=bin_id_of(template.rewrite_tag, [source]),
        partition_values=source.partition_values,
        sources=(source,),
    )


def _new_file(manifest: BinManifest, number: int) -> Add:
    output = manifest.outputs[number]
    return Add(
        path=output.path,
        partitionValues=dict(manifest.partition_values),
        size=output.size_bytes,
        modificationTime=output.modification_time_ms,
        dataChange=True,
        stats=output.stats,
        tags=dict(output.tags) or None,
    )


def metrics_of(removals: Sequence[Removal]) -> dict[str, int]:
    """Return the metrics of a DELETE, as delta-spark names them."""
    adds = [add for removal in removals for add in removal.group.adds]
    removes = [remove for removal in removals for remove in removal.group.removes]
    marked = [add for add in adds if add.deletionVector is not None]
    replaced = {add.path for add in marked}
    gone = [remove for remove in removes if remove.path not in replaced]
    new = [add for add in adds if add.deletionVector is None]
    return {
        "numDeletedRows": sum(removal.num_rows for removal in removals),
        "numRemovedFiles": len(gone),
        "numRemovedBytes": sum(remove.size or 0 for remove in gone),
        "numAddedFiles": len(new),
        "numAddedBytes": sum(add.size for add in new),
        "numCopiedRows": sum(
            removal.manifest.rows_out for removal in removals if removal.manifest is not None
        ),
        "numDeletionVectorsAdded": len(marked),
        "numDeletionVectorsRemoved": sum(1 for remove in removes if remove.deletionVector is not None),
        "numDeletionVectorsUpdated": sum(
            1 for remove in removes if remove.path in replaced and remove.deletionVector is not None
        ),
        "numAddedChangeFiles": 0,
    }


def _removal_of(partly: PartlyExpired, now_ms: int) -> Remove:
    return remove_of_row(partly.file, now_ms)
