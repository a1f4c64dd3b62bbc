"""Rewrites one bin: its live rows, in order, into one new file, or several where a large file is split or a layout is wanted.

The module uses pyarrow only and is the same function on every engine. :class:`delta_log.data.data_file.DataFile` reads the rows,
applies deletion vectors and converts old files to the current schema. The writer writes row groups of bounded size with physical
names and field ids, and computes statistics in the same pass. Nothing here touches the log.

A bin ends with a *manifest*, which is created exactly once. A repetition of the bin (a retried Spark task, a second try of the
run) finds it and takes its result. Before that, the rows read and written are counted. With ``verify="full"`` the new file is
read back as any reader would read it: all columns of all rows are compared by checksum, and the bounds in its footer, its page
index and its statistics are compared with the rows.

Others may write where the manifests lie. So a manifest carries a proof that this run wrote it
(:mod:`delta_maintenance.rewrite.manifest.manifest_file`). A file without the proof counts as absent: nothing of it is taken over, and it
is deleted where our own manifest belongs.

Before its manifest is sent, no other process knows of a new file, and any failure removes it. After that, another try may read
the manifest and commit the file. So the file is removed only if there is certainly no such manifest and none can still appear
(:func:`publish`). VACUUM removes what a process leaves that dies or loses its store.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from functools import partial

import pyarrow as pa
from msgspec.structs import replace

from delta_log.arrow.prefetch import map_ordered
from delta_log.arrow.row_hash import RowHash
from delta_log.data.data_file import DataFile
from delta_log.errors import AccessDenied, DeltaLogError, StorageError, SymbolicLinkRefused, TableError
from delta_log.storage.opening import is_on_disk
from delta_log.storage.storage import Storage
from delta_maintenance.errors import ManifestReplaced, NewerManifest, RewriteMismatch
from delta_maintenance.rewrite.bin_context import BinContext
from delta_maintenance.rewrite.limits import MANIFESTS_AT_ONCE
from delta_maintenance.rewrite.manifest.manifest_file import BIN_ID, MAX_BYTES, RunKey, sealed, unsealed
from delta_maintenance.rewrite.output_files import Outputs, write_outputs
from delta_maintenance.rewrite.part_feed import OnProgress
from delta_maintenance.rewrite.read.segment_pool import SegmentPool
from delta_maintenance.rewrite.task import MANIFEST_DIRECTORY, ROW_MAP_SUFFIX, BinManifest, RewriteTask
from delta_maintenance.rewrite.verify.bounds_check import BoundsCheck

_SUFFIX = ".json"
#: How often a foreign file at the place of our manifest is removed. Another try leaves a file there once, at most.
_ATTEMPTS = 10


def manifest_key(run_id: str, bin_id: str) -> str:
    """Return the key of a bin's manifest, relative to the table's root. It is hidden from readers and from VACUUM."""
    return f"{MANIFEST_DIRECTORY}/{run_id}/{bin_id}.json"


#: Counts the rows of a new file, given its key.
CountRows = Callable[[Storage, str], int]


def rows_by_footer(storage: Storage, key: str) -> int:
    """Count the rows of a file by its footer.

    :raises CorruptLog: the file is missing or is not Parquet.
    """
    return DataFile(storage, key).num_rows


def read_manifest(
    storage: Storage,
    run_key: RunKey,
    run_id: str,
    bin_id: str,
    count_rows: CountRows = rows_by_footer,
) -> BinManifest | None:
    """Read the manifest of a bin that this run has finished; ``None`` if there is none, or one of its files is missing.

    :raises NewerManifest: a newer release has finished the bin.
    """
    try:
        content = _content(storage, manifest_key(run_id, bin_id))
    except FileNotFoundError:
        return None
    manifest = unsealed(content, run_key, run_id, bin_id)
    return manifest if manifest is not None and is_complete(manifest, storage, count_rows) else None


def rewrite_bin(
    task: RewriteTask,
    storage: Storage,
    run_key: RunKey,
    on_progress: OnProgress | None = None,
    pool: SegmentPool | None = None,
    *,
    is_new: bool = False,
) -> BinManifest:
    """Write a bin's live rows to new files and leave a manifest of them.

    :param on_progress: function that is called with the bytes of each source after its rows were written.
    :param pool: pool that encodes the segments of the bin; by default, a thread of its own does.
    :param is_new: the bin had no manifest a while ago, so it is not looked for now. Another try's manifest still counts in the end.
    :raises CorruptLog: a source is missing, broken, or not what its statistics say.
    :raises NewerManifest: a newer release has finished this bin.
    """
    started = time.monotonic()
    finished = None if is_new else read_manifest(storage, run_key, task.run_id, task.bin_id)
    if finished is not None and finished.differs_from(task) is None:
        return finished
    context = BinContext.of(task, storage)
    sources = context.sources()
    with nullcontext(pool) if pool is not None else SegmentPool() as encoding:
        outputs = write_outputs(context, sources, encoding, on_progress)
    manifest = BinManifest(
        bin_id=task.bin_id,
        run_id=task.run_id,
        partition_values=task.partition_values,
        sources=task.sources,
        outputs=outputs.files,
        rows_in=sources.rows_in,
        rows_deleted=sources.rows_deleted,
        rows_out=outputs.rows,
        elapsed_ms=0,
        source_rows=tuple(sources.source_rows) if task.layout is None else (),
        rewrite_tag=task.rewrite_tag,
        num_outputs=task.num_outputs,
        bytes_copied=outputs.bytes_copied,
        clustering_provider=task.clustering_provider,
        row_map=outputs.row_map,
        verify=task.verify,
        rewrite=task.rewrite,
    )
    with _removing(manifest.keys_written, storage):
        if outputs.rows != sources.rows_in - sources.rows_deleted:
            raise AssertionError(
                f"bin {task.bin_id}: {sources.rows_in} rows read, {sources.rows_deleted} of them deleted, but "
                f"{outputs.rows} written. This is a bug; nothing was committed."
            )
        if context.is_verified:
            compare_with_rows(context, outputs)
    elapsed_ms = int((time.monotonic() - started) * 1000)
    return publish(replace(manifest, elapsed_ms=elapsed_ms), storage, run_key)


@contextmanager
def _removing(
    keys: Sequence[str],
    storage: Storage,
    where: type[BaseException] | tuple[type[BaseException], ...] = BaseException,
) -> Iterator[None]:
    """Remove files if the block fails, since no manifest names them."""
    try:
        yield
    except where:
        # The error of the block tells more than a failure to remove them, and VACUUM finds them.
        with suppress(DeltaLogError):
            storage.delete(keys)
        raise


def compare_with_rows(context: BinContext, written: Outputs) -> None:
    """Read new files back, and compare them with the rows that went in.

    :raises RewriteMismatch: they hold other rows than those that were read.
    :raises BoundsMismatch: a bound or a count in them is wrong.
    """
    task, storage, stored = context.task, context.storage, context.live.columns
    found, checks = RowHash(), []
    for output in written.files:
        data_file = DataFile(storage, output.key, task.mapping_mode)
        checks.append(BoundsCheck(task.bin_id, storage, output, stored))
        for rows in data_file.read(stored.fields, physical=True):
            batch = pa.record_batch(list(rows.arrays), schema=context.live.schema)
            found = found.plus(RowHash.of(batch))
            checks[-1].update(batch)
    if found != written.read:
        raise RewriteMismatch(task.bin_id, written.read.rows, found.rows)
    for check in checks:
        check.finish()


def publish(
    manifest: BinManifest, storage: Storage, run_key: RunKey, count_rows: CountRows = rows_by_footer
) -> BinManifest:
    """Leave the manifest of a finished bin, and return the one that counts: this one, or the manifest of a faster try.

    A failed request may have taken effect, or may still do so. The state of the store then decides:

    =====================  ==============================================================================
    our manifest           is the result
    another try's          is the result, and our files are removed: a late one of ours has no place left
    none, and none comes   our files are removed: the store refused, or it is a disk
    none yet, no answer    our files stay, since another try may find the manifest later and commit them
    =====================  ==============================================================================

    :raises StorageError: no manifest was found.
    :raises NewerManifest: a newer release was faster.
    :raises ManifestReplaced: foreign files keep taking the manifest's place.
    """
    keys = manifest.keys_written
    with _removing(keys, storage, where=(NewerManifest, ManifestReplaced)):
        try:
            there = _put_manifest(manifest, storage, run_key, count_rows)
        except (StorageError, TableError) as error:
            there = _resolve_unknown_outcome(manifest, storage, run_key, count_rows, error)
    if there.outputs != manifest.outputs:
        # The bin is done even if they cannot be removed.
        with suppress(StorageError):
            storage.delete(keys)
    return there


def _put_manifest(
    manifest: BinManifest, storage: Storage, run_key: RunKey, count_rows: CountRows
) -> BinManifest:
    """Write the manifest unless another try of the run has written one. Return the manifest that is there."""
    key, content = manifest_key(manifest.run_id, manifest.bin_id), sealed(manifest, run_key)
    for _ in range(_ATTEMPTS):
        if storage.put_if_absent(key, content):
            return manifest
        there = read_manifest(storage, run_key, manifest.run_id, manifest.bin_id, count_rows)
        if there is not None and there.is_same_work(manifest):
            return there
        # This manifest is worthless: its files are gone, its sources have changed since, or it is foreign. It is deleted and
        # not overwritten: a late overwrite could destroy the manifest of yet another try.
        storage.delete([key])
    raise ManifestReplaced(manifest.bin_id, key, _ATTEMPTS)


def _resolve_unknown_outcome(
    manifest: BinManifest,
    storage: Storage,
    run_key: RunKey,
    count_rows: CountRows,
    error: DeltaLogError,
) -> BinManifest:
    """Find the manifest that is there after a failed write.

    :raises DeltaLogError: there is none; this is the original failure.
    """
    is_over = is_on_disk(storage.uri) or isinstance(error, (AccessDenied, TableError))
    if not is_over:
        # Sending the same bytes again is safe: at most one copy takes effect.
        with suppress(StorageError):
            return _put_manifest(manifest, storage, run_key, count_rows)
    with suppress(StorageError):
        there = read_manifest(storage, run_key, manifest.run_id, manifest.bin_id, count_rows)
        if there is not None and there.is_same_work(manifest):
            return there
        if is_over:
            storage.delete(manifest.keys_written)
    raise error


def manifests_of(storage: Storage, run_key: RunKey, run_id: str) -> tuple[list[BinManifest], int]:
    """Read every manifest that a run has left, in the order of the bins' ids. The files that they name may be gone.

    :returns: the manifests, and the number of other files among them.
    :raises NewerManifest: a newer release works on this run, and only that release can judge what is done.
    """
    directory = f"{MANIFEST_DIRECTORY}/{run_id}"
    # A name that begins with a dot is a manifest that is being written.
    names = [
        info.name
        for info in storage.list_from(directory)
        if not info.name.startswith(".") and not info.name.endswith(ROW_MAP_SUFFIX)
    ]
    bin_ids = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
    bin_ids = [bin_id for bin_id in bin_ids if BIN_ID.fullmatch(bin_id)]
    try:
        contents = _read(storage, [manifest_key(run_id, bin_id) for bin_id in bin_ids])
        found = [
            unsealed(content, run_key, run_id, bin_id)
            for bin_id, content in zip(bin_ids, contents, strict=True)
        ]
    except FileNotFoundError:
        # Another try has just ended the run, so nothing is left to take over.
        return [], 0
    ours = [manifest for manifest in found if manifest is not None]
    return ours, len(names) - len(ours)


def _read(storage: Storage, keys: Sequence[str]) -> Iterator[bytes]:
    """Yield the first bytes of each file, in order. A file that is longer than any manifest is not read to its end."""
    return map_ordered(
        partial(_content, storage), keys, min(storage.concurrency, MANIFESTS_AT_ONCE, len(keys))
    )


def _content(storage: Storage, key: str) -> bytes:
    """Read the first bytes of a file; none if it is a link, since no manifest is a link.

    :raises SymbolicLinkRefused: the directory is a link.
    """
    try:
        return storage.read(key, 0, MAX_BYTES + 1)
    except SymbolicLinkRefused as error:
        if error.link != key:
            raise
        return b""


def is_complete(manifest: BinManifest, storage: Storage, count_rows: CountRows = rows_by_footer) -> bool:
    """Tell whether all files that a manifest names exist, with as many rows as it says."""
    infos = storage.head_many([output.key for output in manifest.outputs])
    if not all(
        info is not None and info.size == output.size_bytes
        for info, output in zip(infos, manifest.outputs, strict=True)
    ):
        return False
    try:
        return all(count_rows(storage, output.key) == output.num_records for output in manifest.outputs)
    except TableError:
        return False


def forget(manifests: list[BinManifest], storage: Storage) -> None:
    """Remove manifests that are no longer needed, their row maps, and their directories where these become empty."""
    storage.delete([manifest_key(manifest.run_id, manifest.bin_id) for manifest in manifests])
    storage.delete([manifest.row_map_key for manifest in manifests if manifest.row_map_key is not None])
    for run_id in {manifest.run_id for manifest in manifests}:
        storage.remove_dir(f"{MANIFEST_DIRECTORY}/{run_id}")
    storage.remove_dir(MANIFEST_DIRECTORY)
