"""One quarantine: the directory that holds the files of one vacuum, and the list of all of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime, timezone

import pyarrow as pa
from msgspec import Struct
from msgspec.structs import replace

from delta_log.arrow.prefetch import map_ordered
from delta_log.errors import StorageError, SymbolicLinkRefused
from delta_log.runtime import Runtime
from delta_log.storage.storage import ODD_KEY, KeySpan, Storage
from delta_maintenance.vacuum.plan.plan import VacuumPlan
from delta_maintenance.vacuum.quarantine.record import (
    DIGEST_PARAMETER,
    NAME_PARAMETER,
    QuarantineManifest,
    read_manifest,
    write_file_list,
    write_manifest,
)

QUARANTINE_DIRECTORY = "_delta_quarantine"
_BATCH_FILES = 1_000


class Quarantine(Struct, frozen=True):
    """The directory that holds the files of one vacuum.

    :param since_ms: time at which the files were put there, by the vacuum's clock or the store's, whichever is later. ``None`` if
        there is no manifest.
    :param manifest: ``None`` if it cannot be read; ``broken`` then says why.
    :param digest: SHA-256 of the manifest's bytes.
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
    def file_list_key(self) -> str:
        return f"{QUARANTINE_DIRECTORY}/{self.name}/files.jsonl"

    @property
    def prefix(self) -> str:
        """The beginning of each file's key here; the key that the file had in the table follows."""
        return f"{QUARANTINE_DIRECTORY}/{self.name}/files/"

    @property
    def commit_parameters(self) -> dict[str, str]:
        """What ``VACUUM START`` and ``VACUUM END`` say about this quarantine."""
        return {NAME_PARAMETER: self.name, DIGEST_PARAMETER: self.digest}

    @classmethod
    def begin(cls, storage: Storage, plan: VacuumPlan, runtime: Runtime) -> Quarantine:
        """Write the record of a new quarantine, before the first file is copied."""
        now_ms = runtime.now_ms()
        day = datetime.fromtimestamp(now_ms / 1000, timezone.utc)
        quarantine = cls(storage, f"{day:%Y%m%dT%H%M%SZ}-{runtime.new_id()}", now_ms)
        manifest = {
            "name": quarantine.name,
            "filesDigest": write_file_list(storage, plan, quarantine.file_list_key),
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

    def copy_files(self, batch: pa.Table) -> None:
        """Copy files into the quarantine, before the vacuum deletes them; files that are gone already are skipped.

        :param batch: rows with the schema :data:`~delta_maintenance.vacuum.plan.plan.CANDIDATE_SCHEMA`.
        :raises StorageError: a file could not be copied whole.
        """
        keys, sizes = batch.column("key").to_pylist(), batch.column("size").to_pylist()
        copied = copy_all(self.storage, [(key, self.prefix + key) for key in keys])
        if self.storage.has_directories:  # a copy there is the same file under a second name
            return
        there = [(key, size) for key, size, was_there in zip(keys, sizes, copied, strict=True) if was_there]
        copies = self.storage.head_many([self.prefix + key for key, _ in there])
        for (key, size), copy in zip(there, copies, strict=True):
            if copy is None or size not in (None, copy.size):
                raise StorageError(
                    f"{self.prefix}{key} is no whole copy of {key}. Run again.", self.prefix + key
                )

    def files(self) -> Iterator[tuple[list[str], list[int | None]]]:
        """List the files in batches: the keys that they had in the table, and their sizes."""
        for page in self.storage.list_part(KeySpan(self.prefix, deep=True), lambda directories: directories):
            names = page.names()
            for start in range(0, len(names), _BATCH_FILES):
                part = names[start : start + _BATCH_FILES]
                if page.sizes is None:
                    sizes = self.storage.sizes_and_times(part)[0]
                else:
                    sizes = list(page.sizes[start : start + _BATCH_FILES])
                yield [name[len(self.prefix) :] for name in part], sizes

    def has_files(self) -> bool:
        """Whether files wait here. A directory behind a symbolic link counts as one with files; it is not listed."""
        try:
            return any(keys for keys, _ in self.files())
        except SymbolicLinkRefused:
            return True

    def delete_record(self) -> None:
        """Delete the file list, the manifest and the empty directories, once no file is left."""
        self.storage.delete([self.file_list_key])
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


def list_quarantines(storage: Storage) -> list[Quarantine]:
    """List the quarantines of a table, the oldest first. A directory with neither manifest nor files does not count."""
    names: list[str] = []

    def note_names(directories: Sequence[str]) -> tuple[()]:
        found = (directory.rpartition("/")[2] for directory in directories)
        names.extend(name for name in found if not ODD_KEY.search(name))
        return ()

    for _ in storage.list_part(KeySpan(f"{QUARANTINE_DIRECTORY}/"), note_names):
        pass
    opened = (_with_manifest(Quarantine(storage, name, None)) for name in names)
    found = [quarantine for quarantine in opened if quarantine.since_ms is not None or quarantine.has_files()]
    return sorted(found, key=lambda quarantine: (quarantine.since_ms or 0, quarantine.name))


def _with_manifest(quarantine: Quarantine) -> Quarantine:
    key = quarantine.manifest_key
    keys = [key, quarantine.file_list_key, quarantine.prefix.rstrip("/")]
    link = next((link for link in quarantine.storage.symbolic_links(keys) if link is not None), None)
    if link is not None:
        return replace(quarantine, broken=f"{link} is a symbolic link")
    info = quarantine.storage.head(key)
    if info is None:
        return replace(quarantine, broken="it has no manifest.json")
    written_ms = info.modification_time_ms
    try:
        manifest, digest = read_manifest(quarantine.storage, key)
    except FileNotFoundError:  # deleted since the look above
        return replace(quarantine, broken="it has no manifest.json")
    except ValueError as error:
        return replace(quarantine, since_ms=written_ms, broken=f"its manifest.json cannot be read ({error})")
    since_ms = max(manifest.quarantined_ms, written_ms)
    return replace(quarantine, since_ms=since_ms, manifest=manifest, digest=digest)


def copy_all(storage: Storage, pairs: Sequence[tuple[str, str]]) -> list[bool]:
    """Copy files inside a store, several at a time.

    :param pairs: the key of each file, and the key of its copy.
    :return: for each pair, whether the file was there.
    """
    return list(map_ordered(lambda pair: storage.copy(*pair), pairs, storage.concurrency))
