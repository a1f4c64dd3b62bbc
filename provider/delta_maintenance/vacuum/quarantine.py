"""Files that a VACUUM takes out of the table but not out of the store yet: where they wait, who deletes them, and the way back.

``_delta_quarantine/<name>/`` holds what one vacuum took: its ``manifest.json``, ``files.jsonl`` with the reason for each
file, and below ``files/`` the files under their own keys. The name is hidden, so that no engine's vacuum looks there.

No order of failures loses a file:

1. the manifest is there before the first file, and goes after the last;
2. a file is copied (on a disk: gets a second name), the copy is looked at, and only then the first one is deleted;
3. the way back is the same. What was interrupted is there twice, and its repetition ends it.

What lies there is not trusted (:mod:`delta_maintenance.vacuum.quarantine_record`). A file comes back only where the
record names it, and the log vouches for the record. Hidden keys, such as those of the log, never come back, nor does
anything that a symbolic link leads to or from. Everything else below ``files/`` is left alone and counted.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.errors import InvalidRequest, StorageError, SymbolicLinkRefused
from delta_log.log.file_names import LOG_DIRECTORY
from delta_log.runtime import Runtime
from delta_log.storage.storage import ODD_KEY, KeySpan, Storage
from delta_log.storage.store_clock import require_store_clock
from delta_maintenance.errors import QuarantineRefused
from delta_maintenance.listing.hidden_names import HiddenNames
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.units import HOUR_MS
from delta_maintenance.vacuum.plan.plan import VacuumPlan
from delta_maintenance.vacuum.quarantine_record import (
    DIGEST_PARAMETER,
    NAME_PARAMETER,
    QuarantineManifest,
    read_manifest,
    recorded_keys,
    vouched_for,
    write_manifest,
    write_record,
)

QUARANTINE_DIRECTORY = "_delta_quarantine"
_BATCH_FILES = 1_000
_COMPARED_BYTES = 8 << 20
#: So many listed files are looked up in a record at once, which costs as much as the record is large.
_LOOKED_UP_FILES = 1 << 16
_EXAMPLES = 10


@dataclass(frozen=True, slots=True)
class Quarantine:
    """What one vacuum took.

    :param since_ms: when, by its own clock or the store's, whichever is later. ``None``: there is no manifest, so nothing
        tells.
    :param manifest: what it says of itself. ``None``: that cannot be read, and ``broken`` says why.
    :param digest: of the manifest.
    """

    storage: Storage
    name: str
    since_ms: int | None
    manifest: QuarantineManifest | None = None
    digest: str = ""
    broken: str = ""

    @property
    def manifest_key(self) -> str:
        return f"{QUARANTINE_DIRECTORY}/{self.name}/manifest.json"

    @property
    def lines_key(self) -> str:
        return f"{QUARANTINE_DIRECTORY}/{self.name}/files.jsonl"

    @property
    def prefix(self) -> str:
        """Of files; the key that each had comes after it."""
        return f"{QUARANTINE_DIRECTORY}/{self.name}/files/"

    @classmethod
    def begin(cls, storage: Storage, plan: VacuumPlan, runtime: Runtime) -> Quarantine:
        """Write down what is about to be taken."""
        now_ms = runtime.now_ms()
        day = datetime.fromtimestamp(now_ms / 1000, timezone.utc)
        quarantine = cls(storage, f"{day:%Y%m%dT%H%M%SZ}-{runtime.new_id()}", now_ms)
        manifest = {
            "name": quarantine.name,
            "filesDigest": write_record(storage, plan, quarantine.lines_key),
            "tableId": plan.table_id,
            "version": plan.read_version,
            "quarantinedMs": now_ms,
            "cutoffMs": plan.retention.cutoff_ms,
            "numFiles": plan.candidates.num_rows,
            "numBytes": plan.size_bytes,
            "digest": plan.digest,
        }
        digest = write_manifest(storage, quarantine.manifest_key, manifest)
        return replace(quarantine, digest=digest)

    @property
    def parameters(self) -> dict[str, str]:
        """What the vacuum's commits say of it."""
        return {NAME_PARAMETER: self.name, DIGEST_PARAMETER: self.digest}

    def keep(self, batch: pa.Table) -> None:
        """Before some files are deleted: a copy of each that is there.

        :param batch: of :data:`~delta_maintenance.vacuum.plan.plan.CANDIDATE_SCHEMA`.
        :raises StorageError: one could not be copied.
        """
        keys, sizes = batch.column("key").to_pylist(), batch.column("size").to_pylist()
        copied = _side_by_side(self.storage, lambda key: self.storage.copy(key, self.prefix + key), keys)
        if self.storage.has_directories:  # where a copy is the same file
            return
        there = [(key, size) for key, size, was_there in zip(keys, sizes, copied, strict=True) if was_there]
        copies = self.storage.head_many([self.prefix + key for key, _ in there])
        for (key, size), copy in zip(there, copies, strict=True):
            if copy is None or size not in (None, copy.size):
                raise StorageError(f"{self.prefix}{key} is no whole copy of {key}.", self.prefix + key)

    def files(self) -> Iterator[tuple[list[str], list[int | None]]]:
        """The keys that its files had, and their sizes, some at a time."""
        for page in self.storage.list_part(KeySpan(self.prefix, deep=True), lambda directories: directories):
            names = page.names()
            for start in range(0, len(names), _BATCH_FILES):
                part = names[start : start + _BATCH_FILES]
                if page.sizes is None:
                    sizes = self.storage.sizes_and_times(part)[0]
                else:
                    sizes = list(page.sizes[start : start + _BATCH_FILES])
                yield [name[len(self.prefix) :] for name in part], sizes

    def forget(self) -> None:
        """Once no file is left: the manifest, and empty directories."""
        self.storage.delete([self.lines_key])
        self.storage.delete([self.manifest_key])
        if not self.storage.has_directories:
            return
        top = f"{QUARANTINE_DIRECTORY}/{self.name}"
        directories = [top]
        for page in self.storage.list_part(KeySpan(f"{top}/", deep=True), lambda below: below):
            directories += page.directories
        for directory in sorted(set(directories), key=lambda name: (-name.count("/"), name)):
            self.storage.remove_dir(directory)
        self.storage.remove_dir(QUARANTINE_DIRECTORY)


def quarantines(storage: Storage) -> list[Quarantine]:
    """The oldest first. A directory in which no file waits and which has no manifest is none of ours."""
    names: list[str] = []

    def told(directories: Sequence[str]) -> tuple[()]:
        found = (directory.rpartition("/")[2] for directory in directories)
        names.extend(name for name in found if not ODD_KEY.search(name))
        return ()

    for _ in storage.list_part(KeySpan(f"{QUARANTINE_DIRECTORY}/"), told):
        pass
    found = []
    for name in names:
        quarantine = _opened(Quarantine(storage, name, None))
        if quarantine.since_ms is not None or _has_files(quarantine):
            found.append(quarantine)
    return sorted(found, key=lambda quarantine: (quarantine.since_ms or 0, quarantine.name))


def _opened(quarantine: Quarantine) -> Quarantine:
    key = quarantine.manifest_key
    ways = [key, quarantine.lines_key, quarantine.prefix.rstrip("/")]
    link = next((link for link in quarantine.storage.symbolic_links(ways) if link is not None), None)
    if link is not None:
        return replace(quarantine, broken=f"{link} is a symbolic link")
    info = quarantine.storage.head(key)
    if info is None:
        return replace(quarantine, broken="it has no manifest.json")
    written_ms = info.modification_time_ms
    try:
        manifest, digest = read_manifest(quarantine.storage, key)
    except FileNotFoundError:  # gone just now
        return replace(quarantine, broken="it has no manifest.json")
    except ValueError as error:
        return replace(quarantine, since_ms=written_ms, broken=f"its manifest.json cannot be read ({error})")
    since_ms = max(manifest.quarantined_ms, written_ms)
    return replace(quarantine, since_ms=since_ms, manifest=manifest, digest=digest)


def _has_files(quarantine: Quarantine) -> bool:
    """Whether files wait; what lies behind a link is not looked at."""
    try:
        return any(keys for keys, _ in quarantine.files())
    except SymbolicLinkRefused:
        return True


@dataclass(frozen=True, slots=True)
class Purge:
    """
    :param num_needed: files that the table needs again; they stay where they are, to be restored.
    :param broken: quarantines whose manifest cannot be read, and why, by name. They are deleted by the store's time of the
        manifest alone; where there is none, they stay.
    """

    num_files: int = 0
    size_bytes: int = 0
    num_needed: int = 0
    broken: Mapping[str, str] = field(default_factory=dict)

    def facts(self) -> dict[str, Any]:
        """For the report; some of the broken ones, where there are many."""
        return {"brokenQuarantines": dict(list(self.broken.items())[:_EXAMPLES])} if self.broken else {}


def purge(
    storage: Storage,
    hours: float,
    now_ms: int,
    protected: pa.ChunkedArray,
    progress: ProgressReporter,
    *,
    dry_run: bool,
) -> Purge:
    """Delete what has been in quarantine for so long.

    :param protected: live files of the latest version, which somebody brought back from the log's past.
    :raises ClockAhead: by the store's clock they may be younger; nothing was deleted.
    """
    there = quarantines(storage)
    due = [one for one in there if one.since_ms is not None and one.since_ms <= now_ms - hours * HOUR_MS]
    broken = {one.name: one.broken for one in there if one.broken}
    for name, why in broken.items():
        progress.message(f"the quarantine {name} is broken: {why}")
    if due and not dry_run:
        require_store_clock(storage, now_ms, LOG_DIRECTORY)
    files = size_bytes = num_needed = 0
    for quarantine in due:
        progress.message(
            f"deleting the quarantine {quarantine.name}" if not dry_run else "looking at quarantines"
        )
        needed_here = num_odd = 0
        for found, found_sizes in quarantine.files():
            # On an object store such a key may be there, put by hand; no store deletes it through us.
            plain = [pair for pair in zip(found, found_sizes, strict=True) if not ODD_KEY.search(pair[0])]
            num_odd += len(found) - len(plain)
            keys, sizes = [key for key, _ in plain], [size for _, size in plain]
            needed = pc.is_in(pa.array(keys, pa.string()), value_set=protected).to_pylist()
            going = [key for key, stays in zip(keys, needed, strict=True) if not stays]
            needed_here += sum(needed)
            files += len(going)
            size_bytes += sum(size or 0 for size, stays in zip(sizes, needed, strict=True) if not stays)
            if not dry_run:
                storage.delete([quarantine.prefix + key for key in going])
        num_needed += needed_here
        if num_odd:
            broken[quarantine.name] = f"{num_odd:,} keys in it are not normalised; delete them by hand"
        elif not dry_run and not needed_here:
            quarantine.forget()
    return Purge(files, size_bytes, num_needed, broken)


@dataclass(slots=True)
class Restoration:
    """
    :ivar names: of the quarantines that were gone through; ``refused``: of others, and why.
    :ivar num_present: files that are in their place already, as an interrupted vacuum or restoration leaves them.
    :ivar conflicts: keys at which there is another file; both stay where they are.
    :ivar num_refused: files that the record names and that are never brought back: hidden ones, and those behind links.
    :ivar num_unnamed: files in quarantine that the record does not name; they stay. ``examples`` has some of both.
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

    def leave(self, keys: Sequence[str]) -> int:
        self.examples += keys[: max(0, _EXAMPLES - len(self.examples))]
        return len(keys)


def restore(
    storage: Storage, hidden: HiddenNames, name: str | None, progress: ProgressReporter, *, dry_run: bool
) -> Restoration:
    """Bring files back to where they were.

    :param hidden: of the table; such keys never come back.
    :param name: of one quarantine; ``None``: of all.
    :raises InvalidRequest: there is none of that name.
    :raises QuarantineRefused: that one cannot be trusted; or none of those that hold files.
    :raises StorageError: a file could not be copied; repeating goes on.
    """
    there = quarantines(storage)
    chosen = [quarantine for quarantine in there if name in (None, quarantine.name)]
    if name is not None and not chosen:
        known = ", ".join(quarantine.name for quarantine in there) or "there are none"
        raise InvalidRequest(f"This table has no quarantine {name}. Its quarantines: {known}.")
    course = Restoration()
    vouched = _vouched(storage, chosen)
    # What was taken last was there last.
    for quarantine in reversed(chosen):
        progress.message(f"restoring the quarantine {quarantine.name}")
        try:
            keys = _trusted_keys(quarantine, is_vouched=quarantine.name in vouched)
        except QuarantineRefused as error:
            if name is not None:
                raise
            progress.message(str(error))
            course.refused[quarantine.name] = error.why
            continue
        course.names.append(quarantine.name)
        if _restored(quarantine, keys, hidden, course, dry_run=dry_run) and not dry_run:
            quarantine.forget()
    if course.refused and not (course.num_files or course.num_present):
        raise QuarantineRefused(*next(iter(course.refused.items())))
    return course


def _vouched(storage: Storage, chosen: Sequence[Quarantine]) -> set[str]:
    known = [(one, one.manifest) for one in chosen if one.manifest is not None]
    if not known:
        return set()
    wanted = {one.name: one.digest for one, _ in known}
    return vouched_for(storage, wanted, min(manifest.version for _, manifest in known))


def _trusted_keys(quarantine: Quarantine, *, is_vouched: bool) -> pa.ChunkedArray:
    """The keys of the files that may come back; none where no file waits.

    :raises QuarantineRefused: files wait, and nothing shows that a vacuum put them there.
    """
    nothing = pa.chunked_array([], pa.string())
    manifest, name = quarantine.manifest, quarantine.name
    if not _has_files(quarantine):
        # A vacuum that has just begun, or an end that was interrupted.
        return nothing
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
        return recorded_keys(quarantine.storage, quarantine.lines_key, manifest.files_digest)
    except FileNotFoundError:
        raise QuarantineRefused(name, "its files.jsonl is missing") from None
    except ValueError as error:
        raise QuarantineRefused(name, str(error)) from error


def _restored(
    quarantine: Quarantine,
    trusted: pa.ChunkedArray,
    hidden: HiddenNames,
    course: Restoration,
    *,
    dry_run: bool,
) -> bool:
    """Whether nothing of it is left, so that it can be forgotten."""
    storage, conflicts, is_whole = quarantine.storage, len(course.conflicts), True
    has_lines = storage.head(quarantine.lines_key) is not None
    brought = course.num_files + course.num_present
    for listed in _together(quarantine.files()):
        is_named = pc.is_in(pa.array(listed, pa.string()), value_set=trusted).to_pylist()
        unnamed = [key for key, named in zip(listed, is_named, strict=True) if not named]
        named = [key for key, named in zip(listed, is_named, strict=True) if named]
        allowed = _allowed(storage, quarantine, named, hidden)
        course.num_unnamed += course.leave(unnamed)
        course.num_refused += course.leave(sorted(set(named) - set(allowed)))
        is_whole = is_whole and len(allowed) == len(listed)
        for start in range(0, len(allowed), _BATCH_FILES):
            _restore_batch(quarantine, allowed[start : start + _BATCH_FILES], course, dry_run=dry_run)
    if not is_whole or len(course.conflicts) > conflicts:
        return False
    # One without files and with a record is that of a vacuum which is about to begin.
    return course.num_files + course.num_present > brought or not has_lines


def _together(pages: Iterator[tuple[list[str], list[int | None]]]) -> Iterator[list[str]]:
    taken: list[str] = []
    for keys, _ in pages:
        taken += keys
        if len(taken) >= _LOOKED_UP_FILES:
            yield taken
            taken = []
    if taken:
        yield taken


def _allowed(storage: Storage, quarantine: Quarantine, keys: Sequence[str], hidden: HiddenNames) -> list[str]:
    """Those that are keys of data, and to which no link leads, here or there."""
    mask = hidden.mask(pa.array(keys, pa.string())).to_pylist()
    plain = [
        key for key, is_hidden in zip(keys, mask, strict=True) if not is_hidden and not ODD_KEY.search(key)
    ]
    if not storage.has_directories:
        return plain
    held = [quarantine.prefix + key for key in plain]
    links = zip(storage.symbolic_links(held), storage.symbolic_links(plain), strict=True)
    return [key for key, (here, there) in zip(plain, links, strict=True) if here is None and there is None]


def _restore_batch(quarantine: Quarantine, keys: list[str], course: Restoration, *, dry_run: bool) -> None:
    storage = quarantine.storage
    moving, done = [], []
    ours_of, _ = storage.sizes_and_times([quarantine.prefix + key for key in keys])
    for key, ours, theirs in zip(keys, ours_of, storage.sizes_and_times(keys)[0], strict=True):
        if ours is None:
            continue
        # What has no size may be a link.
        if theirs is None and not (storage.has_directories and storage.head(key) is not None):
            moving.append(key)
            course.size_bytes += ours
        elif theirs == ours and _same_content(storage, key, quarantine.prefix + key, ours):
            done.append(key)
        else:
            course.conflicts.append(key)
    course.num_files += len(moving)
    course.num_present += len(done)
    if not dry_run:
        _bring_back(storage, quarantine, moving)
        storage.delete([quarantine.prefix + key for key in (*moving, *done)])


def _bring_back(storage: Storage, quarantine: Quarantine, keys: Sequence[str]) -> None:
    copied = _side_by_side(storage, lambda key: storage.copy(quarantine.prefix + key, key), keys)
    there = [key for key, was_there in zip(keys, copied, strict=True) if was_there]
    copies = storage.head_many(there)
    held = storage.head_many([quarantine.prefix + key for key in there])
    for key, copy, source in zip(there, copies, held, strict=True):
        if copy is None or (source is not None and copy.size != source.size):
            raise StorageError(f"{key} is no whole copy of {quarantine.prefix}{key}. Run again.", key)


def _same_content(storage: Storage, key: str, other: str, size: int) -> bool:
    return all(
        storage.read(key, start, _COMPARED_BYTES) == storage.read(other, start, _COMPARED_BYTES)
        for start in range(0, size, _COMPARED_BYTES)
    )


def _side_by_side(storage: Storage, work: Callable[[str], bool], keys: Sequence[str]) -> list[bool]:
    if storage.concurrency < 2 or len(keys) < 2:
        return [work(key) for key in keys]
    with ThreadPoolExecutor(min(storage.concurrency, len(keys))) as pool:
        return list(pool.map(work, keys))
