"""The protected files a second time, by other means, before anything is deleted.

Naive on purpose: the log's files are read as text and replayed into dictionaries, oldest first. Nothing here is shared
with :mod:`delta_log`'s replay, paths, checkpoints or deletion vectors; what is shared is the store. How much the
agreement of both is worth depends on what the log still holds:

* ``commits``: every commit since version 0 is there, and nothing else was looked at;
* ``checkpoint_and_checksum``: from the newest checkpoint that can be read, with the counts of the version's ``.crc``;
* ``checkpoint``: from such a checkpoint alone; where it lost files, both readers believe it.

From a checkpoint, the commits since the cutoff that it holds are read as well, for what they removed and when.
"""

from __future__ import annotations

import json
import posixpath
import re
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import unquote, urlsplit

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from delta_log.errors import brief
from delta_log.storage.storage import Storage
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.vacuum.commit_bodies import commit_bodies
from delta_maintenance.vacuum.plan.plan import VacuumPlan
from delta_maintenance.vacuum.plan.planner import VacuumBasis

STRENGTHS = ("commits", "checkpoint_and_checksum", "checkpoint")
_LOG = "_delta_log"
_COMMIT = re.compile(r"(\d{20})\.json")
_CHECKPOINT = re.compile(r"(\d{20})\.checkpoint(?:\.(\d{10})\.(\d{10})|\.[^.]+)?\.(parquet|json)")
_ALPHABET = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
#: What replaying values of other types, or absurd ones, may raise.
_ILLEGIBLE = (ValueError, LookupError, TypeError, AttributeError, OverflowError, RecursionError)
_FILE_MEMBERS = ("path", "size", "deletionTimestamp", "deletionVector")


@dataclass(frozen=True, slots=True)
class Proof:
    """What the second replay found, where both agree.

    :param strength: one of :data:`STRENGTHS`.
    """

    strength: str
    num_live: int

    @property
    def is_weak(self) -> bool:
        return self.strength == STRENGTHS[-1]


def prove(storage: Storage, basis: VacuumBasis, plan: VacuumPlan) -> Proof:
    """
    :raises VacuumRefused: the two disagree, or one is to be had and there is none.
    """
    replay = _Replay(storage.uri, basis.retention.cutoff_ms)
    strength = _replayed(storage, plan.read_version, replay)
    if strength == "checkpoint" and _counts_agree(storage, plan.read_version, replay):
        strength = "checkpoint_and_checksum"
    live = replay.live_keys()
    ours = basis.protected.live
    if len(live) != len(pc.unique(ours)) or not pc.all(pc.is_in(ours, value_set=live), min_count=0).as_py():
        missing = ours.filter(pc.invert(pc.is_in(ours, value_set=live)))
        unknown = live.filter(pc.invert(pc.is_in(live, value_set=ours)))
        example = next((column[0].as_py() for column in (missing, unknown) if len(column)), "")
        raise VacuumRefused(
            f"Two ways of reading the log disagree about the live files of version {plan.read_version}: "
            f"{len(missing)} are in the first alone, {len(unknown)} in the second alone, for example {example!r}. Nothing "
            "was deleted. A checkpoint may be damaged; please report this."
        )
    needed = pa.chunked_array([live, pa.array(list(replay.recent), pa.string())])
    keys = plan.candidates.column("key")
    wrong = keys.filter(pc.is_in(keys, value_set=needed))
    if len(wrong):
        raise VacuumRefused(
            f"{len(wrong)} files would be deleted that a second reading of the log protects, for example "
            f"{wrong[0].as_py()!r}. Nothing was deleted. Please report this."
        )
    proof = Proof(strength, len(live))
    if proof.is_weak and basis.options.require_proof:
        raise VacuumRefused(
            f"The protected files of version {plan.read_version} cannot be proved: the log begins with a checkpoint, and "
            "no version checksum (.crc) says what it should hold. Nothing was deleted. Leave out the demand for a proof, "
            "or commit once with a writer of checksums."
        )
    return proof


@dataclass(slots=True)
class _Replay:
    """
    :ivar live: by path and deletion vector: the vector's file, if it has one, and the size.
    :ivar recent: everything that a commit or a tombstone of the cutoff's time, or later, names. What is older may be of
        millions of files, and would say nothing.
    """

    root: str
    cutoff_ms: int
    live: dict[tuple[str, str], tuple[str | None, int]] = field(default_factory=dict)
    recent: set[str] = field(default_factory=set)

    def take(self, actions: Iterator[Mapping[str, Any]], time_ms: int) -> None:
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

    def live_keys(self) -> pa.Array:
        found = {key for key, _ in self.live} | {file for file, _ in self.live.values() if file is not None}
        return pa.array([key for key in found if not key.startswith("\0")], pa.string())

    def _mention(self, key: str, vector_file: str | None, time_ms: int) -> None:
        if time_ms >= self.cutoff_ms:
            self.recent.update(name for name in (key, vector_file) if name is not None)

    def _named(self, file: Mapping[str, Any]) -> tuple[str, str, str | None]:
        vector = file.get("deletionVector")
        key = _key(file["path"], self.root)
        if vector is None:
            return key, "", None
        kind, path = vector["storageType"], vector["pathOrInlineDv"]
        stored = {"u": lambda: _vector_file(path), "p": lambda: _key(path, self.root)}.get(kind)
        return key, f"{kind}{path}@{vector.get('offset')}", stored() if stored else None


def _replayed(storage: Storage, version: int, replay: _Replay) -> str:
    commits: dict[int, int] = {}
    checkpoints: dict[int, list[str]] = {}
    for info in storage.list_from(_LOG):
        commit, checkpoint = _COMMIT.fullmatch(info.name), _CHECKPOINT.fullmatch(info.name)
        if commit and int(commit[1]) <= version:
            commits[int(commit[1])] = info.modification_time_ms
        elif checkpoint and int(checkpoint[1]) <= version and info.size:
            checkpoints.setdefault(int(checkpoint[1]), []).append(info.name)
    start = 0
    if not all(number in commits for number in range(version + 1)):
        start = _from_checkpoint(storage, checkpoints, replay) + 1
        if not all(number in commits for number in range(start, version + 1)):
            raise VacuumRefused(f"A commit between {start} and {version} is missing. Nothing was deleted.")
    # In a checkpoint removals may have no time, or too early a one.
    held = _Replay(replay.root, replay.cutoff_ms)
    for number, actions in _read(
        storage, [n for n in sorted(commits) if n < start and commits[n] >= replay.cutoff_ms]
    ):
        with _reading(number):
            held.take(actions, commits[number])
    replay.recent |= held.recent
    for number, actions in _read(storage, range(start, version + 1)):
        with _reading(number):
            replay.take(actions, commits[number])
    return "checkpoint" if start else "commits"


def _read(storage: Storage, numbers: Sequence[int]) -> Iterator[tuple[int, Iterator[Mapping[str, Any]]]]:
    bodies = commit_bodies(storage, [f"{_LOG}/{number:020d}.json" for number in numbers])
    for number, body in zip(numbers, bodies, strict=True):
        yield number, (json.loads(line) for line in body.splitlines() if line.strip())


@contextmanager
def _reading(number: int) -> Iterator[None]:
    """
    :raises VacuumRefused: the commit is not what a commit has to be. One before a checkpoint is read here alone.
    """
    try:
        yield
    except _ILLEGIBLE as error:
        raise VacuumRefused(
            f"{_LOG}/{number:020d}.json cannot be read as a commit ({type(error).__name__}: {brief(str(error))}), so what "
            "has to stay cannot be proved. Nothing was deleted. Restore that file, or ask its writer."
        ) from error


def _from_checkpoint(storage: Storage, checkpoints: Mapping[int, list[str]], replay: _Replay) -> int:
    for version in sorted(checkpoints, reverse=True):
        names = checkpoints[version]
        parts = [name for name in names if (found := _CHECKPOINT.fullmatch(name)) and found[2]]
        singles = [[name] for name in names if name not in parts]
        complete = [parts] if parts and len(parts) == int(parts[0].split(".")[3]) else []
        for candidate in [*singles, *complete]:
            fresh = _Replay(replay.root, replay.cutoff_ms)
            try:
                for name in candidate:
                    fresh.take(_checkpoint_actions(storage, f"{_LOG}/{name}"), 0)
            except (FileNotFoundError, pa.ArrowException, *_ILLEGIBLE):
                continue
            replay.live.update(fresh.live)
            replay.recent |= fresh.recent
            return version
    raise VacuumRefused("No checkpoint of this table could be read a second time. Nothing was deleted.")


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


def _counts_agree(storage: Storage, version: int, replay: _Replay) -> bool:
    """``False``: nobody said what there should be."""
    try:
        said = json.loads(storage.read(f"{_LOG}/{version:020d}.crc"))
        files, size = said["numFiles"], said["tableSizeBytes"]
    except (FileNotFoundError, ValueError, KeyError, TypeError, RecursionError):
        return False
    found = len(replay.live), sum(size for _, size in replay.live.values())
    if (files, size) != found:
        raise VacuumRefused(
            f"The checksum of version {version} says {files} files of {size} bytes, and the log comes to {found[0]} files "
            f"of {found[1]} bytes. Nothing was deleted. A checkpoint may have lost files."
        )
    return True


def _key(path: str, root: str) -> str:
    """Below the root, or a text that is no key (it begins with NUL) where it is elsewhere."""
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:", path) or path.startswith("/"):
        there, here = _place(path, encoded=True), _place(root, encoded=root.startswith("file:"))
        if there[0] != here[0] and there[0] and here[0]:
            return f"\0{path}"
        below = posixpath.relpath(there[1], here[1])
    else:
        below = posixpath.normpath(unquote(path, errors="strict"))
    return f"\0{path}" if below == ".." or below.startswith("../") else below


def _place(uri: str, *, encoded: bool) -> tuple[str, str]:
    """Authority and path."""
    if "://" not in uri and not uri.startswith("file:"):
        return "", posixpath.normpath(unquote(uri, errors="strict") if encoded else uri)
    parts = urlsplit(uri)
    path = parts.path if encoded else uri.partition("://")[2].partition("/")[2]
    path = unquote(path, errors="strict") if encoded else path
    return parts.netloc, posixpath.normpath("/" + path.lstrip("/"))


def _vector_file(path: str) -> str:
    """Prefix, then a UUID of 16 bytes as 20 digits to the base of 85."""
    number = b""
    for start in range(len(path) - 20, len(path), 5):
        group = 0
        for digit in path[start : start + 5]:
            group = group * 85 + _ALPHABET.index(digit)
        number += group.to_bytes(4, "big")
    name = f"deletion_vector_{uuid.UUID(bytes=number)}.bin"
    return f"{path[:-20]}/{name}" if len(path) > 20 else name
