"""Planning VACUUM: which files below a table's root are no longer needed, and why. Nothing is read or deleted here.

Protocol sections "Add File and Remove File" and "Deletion Vectors". Planning has two steps. If the listing has no times,
the caller looks them up in between:

1. :func:`unprotected` and :func:`suspects` select the files that are listed and not protected, an anti-join of columns.
2. :func:`plan_vacuum` selects those that are strictly older than the cutoff, and gives each a reason.

Refused are a table whose files seem to be elsewhere, and a candidate that may be a protected file under another address.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from delta_log.snapshot.snapshot import Snapshot
from delta_log.table_config.kept_versions import KEEP_VERSIONS, KeptVersions
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.listing.hidden_names import CHANGE_DATA, HiddenNames
from delta_maintenance.listing.key_columns import files_by_directory, is_within, key_bytes
from delta_maintenance.listing.listing import Listing
from delta_maintenance.listing.neighbours import in_words
from delta_maintenance.partitions.partition_scope import PartitionScope
from delta_maintenance.units import HOUR_MS
from delta_maintenance.vacuum.options import VacuumOptions
from delta_maintenance.vacuum.plan.cutoff import Retention
from delta_maintenance.vacuum.plan.plan import (
    CANDIDATE_SCHEMA,
    REASONS,
    VacuumPlan,
)
from delta_maintenance.vacuum.plan.protected_files import ProtectedFiles, keys_in_scope

_VECTOR_NAME = r"(^|/)deletion_vector_[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\.bin$"
_MANY_ROWS = 1 << 18
#: A writer may be about to write to an empty directory that was changed this recently.
_YOUNG_DIRECTORY_MS = HOUR_MS


@dataclass(frozen=True, slots=True, eq=False)
class VacuumBasis:
    """Everything that a plan rests on.

    :param settled_version: value of the member of this name in :class:`~delta_maintenance.vacuum.plan.plan.VacuumPlan`.
    :param earliest_commit_ms: the store's time of the oldest commit in the log; ``None`` if that is version 0.
    :param neighbours: the kind of each neighbour that is left alone, by directory.
    """

    snapshot: Snapshot = field(repr=False)
    listing: Listing
    protected: ProtectedFiles
    retention: Retention
    options: VacuumOptions
    now_ms: int
    settled_version: int | None = None
    earliest_commit_ms: int | None = None
    neighbours: Mapping[str, str] = field(default_factory=dict)
    scope: PartitionScope | None = None
    table_uri: str = ""


def unprotected(files: pa.Table, protected: ProtectedFiles) -> pa.Table:
    """Select the rows of a listing whose keys are not protected."""
    return filter_rows(files, protected.key_hashes.absent(files.column("key")))


def suspects(basis: VacuumBasis, found: pa.Table) -> pa.Table:
    """Select the files that are visible and in scope, whatever their age.

    :param found: the result of :func:`unprotected` for the whole listing.
    """
    snapshot = basis.snapshot
    if found.num_rows:
        # The listing followed an earlier version, and the rules for hidden names may have changed since.
        hidden = HiddenNames.of(snapshot)
        masks = [hidden.mask(chunk) for chunk in found.column("key").chunks]
        found = filter_rows(found, pc.invert(pa.chunked_array(masks, pa.bool_())))
    if basis.scope is not None and found.num_rows:
        known = keys_in_scope(snapshot, basis.scope.predicate, basis.table_uri)
        found = found.filter(basis.scope.mask(found.column("key"), known))
    return found


def filter_rows(files: pa.Table, mask: pa.Array | pa.ChunkedArray) -> pa.Table:
    """Filter rows without copying the batches that stay whole."""
    kept, start = [], 0
    for batch in files.to_batches():
        part = mask.slice(start, batch.num_rows)
        part = part if isinstance(part, pa.Array) else part.combine_chunks()
        start += batch.num_rows
        if part.true_count:
            kept.append(batch if part.true_count == len(part) else batch.filter(part))
    return pa.Table.from_batches(kept, files.schema)


def plan_vacuum(basis: VacuumBasis, found: pa.Table, *, is_unseen: bool = False) -> VacuumPlan:
    """Plan the deletion of suspects that are old enough.

    :param found: the result of :func:`suspects` with times and sizes, without files that are gone meanwhile.
    :param is_unseen: value of the member of this name in :class:`~delta_maintenance.vacuum.plan.plan.VacuumPlan`.
    :raises VacuumRefused: see the module.
    """
    cutoff = basis.retention.cutoff_ms
    # A file known from the log alone has no time. It was removed before the cutoff, so it was written before the cutoff.
    is_old = pc.fill_null(pc.less(found.column("modification_time_ms"), cutoff), True)
    old = filter_rows(found, is_old)
    young = found.column("key").filter(pc.invert(is_old))
    is_settled = not pc.any(pc.is_in(young, value_set=basis.protected.expired.column("key"))).as_py()
    # Each copy of what may be millions of rows is freed as soon as possible.
    del found, is_old
    _release_memory(old)
    candidates = _with_reasons(old, basis.protected.expired)
    del old
    _release_memory(candidates)
    candidates = candidates.take(pc.sort_indices(candidates, [("key", "ascending")])).combine_chunks()
    _release_memory(candidates)
    _refuse_doubtful(basis, candidates)
    snapshot = basis.snapshot
    kept = basis.options.kept_versions(snapshot.properties)
    settled = _not_kept(basis.settled_version, kept.oldest(snapshot.version)) if is_settled else None
    plan = VacuumPlan(
        read_version=snapshot.version,
        table_id=snapshot.metadata.id,
        mode=basis.options.mode,
        where=basis.options.where,
        retention=basis.retention,
        candidates=candidates,
        directories=_empty_directories(basis, candidates),
        num_directories=basis.listing.num_directories,
        num_files=basis.listing.num_files,
        num_protected=basis.protected.num_keys,
        settled_version=settled,
        warnings=_warnings(basis),
        digest=_digest(candidates),
        is_unseen=is_unseen,
        num_young=len(young),
        kept=kept,
        num_kept=len(basis.protected.kept),
    )
    _refuse_growth(plan, basis.options)
    return plan


def _not_kept(settled: int | None, oldest_kept: int) -> int | None:
    """Where the next lite vacuum starts: what was removed after the oldest version to keep may still be there."""
    return None if settled is None else min(settled, oldest_kept)


def _release_memory(files: pa.Table) -> None:
    """Return to the system what Arrow used for sorting and look-ups; otherwise the next step would need memory on top."""
    if files.num_rows > _MANY_ROWS:
        pa.default_memory_pool().release_unused()


def _with_reasons(files: pa.Table, expired: pa.Table) -> pa.Table:
    keys = files.column("key")
    rows = pc.index_in(keys, value_set=expired.column("key"))
    since = expired.column("time_ms").take(pa.chunked_array(rows.chunks, pa.int32()))
    # A time of 0 stands for a tombstone without a timestamp.
    since = pc.if_else(pc.greater(since, 0), since, pa.scalar(None, pa.int64()))
    is_vector = pc.match_substring_regex(keys, _VECTOR_NAME)
    is_change = pc.starts_with(keys, CHANGE_DATA)
    reason = pc.if_else(pc.is_valid(rows), pa.scalar(1, pa.int8()), pa.scalar(0, pa.int8()))
    reason = pc.if_else(is_vector, pa.scalar(2, pa.int8()), reason)
    reason = pc.if_else(is_change, pa.scalar(3, pa.int8()), reason)
    # The indices above are places in this list.
    names = pa.array(REASONS, pa.string())
    indices = pa.concat_arrays([pa.array([], pa.int8()), *reason.chunks])
    return pa.table(
        [
            keys,
            files.column("size"),
            files.column("modification_time_ms"),
            pa.chunked_array([pa.DictionaryArray.from_arrays(indices, names)]),
            since,
        ],
        schema=CANDIDATE_SCHEMA,
    )


def _refuse_doubtful(basis: VacuumBasis, candidates: pa.Table) -> None:
    """
    :raises VacuumRefused: a candidate may be a file that the log names by another address, or the root may belong to
        another table.
    """
    protected = basis.protected
    if not candidates.num_rows or not protected.external:
        return
    keys = candidates.column("key")
    named = {address.rstrip("/").rpartition("/")[2]: address for address in protected.external}
    names = pc.replace_substring_regex(keys, r"^.*/", "")
    same = keys.filter(pc.is_in(names, value_set=pa.array(list(named), pa.string())))
    if len(same):
        key = same[0].as_py()
        raise VacuumRefused(
            f"{key} would be deleted, and the log names a file of that name at an address that cannot be told apart with "
            f"certainty: {named[key.rpartition('/')[2]]}. Nothing was deleted. Open the table by the address that its "
            "log uses."
        )
    if not len(protected.live) and protected.num_external_live:
        raise VacuumRefused(
            f"All {protected.num_external_live} live files of this table lie outside of its root, and yet {len(keys)} "
            "files below the root would be deleted. Perhaps the table was copied or moved, and its log still names the "
            "old place. Nothing was deleted."
        )


def _refuse_growth(plan: VacuumPlan, options: VacuumOptions) -> None:
    """
    :raises VacuumRefused: the plan deletes more than the approved one.
    """
    approved = options.approved
    if approved is None:
        return
    files, size = plan.candidates.num_rows, plan.size_bytes
    if files > approved.num_files or size > approved.size_bytes:
        raise VacuumRefused(
            f"The plan has grown beyond what was approved: {files:,} files and {size:,} bytes instead of "
            f"{approved.num_files:,} files and {approved.size_bytes:,} bytes. Nothing was deleted. Plan and ask again."
        )


def _empty_directories(basis: VacuumBasis, candidates: pa.Table) -> tuple[str, ...]:
    """Find the directories that are empty once the candidates are gone, the deepest first."""
    listing = basis.listing
    if not listing.directories:
        return ()
    leaving = files_by_directory(candidates.column("key"))
    remaining = {
        directory for directory, files in listing.counts.items() if files > leaving.get(directory, 0)
    }
    kept = _with_ancestors(remaining | listing.untouched)
    emptied = _with_ancestors(leaving)
    rest_ms = basis.now_ms - min(_YOUNG_DIRECTORY_MS, basis.retention.retention_ms)
    young = {
        directory
        for directory, changed_ms in listing.directories.items()
        if directory not in kept and directory not in emptied and changed_ms >= rest_ms
    }
    kept |= _with_ancestors(young)
    if basis.neighbours:
        kept |= {name for name in listing.directories if is_within(name, basis.neighbours)}
    found = (directory for directory in listing.directories if directory not in kept)
    return tuple(sorted(found, key=lambda directory: (-directory.count("/"), directory)))


def _with_ancestors(directories: Iterable[str]) -> set[str]:
    """Add all directories that contain the given ones; the root is the empty text."""
    found: set[str] = set()
    for given in directories:
        directory = given
        while directory not in found:
            found.add(directory)
            directory = directory.rpartition("/")[0]
    return found


def _warnings(basis: VacuumBasis) -> tuple[str, ...]:
    retention, found = basis.retention, []
    if basis.neighbours:
        found.append(
            f"what lies in these directories belongs to others and stays: {in_words(basis.neighbours)}"
        )
    if retention.configured_ms is None:
        found.append(
            "delta.deletedFileRetentionDuration is not a duration, so what the table promises its readers is not known: only the "
            "retention of the request counts"
        )
    elif retention.log_retention_ms is not None and retention.log_retention_ms < retention.configured_ms:
        found.append(
            "delta.logRetentionDuration is shorter than delta.deletedFileRetentionDuration: files are kept for versions "
            "that the log can no longer reconstruct"
        )
    forgotten = basis.earliest_commit_ms is not None and basis.earliest_commit_ms > retention.cutoff_ms
    if retention.is_longer_than_configured and forgotten:
        found.append(
            "the log does not reach back as far as this retention, and checkpoints keep removals only for "
            "delta.deletedFileRetentionDuration: files removed in between are not protected"
        )
    asked = basis.options.asked_versions
    if not asked.named <= KeptVersions.of(basis.snapshot.properties).named:
        found.append(
            "the log of the versions that this run keeps stays only for delta.logRetentionDuration; name them in the table's property "
            f"{KEEP_VERSIONS} to keep it as well"
        )
    if retention.retention_ms == 0:
        found.append("without retention, files of queries and transactions in flight are deleted too")
    return tuple(found)


def _digest(candidates: pa.Table) -> str:
    digest = hashlib.sha256()
    chunks = candidates.column("key").chunks
    for chunk in chunks:
        lengths = pc.binary_length(chunk).to_numpy(zero_copy_only=False).astype(np.int32)
        digest.update(lengths.tobytes())
    for chunk in chunks:
        digest.update(key_bytes(chunk))
    return digest.hexdigest()[:32]
