"""Moving files from quarantine back to where they were. See :mod:`delta_maintenance.vacuum.quarantine` for the rules."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
import pyarrow.compute as pc
from msgspec import Struct, field

from delta_log.errors import InvalidRequest, StorageError
from delta_log.storage.storage import ODD_KEY, Storage
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.errors import QuarantineRefused
from delta_maintenance.job_context import JobContext
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.vacuum.options import RESTORE_QUARANTINE, RestoreOptions
from delta_maintenance.vacuum.quarantine.quarantine import Quarantine, copy_all, list_quarantines
from delta_maintenance.vacuum.quarantine.record import keys_in_file_list, vouched_names

_BATCH_FILES = 1_000
_COMPARED_BYTES = 8 << 20
#: Listed files that are looked up in a file list together. A lookup costs as much as the list is long.
_LOOKED_UP_FILES = 1 << 16
_EXAMPLES = 10


class Restoration(Struct):
    """What one restoration has done so far.

    :ivar names: quarantines that were gone through; ``refused``: other quarantines, and why they were refused.
    :ivar num_present: files that were in their place already, as an interrupted vacuum or restoration leaves them.
    :ivar conflicts: keys at which the table has another file; both files stay where they are.
    :ivar num_refused: files that the record names and that are never restored: hidden files, and files behind links.
    :ivar num_unnamed: files in quarantine that the record does not name; they stay.
    :ivar examples: keys of some refused and some unnamed files.
    """

    names: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    num_files: int = 0
    size_bytes: int = 0
    num_present: int = 0
    conflicts: list[str] = field(default_factory=list)
    num_refused: int = 0
    num_unnamed: int = 0
    examples: list[str] = field(default_factory=list)

    def add_examples(self, keys: Sequence[str]) -> None:
        self.examples += keys[: max(0, _EXAMPLES - len(self.examples))]


def restore(
    storage: Storage, hidden: HiddenNames, name: str | None, progress: ProgressReporter, *, dry_run: bool
) -> Restoration:
    """Move the files of one quarantine, or of all, back to where they were.

    :param hidden: the table's hidden names; files under such names are never restored.
    :param name: name of one quarantine; ``None``: all quarantines.
    :raises InvalidRequest: no quarantine has that name.
    :raises QuarantineRefused: the named quarantine cannot be trusted, or no quarantine that holds files can.
    :raises StorageError: a file could not be copied; running again continues.
    """
    chosen = _chosen(storage, name)
    vouched = _vouched_names(storage, chosen)
    restoration = Restoration()
    # The newest first: where two quarantines hold a key, the newer one took the last file of that name.
    for quarantine in reversed(chosen):
        progress.message(f"restoring the quarantine {quarantine.name}")
        try:
            keys = _trusted_keys(quarantine, is_vouched=quarantine.name in vouched)
        except QuarantineRefused as error:
            if name is not None:
                raise
            progress.message(str(error))
            restoration.refused[quarantine.name] = error.why
            continue
        restoration.names.append(quarantine.name)
        is_empty = _restore_one(quarantine, keys, hidden, restoration, dry_run=dry_run)
        if is_empty and not dry_run:
            quarantine.delete_record()
    if restoration.refused and not (restoration.num_files or restoration.num_present):
        raise QuarantineRefused(*next(iter(restoration.refused.items())))
    return restoration


def _chosen(storage: Storage, name: str | None) -> list[Quarantine]:
    known = list_quarantines(storage)
    chosen = [quarantine for quarantine in known if name in (None, quarantine.name)]
    if name is not None and not chosen:
        names = ", ".join(quarantine.name for quarantine in known) or "there are none"
        raise InvalidRequest(f"This table has no quarantine {name}. Its quarantines: {names}.")
    return chosen


def _vouched_names(storage: Storage, chosen: Sequence[Quarantine]) -> set[str]:
    with_manifest = [(one, one.manifest) for one in chosen if one.manifest is not None]
    if not with_manifest:
        return set()
    digests = {one.name: one.digest for one, _ in with_manifest}
    return vouched_names(storage, digests, min(manifest.version for _, manifest in with_manifest))


def _trusted_keys(quarantine: Quarantine, *, is_vouched: bool) -> pa.ChunkedArray:
    """Read the keys of the files that may be restored; empty if no file waits.

    :raises QuarantineRefused: files wait, and nothing shows that a vacuum put them there.
    """
    manifest, name = quarantine.manifest, quarantine.name
    if not quarantine.has_files():
        # A vacuum has just begun, or the end of a restoration or purge was interrupted.
        return pa.chunked_array([], pa.string())
    if manifest is None:
        raise QuarantineRefused(name, quarantine.broken)
    if manifest.files_digest is None:
        raise QuarantineRefused(
            name,
            "an earlier build made it, which left nothing in the log that its record could be compared with",
        )
    if not is_vouched:
        raise QuarantineRefused(
            name,
            "no VACUUM START or VACUUM END in the log has the digest of its manifest.json; that commit was cleaned from the "
            "log, or the manifest is not the vacuum's",
        )
    try:
        return keys_in_file_list(quarantine.storage, quarantine.file_list_key, manifest.files_digest)
    except FileNotFoundError:
        raise QuarantineRefused(name, "its files.jsonl is missing") from None
    except ValueError as error:
        raise QuarantineRefused(name, str(error)) from error


def _restore_one(
    quarantine: Quarantine,
    trusted: pa.ChunkedArray,
    hidden: HiddenNames,
    restoration: Restoration,
    *,
    dry_run: bool,
) -> bool:
    """Restore the files of one quarantine; returns whether nothing is left in it, so that its record can be deleted."""
    num_conflicts, is_whole = len(restoration.conflicts), True
    has_file_list = quarantine.storage.head(quarantine.file_list_key) is not None
    num_before = restoration.num_files + restoration.num_present
    for listed in _large_batches(quarantine.files()):
        allowed = _allowed_keys(quarantine, listed, trusted, hidden, restoration)
        is_whole = is_whole and len(allowed) == len(listed)
        for start in range(0, len(allowed), _BATCH_FILES):
            _restore_batch(quarantine, allowed[start : start + _BATCH_FILES], restoration, dry_run=dry_run)
    if not is_whole or len(restoration.conflicts) > num_conflicts:
        return False
    # A quarantine with a file list and no files belongs to a vacuum that is about to begin.
    return restoration.num_files + restoration.num_present > num_before or not has_file_list


def _large_batches(pages: Iterator[tuple[list[str], list[int | None]]]) -> Iterator[list[str]]:
    taken: list[str] = []
    for keys, _ in pages:
        taken += keys
        if len(taken) >= _LOOKED_UP_FILES:
            yield taken
            taken = []
    if taken:
        yield taken


def _allowed_keys(
    quarantine: Quarantine,
    listed: Sequence[str],
    trusted: pa.ChunkedArray,
    hidden: HiddenNames,
    restoration: Restoration,
) -> list[str]:
    """Select the files that the record names and that may be restored; counts the others."""
    mask = pc.is_in(pa.array(listed, pa.string()), value_set=trusted).to_pylist()
    unnamed = [key for key, is_named in zip(listed, mask, strict=True) if not is_named]
    named = [key for key, is_named in zip(listed, mask, strict=True) if is_named]
    allowed = _not_behind_links(quarantine, _data_keys(named, hidden))
    refused = sorted(set(named) - set(allowed))
    restoration.num_unnamed += len(unnamed)
    restoration.num_refused += len(refused)
    restoration.add_examples(unnamed)
    restoration.add_examples(refused)
    return allowed


def _data_keys(keys: Sequence[str], hidden: HiddenNames) -> list[str]:
    mask = hidden.mask(pa.array(keys, pa.string())).to_pylist()
    return [
        key for key, is_hidden in zip(keys, mask, strict=True) if not is_hidden and not ODD_KEY.search(key)
    ]


def _not_behind_links(quarantine: Quarantine, keys: list[str]) -> list[str]:
    """Select the keys to which no symbolic link leads, neither in quarantine nor in the table."""
    storage = quarantine.storage
    if not storage.has_directories:
        return keys
    here = storage.symbolic_links([quarantine.prefix + key for key in keys])
    links = zip(here, storage.symbolic_links(keys), strict=True)
    return [key for key, found in zip(keys, links, strict=True) if found == (None, None)]


def _restore_batch(
    quarantine: Quarantine, keys: list[str], restoration: Restoration, *, dry_run: bool
) -> None:
    storage = quarantine.storage
    moving, present = [], []
    waiting_sizes, _ = storage.sizes_and_times([quarantine.prefix + key for key in keys])
    for key, waiting, there in zip(keys, waiting_sizes, storage.sizes_and_times(keys)[0], strict=True):
        if waiting is None:
            continue
        # A key without a size can still be a symbolic link.
        if there is None and not (storage.has_directories and storage.head(key) is not None):
            moving.append(key)
            restoration.size_bytes += waiting
        elif there == waiting and _has_same_content(storage, key, quarantine.prefix + key, waiting):
            present.append(key)
        else:
            restoration.conflicts.append(key)
    restoration.num_files += len(moving)
    restoration.num_present += len(present)
    if not dry_run:
        _copy_back(quarantine, moving)
        storage.delete([quarantine.prefix + key for key in (*moving, *present)])


def _copy_back(quarantine: Quarantine, keys: Sequence[str]) -> None:
    """
    :raises StorageError: a copy is not whole.
    """
    storage = quarantine.storage
    copied = copy_all(storage, [(quarantine.prefix + key, key) for key in keys])
    there = [key for key, was_there in zip(keys, copied, strict=True) if was_there]
    copies = storage.head_many(there)
    sources = storage.head_many([quarantine.prefix + key for key in there])
    for key, copy, source in zip(there, copies, sources, strict=True):
        if copy is None or (source is not None and copy.size != source.size):
            raise StorageError(f"{key} is no whole copy of {quarantine.prefix}{key}. Run again.", key)


def _has_same_content(storage: Storage, key: str, other: str, size: int) -> bool:
    return all(
        storage.read(key, start, _COMPARED_BYTES) == storage.read(other, start, _COMPARED_BYTES)
        for start in range(0, size, _COMPARED_BYTES)
    )


_SHOWN_CONFLICTS = 10


def run(spec: JobSpec, context: JobContext) -> JobReport:
    """Restore one quarantine of a table, or all.

    :raises QuarantineRefused: the log vouches for none of the quarantines that hold files.
    :raises DeltaLogError: the store failed; running again continues.
    """
    table = context.table
    name = RestoreOptions.from_spec(RESTORE_QUARANTINE, spec.options).name
    snapshot = table.snapshot()
    if not spec.dry_run:
        table.storage.require_writable()
    restoration = restore(
        table.storage, HiddenNames.of(snapshot), name, context.progress, dry_run=spec.dry_run
    )
    return context.report(
        spec,
        _status(restoration, dry_run=spec.dry_run),
        snapshot.version,
        metrics={
            "numRestoredFiles": restoration.num_files,
            "sizeOfRestoredData": restoration.size_bytes,
            "numPresentFiles": restoration.num_present,
            "numConflictingFiles": len(restoration.conflicts),
            "numRefusedFiles": restoration.num_refused,
            "numUnnamedFiles": restoration.num_unnamed,
            "numRefusedQuarantines": len(restoration.refused),
        },
        plan={
            "quarantines": restoration.names,
            "conflicts": restoration.conflicts[:_SHOWN_CONFLICTS],
            "leftFiles": restoration.examples,
            "refusedQuarantines": dict(list(restoration.refused.items())[:_SHOWN_CONFLICTS]),
        },
    )


def _status(restoration: Restoration, *, dry_run: bool) -> str:
    if dry_run:
        return "planned"
    return "restored" if restoration.num_files or restoration.num_present else "nothing_to_do"
