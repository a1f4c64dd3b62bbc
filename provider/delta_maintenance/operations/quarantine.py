"""Files that a VACUUM takes out of the table but not out of the store yet: where they wait, who deletes them, and the way back.

``_delta_quarantine/<name>/`` holds what one vacuum took: its ``manifest.json``, ``files.jsonl`` with the reason for each
file, and below ``files/`` the files under their own keys. The name is hidden, so that no engine's vacuum looks there.

No order of failures loses a file:

1. the manifest is there before the first file, and goes after the last;
2. a file is copied (on a disk: gets a second name), the copy is looked at, and only then the first one is deleted;
3. the way back is the same. What was interrupted is there twice, and its repetition ends it.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime, timezone

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.errors import InvalidRequest, StorageError
from delta_log.object_tree import KeySpan
from delta_log.runtime import Runtime
from delta_log.storage import Storage
from delta_maintenance.plan.retention import HOUR_MS
from delta_maintenance.plan.vacuum_plan import VacuumPlan
from delta_maintenance.progress import ProgressReporter

QUARANTINE_DIRECTORY = "_delta_quarantine"
_BATCH_FILES = 1_000
_COMPARED_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class Quarantine:
    """What one vacuum took.

    :param since_ms: when, by its own clock or the store's, whichever is later.
    """

    storage: Storage
    name: str
    since_ms: int

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
        with storage.open_write(quarantine.lines_key) as file:
            for lines in plan.lines():
                file.write(lines)
        manifest = {
            "tableId": plan.table_id,
            "version": plan.read_version,
            "quarantinedMs": now_ms,
            "cutoffMs": plan.retention.cutoff_ms,
            "numFiles": plan.candidates.num_rows,
            "numBytes": plan.size_bytes,
            "digest": plan.digest,
        }
        storage.put(quarantine.manifest_key, json.dumps(manifest).encode())
        return quarantine

    def keep(self, batch: pa.Table) -> None:
        """Before some files are deleted: a copy of each that is there.

        :param batch: of :data:`~delta_maintenance.plan.vacuum_plan.CANDIDATE_SCHEMA`.
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
    """The oldest first. What has no manifest is none of ours."""
    names: list[str] = []

    def told(directories: Sequence[str]) -> tuple[()]:
        names.extend(directory.rpartition("/")[2] for directory in directories)
        return ()

    for _ in storage.list_part(KeySpan(f"{QUARANTINE_DIRECTORY}/"), told):
        pass
    found = []
    for name in names:
        quarantine = Quarantine(storage, name, 0)
        info = storage.head(quarantine.manifest_key)
        if info is not None:
            said = json.loads(storage.read(quarantine.manifest_key)).get("quarantinedMs", 0)
            found.append(Quarantine(storage, name, max(said, info.modification_time_ms)))
    return sorted(found, key=lambda quarantine: (quarantine.since_ms, quarantine.name))


@dataclass(frozen=True, slots=True)
class Purge:
    """
    :param num_needed: files that the table needs again; they stay where they are, to be restored.
    """

    num_files: int = 0
    size_bytes: int = 0
    num_needed: int = 0


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
    """
    files = size_bytes = num_needed = 0
    for quarantine in quarantines(storage):
        if quarantine.since_ms > now_ms - hours * HOUR_MS:
            continue
        progress.message(
            f"deleting the quarantine {quarantine.name}" if not dry_run else "looking at quarantines"
        )
        needed_here = 0
        for keys, sizes in quarantine.files():
            needed = pc.is_in(pa.array(keys, pa.string()), value_set=protected).to_pylist()
            going = [key for key, stays in zip(keys, needed, strict=True) if not stays]
            needed_here += sum(needed)
            files += len(going)
            size_bytes += sum(size or 0 for size, stays in zip(sizes, needed, strict=True) if not stays)
            if not dry_run:
                storage.delete([quarantine.prefix + key for key in going])
        num_needed += needed_here
        if not dry_run and not needed_here:
            quarantine.forget()
    return Purge(files, size_bytes, num_needed)


@dataclass(frozen=True, slots=True)
class Restoration:
    """
    :param num_present: files that are in their place already, as an interrupted vacuum or restoration leaves them.
    :param conflicts: keys at which there is another file; both stay where they are.
    """

    names: tuple[str, ...] = ()
    num_files: int = 0
    size_bytes: int = 0
    num_present: int = 0
    conflicts: tuple[str, ...] = ()


def restore(storage: Storage, name: str | None, progress: ProgressReporter, *, dry_run: bool) -> Restoration:
    """Bring files back to where they were.

    :param name: of one quarantine; ``None``: of all.
    :raises InvalidRequest: there is none of that name.
    :raises StorageError: a file could not be copied; repeating goes on.
    """
    there = quarantines(storage)
    chosen = [quarantine for quarantine in there if name in (None, quarantine.name)]
    if name is not None and not chosen:
        known = ", ".join(quarantine.name for quarantine in there) or "there are none"
        raise InvalidRequest(f"This table has no quarantine {name}. Its quarantines: {known}.")
    files = size_bytes = num_present = 0
    conflicts: list[str] = []
    # What was taken last was there last.
    for quarantine in reversed(chosen):
        progress.message(f"restoring the quarantine {quarantine.name}")
        conflicts_here = []
        for keys, sizes in quarantine.files():
            moving, done = [], []
            for key, ours, theirs in zip(keys, sizes, storage.sizes_and_times(keys)[0], strict=True):
                if ours is None:
                    continue
                # What has no size may be a link.
                if theirs is None and not (storage.has_directories and storage.head(key) is not None):
                    moving.append(key)
                    size_bytes += ours
                elif theirs == ours and _same_content(storage, key, quarantine.prefix + key, ours):
                    done.append(key)
                else:
                    conflicts_here.append(key)
            files += len(moving)
            num_present += len(done)
            if dry_run:
                continue
            _bring_back(storage, quarantine, moving)
            storage.delete([quarantine.prefix + key for key in (*moving, *done)])
        conflicts += conflicts_here
        if not dry_run and not conflicts_here:
            quarantine.forget()
    return Restoration(
        tuple(quarantine.name for quarantine in chosen), files, size_bytes, num_present, tuple(conflicts)
    )


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
