"""Rewriting one bin: its live rows, in order, into one new file, or several where it is a file to be split.

Pure pyarrow, and the same function on every engine. Rows come from :class:`delta_log.data.data_file.DataFile`, which
applies deletion vectors and brings old files to the current schema; they leave in row groups of bounded size with
physical names and field ids, and their statistics are computed on the way. Nothing here touches the log.

A bin ends with a *manifest* that is created exactly once: whoever repeats a bin, a retried Spark task or a second
try of the run, finds it and takes its result. Rows are counted on both sides before that; where the task wants more,
the file is read back as any reader would read it, all columns of all rows are compared by checksum, and the bounds in its
footer, in its page index and in its statistics with the rows.

Others may write where the manifests lie. So a manifest carries a proof that this run wrote it
(:mod:`delta_maintenance.rewrite.manifest_file`), and a file without it is treated as if it were not there: nothing of it
is taken over, and where our own manifest belongs it makes room.

Until its manifest is sent, nobody knows of a new file, and whatever goes wrong removes it. From then on somebody may read
the manifest and commit the file, so it is removed only where it is certain that there is no such manifest and that none is
still to come (:func:`publish`). What a process leaves that dies, or that its store does not answer any more, is VACUUM's.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial

import pyarrow as pa

from delta_log.arrow.prefetch import map_ordered
from delta_log.arrow.row_hash import RowHash
from delta_log.data.data_file import DataFile
from delta_log.errors import AccessDenied, DeltaLogError, StorageError, SymbolicLinkRefused, TableError
from delta_log.storage.opening import is_on_disk
from delta_log.storage.storage import Storage
from delta_log.table_config.schema import StructType, arrow_schema, parse_schema, storable
from delta_maintenance.errors import ManifestReplaced, NewerManifest, RewriteMismatch
from delta_maintenance.rewrite.bounds_check import BoundsCheck
from delta_maintenance.rewrite.live_rows import LiveRows, OnProgress
from delta_maintenance.rewrite.manifest_file import MAX_BYTES, RunKey, sealed, unsealed
from delta_maintenance.rewrite.manifest_members import BIN_ID
from delta_maintenance.rewrite.output_files import Outputs, write_outputs
from delta_maintenance.rewrite.task import BinManifest, RewriteTask

MANIFEST_DIRECTORY = "_maintenance"
_SUFFIX = ".json"
#: So often a file at the place of our manifest is removed. Another try leaves one once, at most.
_ATTEMPTS = 10
#: Manifests may be large.
_READ_AT_ONCE = 8


def manifest_key(run_id: str, bin_id: str) -> str:
    """Where a bin's manifest is, relative to the table's root; hidden from readers and from VACUUM."""
    return f"{MANIFEST_DIRECTORY}/{run_id}/{bin_id}.json"


#: The rows of a new file, by its key.
CountRows = Callable[[Storage, str], int]


def rows_by_footer(storage: Storage, key: str) -> int:
    """
    :raises CorruptLog: it is no Parquet file, or there is none.
    """
    return DataFile(storage, key).num_rows


def read_manifest(
    storage: Storage,
    run_key: RunKey,
    run_id: str,
    bin_id: str,
    count_rows: CountRows = rows_by_footer,
) -> BinManifest | None:
    """The manifest of a bin that this run has finished, if its files are all there.

    :raises NewerManifest: a newer release has finished it.
    """
    try:
        content = _content(storage, manifest_key(run_id, bin_id))
    except FileNotFoundError:
        return None
    manifest = unsealed(content, run_key, run_id, bin_id)
    return manifest if manifest is not None and is_complete(manifest, storage, count_rows) else None


def rewrite_bin(
    task: RewriteTask, storage: Storage, run_key: RunKey, on_progress: OnProgress | None = None
) -> BinManifest:
    """Write a bin's live rows to new files and leave a manifest of them.

    :param on_progress: told the bytes of each source once it was read.
    :raises CorruptLog: a source is missing, broken, or not what its statistics say.
    :raises NewerManifest: a newer release has finished this bin.
    """
    started = time.monotonic()
    finished = read_manifest(storage, run_key, task.run_id, task.bin_id)
    if finished is not None and finished.differs_from(task) is None:
        return finished
    schema = parse_schema(task.schema_json, mapped=task.mapping_mode != "none")
    stored = storable(schema.without(task.partition_columns))
    live = LiveRows(task, storage, stored, on_progress)
    outputs = write_outputs(task, live, storage)
    keys = [output.key for output in outputs.files]
    with _removing(keys, storage):
        if outputs.rows != live.rows_in - live.rows_deleted:
            raise AssertionError(
                f"bin {task.bin_id}: {live.rows_in} rows read, {live.rows_deleted} of them deleted, but "
                f"{outputs.rows} written. This is a bug; nothing was committed."
            )
        if task.verify == "full":
            _compare(task, storage, live.columns, outputs)
    manifest = BinManifest(
        bin_id=task.bin_id,
        run_id=task.run_id,
        partition_values=task.partition_values,
        sources=task.sources,
        outputs=outputs.files,
        rows_in=live.rows_in,
        rows_deleted=live.rows_deleted,
        rows_out=outputs.rows,
        elapsed_ms=int((time.monotonic() - started) * 1000),
        source_rows=tuple(live.of_sources),
        rewrite_tag=task.rewrite_tag,
        num_outputs=task.num_outputs,
    )
    return publish(manifest, storage, run_key)


@contextmanager
def _removing(
    keys: Sequence[str],
    storage: Storage,
    where: type[BaseException] | tuple[type[BaseException], ...] = BaseException,
) -> Iterator[None]:
    """Files that no manifest promises go where the block fails."""
    try:
        yield
    except where:
        # What went wrong says more than that they cannot be removed, and VACUUM finds them.
        with suppress(DeltaLogError):
            storage.delete(keys)
        raise


def _compare(task: RewriteTask, storage: Storage, stored: StructType, written: Outputs) -> None:
    """Read the new files back.

    :raises RewriteMismatch: they hold other rows than those that were read.
    :raises BoundsMismatch: what they say of their rows is not so.
    """
    schema, found, checks = arrow_schema(stored, physical=True), RowHash(), []
    for output in written.files:
        data_file = DataFile(storage, output.key, task.mapping_mode)
        checks.append(BoundsCheck(task.bin_id, storage, output, stored))
        for rows in data_file.read(stored.fields, physical=True):
            batch = pa.record_batch(list(rows.arrays), schema=schema)
            found = found.plus(RowHash.of(batch))
            checks[-1].update(batch)
    if found != written.read:
        raise RewriteMismatch(task.bin_id, written.read.rows, found.rows)
    for check in checks:
        check.finish()


def publish(
    manifest: BinManifest, storage: Storage, run_key: RunKey, count_rows: CountRows = rows_by_footer
) -> BinManifest:
    """Leave the manifest of a finished bin; where another try was faster, its own.

    A request that failed may have taken effect, or may yet. What is found then decides:

    =====================  ==============================================================================
    our manifest           is the result
    another try's          is the result, and our files are removed: a late one of ours has no place left
    none, and none comes   our files are removed: the store refused, or it is a disk
    none yet, no answer    our files stay, since somebody may come upon the manifest and commit them
    =====================  ==============================================================================

    :raises StorageError: as far as is known there is no manifest.
    :raises NewerManifest: a newer release was faster.
    :raises ManifestReplaced: files of somebody else take its place, time and again.
    """
    keys = [output.key for output in manifest.outputs]
    with _removing(keys, storage, where=(NewerManifest, ManifestReplaced)):
        try:
            there = _put_manifest(manifest, storage, run_key, count_rows)
        except (StorageError, TableError) as error:
            there = _resolve_unknown_outcome(manifest, storage, run_key, count_rows, error)
    if there.outputs != manifest.outputs:
        # The bin is done, whether or not they can be removed.
        with suppress(StorageError):
            storage.delete(keys)
    return there


def _put_manifest(
    manifest: BinManifest, storage: Storage, run_key: RunKey, count_rows: CountRows
) -> BinManifest:
    """The manifest that is there now: this one, unless another try of the run has done the same."""
    key, content = manifest_key(manifest.run_id, manifest.bin_id), sealed(manifest, run_key)
    for _ in range(_ATTEMPTS):
        if storage.put_if_absent(key, content):
            return manifest
        there = read_manifest(storage, run_key, manifest.run_id, manifest.bin_id, count_rows)
        if there is not None and there.is_same_work(manifest):
            return there
        # It promises nothing: the files of another try are gone, it was written for sources that have changed since, or it is
        # not this run's. It is not overwritten, since that could still happen when yet another try has left one.
        storage.delete([key])
    raise ManifestReplaced(manifest.bin_id, key, _ATTEMPTS)


def _resolve_unknown_outcome(
    manifest: BinManifest,
    storage: Storage,
    run_key: RunKey,
    count_rows: CountRows,
    error: DeltaLogError,
) -> BinManifest:
    """The manifest that is there after a failure.

    :raises DeltaLogError: the failure; there is none.
    """
    is_over = is_on_disk(storage.uri) or isinstance(error, (AccessDenied, TableError))
    if not is_over:
        # The same bytes may be sent again: at most one copy of them takes effect.
        with suppress(StorageError):
            return _put_manifest(manifest, storage, run_key, count_rows)
    with suppress(StorageError):
        there = read_manifest(storage, run_key, manifest.run_id, manifest.bin_id, count_rows)
        if there is not None and there.is_same_work(manifest):
            return there
        if is_over:
            storage.delete([output.key for output in manifest.outputs])
    raise error


def manifests_of(storage: Storage, run_key: RunKey, run_id: str) -> tuple[list[BinManifest], int]:
    """Every manifest that a run has left, in the order of the bins' ids, whatever has become of its files; and how many
    other files lie among them.

    :raises NewerManifest: a newer release is at this run; what it has done and has yet to do is for it to say.
    """
    directory = f"{MANIFEST_DIRECTORY}/{run_id}"
    # A name with a dot in front is a manifest that is being written.
    names = [info.name for info in storage.list_from(directory) if not info.name.startswith(".")]
    bin_ids = [name.removesuffix(_SUFFIX) for name in names if name.endswith(_SUFFIX)]
    bin_ids = [bin_id for bin_id in bin_ids if BIN_ID.fullmatch(bin_id)]
    try:
        contents = _read(storage, [manifest_key(run_id, bin_id) for bin_id in bin_ids])
        found = [
            unsealed(content, run_key, run_id, bin_id)
            for bin_id, content in zip(bin_ids, contents, strict=True)
        ]
    except FileNotFoundError:
        # Another try of the run has just ended it; there is nothing left to take over.
        return [], 0
    ours = [manifest for manifest in found if manifest is not None]
    return ours, len(names) - len(ours)


def _read(storage: Storage, keys: Sequence[str]) -> Iterator[bytes]:
    """Yield the first bytes of each file, in order. A file that is longer than any manifest is not read to its end."""
    return map_ordered(partial(_content, storage), keys, min(storage.concurrency, _READ_AT_ONCE, len(keys)))


def _content(storage: Storage, key: str) -> bytes:
    """The start of a file; nothing where a link lies in its place, for no manifest is a link.

    :raises SymbolicLinkRefused: the directory is a link.
    """
    try:
        return storage.read(key, 0, MAX_BYTES + 1)
    except SymbolicLinkRefused as error:
        if error.link != key:
            raise
        return b""


def is_complete(manifest: BinManifest, storage: Storage, count_rows: CountRows = rows_by_footer) -> bool:
    """Are the files that a manifest promises all there, with as many rows as it says?"""
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
    """Remove manifests that have served; what is left of the directories goes with them where it is empty."""
    storage.delete([manifest_key(manifest.run_id, manifest.bin_id) for manifest in manifests])
    for run_id in {manifest.run_id for manifest in manifests}:
        storage.remove_dir(f"{MANIFEST_DIRECTORY}/{run_id}")
    storage.remove_dir(MANIFEST_DIRECTORY)
