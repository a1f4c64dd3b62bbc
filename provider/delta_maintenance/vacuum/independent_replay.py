"""A second, independent reading of the log, which a vacuum compares with the first one before it deletes anything.

It is naive on purpose: the files of the log are read as text and replayed into dictionaries, the oldest first. It shares
the store with :mod:`delta_log`, but not the replay, the paths, the checkpoints or the deletion vectors. So a defect there
shows as a difference.

If the log begins with a checkpoint, the commits since the cutoff that the checkpoint covers are read as well, for what they
removed and when.
"""

from __future__ import annotations

import json
import posixpath
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.parquet as pq
from msgspec import Struct, field

from delta_log.errors import brief
from delta_log.storage.storage import Storage
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.vacuum.commit_reader import commit_bodies

_LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[^.]+)?\.(parquet|json)")
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
#: What replaying values of wrong types, or extreme values, may raise.
_ILLEGIBLE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
_FILE_MEMBERS = ("path", "size", "deletionTimestamp", "deletionVector")


class SecondReading(Struct):
    """What the log says, replayed up to one version.

    :ivar live: live files by their path and deletion vector, each with the file of the vector, if it has one, and the size.
    :ivar recent: every file that a commit or a tombstone names at the cutoff or later. Older mentions may be of millions of
        files, and protect nothing.
    :ivar has_checkpoint: the log does not go back to version 0, so the reading began with a checkpoint.
    """

    root: str
    cutoff_ms: int
    live: dict[tuple[str, str], tuple[str | None, int]] = field(default_factory=dict)
    recent: set[str] = field(default_factory=set)
    has_checkpoint: bool = False

    @property
    def num_files(self) -> int:
        return len(self.live)

    @property
    def size_bytes(self) -> int:
        return sum(size for _, size in self.live.values())

    def live_keys(self) -> pa.Array:
        """Keys of the live files below the root, and of their deletion vectors."""
        found = {key for key, _ in self.live} | {file for file, _ in self.live.values() if file is not None}
        return pa.array([key for key in found if not key.startswith("\0")], pa.string())

    def replay(self, actions: Iterator[Mapping[str, Any]], time_ms: int) -> None:
        """Apply the actions of one commit, or of a part of a checkpoint."""
        added = []
        for action in actions:
            remove = action.get("remove")
            if action.get("add") is not None:
                added.append(action["add"])
            elif remove is not None:
                key, vector, vector_file = self._named(remove)
                self.live.pop((key, vector), None)
                self._mention(key, vector_file, max(time_ms, remove.get("deletionTimestamp") or 0))
        for add in added:
            key, vector, vector_file = self._named(add)
            self.live[key, vector] = vector_file, add.get("size") or 0
            self._mention(key, vector_file, time_ms)

    def _mention(self, key: str, vector_file: str | None, time_ms: int) -> None:
        if time_ms >= self.cutoff_ms:
            self.recent.update(name for name in (key, vector_file) if name is not None)

    def _named(self, file: Mapping[str, Any]) -> tuple[str, str, str | None]:
        """Extract the key of a file, an identity of its deletion vector, and the vector's file."""
        vector = file.get("deletionVector")
        key = _key(file["path"], self.root)
        if vector is None:
            return key, "", None
        kind, path = vector["storageType"], vector["pathOrInlineDv"]
        stored = {"u": lambda: _vector_file(path), "p": lambda: _key(path, self.root)}.get(kind)
        return key, f"{kind}{path}@{vector.get('offset')}", stored() if stored else None


def read_log_again(storage: Storage, version: int, cutoff_ms: int) -> SecondReading:
    """Replay the log up to a version.

    :raises VacuumRefused: a commit or every checkpoint is missing or unreadable.
    """
    commits, checkpoints = _log_files(storage, version)
    reading = SecondReading(storage.uri, cutoff_ms)
    start = 0
    if not all(number in commits for number in range(version + 1)):
        start = _replay_checkpoint(storage, checkpoints, reading) + 1
        reading.has_checkpoint = True
        if not all(number in commits for number in range(start, version + 1)):
            raise VacuumRefused(
                f"A commit between {start} and {version} is missing, so what has to stay cannot be proved. Nothing was deleted. "
                "Restore it, or look for what deletes files of the log."
            )
    # A checkpoint may hold a removal without its time, or with one that is too early. The commit's own time is right.
    covered = SecondReading(reading.root, cutoff_ms)
    recent = [number for number in sorted(commits) if number < start and commits[number] >= cutoff_ms]
    _replay_commits(storage, recent, commits, covered)
    reading.recent |= covered.recent
    _replay_commits(storage, range(start, version + 1), commits, reading)
    return reading


def _log_files(storage: Storage, version: int) -> tuple[dict[int, int], dict[int, list[str]]]:
    """List commits up to a version with the store's times, and the names of the files of each checkpoint."""
    commits: dict[int, int] = {}
    checkpoints: dict[int, list[str]] = {}
    for info in storage.list_from(_LOG):
        commit, checkpoint = _COMMIT.fullmatch(info.name), _CHECKPOINT.fullmatch(info.name)
        if commit and int(commit[1]) <= version:
            commits[int(commit[1])] = info.modification_time_ms
        elif checkpoint and int(checkpoint[1]) <= version and info.size:
            checkpoints.setdefault(int(checkpoint[1]), []).append(info.name)
    return commits, checkpoints


def _replay_commits(
    storage: Storage, numbers: Sequence[int], times_ms: Mapping[int, int], reading: SecondReading
) -> None:
    bodies = commit_bodies(storage, [f"{_LOG}/{number:020d}.json" for number in numbers])
    for number, body in zip(numbers, bodies, strict=True):
        with _refusing_illegible(number):
            actions = (json.loads(line) for line in body.splitlines() if line.strip())
            reading.replay(actions, times_ms[number])


@contextmanager
def _refusing_illegible(number: int) -> Iterator[None]:
    """
    :raises VacuumRefused: the commit is malformed. No other code reads the commits before a checkpoint.
    """
    try:
        yield
    except _ILLEGIBLE as error:
        raise VacuumRefused(
            f"{_LOG}/{number:020d}.json cannot be read as a commit ({type(error).__name__}: {brief(str(error))}), so what "
            "has to stay cannot be proved. Nothing was deleted. Restore that file, or ask its writer."
        ) from error


def _replay_checkpoint(storage: Storage, checkpoints: Mapping[int, list[str]], reading: SecondReading) -> int:
    """Replay the newest checkpoint that can be read, and return its version.

    :raises VacuumRefused: no checkpoint can be read.
    """
    for version in sorted(checkpoints, reverse=True):
        names = checkpoints[version]
        parts = [name for name in names if (found := _CHECKPOINT.fullmatch(name)) and found[2]]
        singles = [[name] for name in names if name not in parts]
        complete = [parts] if parts and len(parts) == int(parts[0].split(".")[3]) else []
        for candidate in [*singles, *complete]:
            fresh = SecondReading(reading.root, reading.cutoff_ms)
            try:
                for name in candidate:
                    fresh.replay(_checkpoint_actions(storage, f"{_LOG}/{name}"), 0)
            except (FileNotFoundError, pa.ArrowException, *_ILLEGIBLE):
                continue
            reading.live.update(fresh.live)
            reading.recent |= fresh.recent
            return version
    raise VacuumRefused(
        "No checkpoint of this table could be read a second time, so what has to stay cannot be proved. Nothing was deleted. Have a new "
        "one written (delta-maintenance checkpoint), and vacuum then."
    )


def _checkpoint_actions(storage: Storage, key: str) -> Iterator[Mapping[str, Any]]:
    actions: Iterator[Mapping[str, Any]]
    if key.endswith(".json"):
        actions = (json.loads(line) for line in storage.read(key).splitlines() if line.strip())
    else:
        actions = _parquet_actions(storage, key)
    for action in actions:
        sidecar = action.get("sidecar")
        if sidecar is None:
            yield action
        else:
            yield from _parquet_actions(
                storage, f"{_LOG}/_sidecars/{unquote(sidecar['path']).rpartition('/')[2]}"
            )


def _parquet_actions(storage: Storage, key: str) -> Iterator[Mapping[str, Any]]:
    with storage.open_read(key) as file, pq.ParquetFile(file) as parquet:
        wanted = [f"{action}.{member}" for action in ("add", "remove") for member in _FILE_MEMBERS]
        for batch in parquet.iter_batches(1 << 13, columns=[*wanted, "sidecar.path"]):
            for row in batch.to_pylist():
                for name in ("add", "remove", "sidecar"):
                    found = row.get(name)
                    if found is not None and found.get("path") is not None:
                        yield {name: found}


def _key(path: str, root: str) -> str:
    """Decode a path of the log into a key. A file outside of the root gives a text that begins with NUL and is no key."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path) or path.startswith("/"):
        there, here = _place(path, encoded=True), _place(root, encoded=root.startswith("file:"))
        if there[0] != here[0] and there[0] and here[0]:
            return f"\0{path}"
        below = posixpath.relpath(there[1], here[1])
    else:
        below = posixpath.normpath(unquote(path, errors="strict"))
    return f"\0{path}" if below == ".." or below.startswith("../") else below


def _place(uri: str, *, encoded: bool) -> tuple[str, str]:
    """Split an address into authority and path."""
    if "://" not in uri and not uri.startswith("file:"):
        return "", posixpath.normpath(unquote(uri, errors="strict") if encoded else uri)
    parts = urlsplit(uri)
    path = parts.path if encoded else uri.partition("://")[2].partition("/")[2]
    path = unquote(path, errors="strict") if encoded else path
    return parts.netloc, posixpath.normpath("/" + path.lstrip("/"))


def _vector_file(path: str) -> str:
    """Compute the file of a deletion vector: a prefix, then a UUID of 16 bytes as 20 digits to the base of 85."""
    number = b""
    for start in range(len(path) - 20, len(path), 5):
        group = 0
        for digit in path[start : start + 5]:
            group = group * 85 + _ALPHABET.index(digit)
        number += group.to_bytes(4, "big")
    name = f"deletion_vector_{uuid.UUID(bytes=number)}.bin"
    return f"{path[:-20]}/{name}" if len(path) > 20 else name
