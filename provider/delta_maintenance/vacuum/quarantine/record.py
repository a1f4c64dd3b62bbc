"""The record of a quarantine: what it says about itself, and whether a commit of the log vouches for it.

A quarantine lies in the table's directory, where others may write. So its record proves nothing by itself. The file list
``files.jsonl`` is covered by a digest in ``manifest.json``, and the manifest by a digest in the commits ``VACUUM START`` and
``VACUUM END``. Only files that both digests cover are restored. ``VACUUM START`` is committed before the first file is
deleted, so the files of an interrupted vacuum can be restored as well.

An unreadable record makes only its own quarantine unusable.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from delta_log.errors import CorruptLog
from delta_log.log.actions import decode_commit
from delta_log.log.file_names import commit_key
from delta_log.log.log_segment import list_log
from delta_log.storage.storage import Storage
from delta_maintenance.vacuum.plan.plan import REASONS, VacuumPlan

#: In the parameters of both commits.
NAME_PARAMETER, DIGEST_PARAMETER = "quarantine", "quarantineDigest"
_OPERATIONS = ("VACUUM START", "VACUUM END")
_MANIFEST_BYTES = 1 << 20
_CHUNK_BYTES = 1 << 20
_COMMITS_AT_ONCE = 64
_LARGEST = 2**63 - 1


class QuarantineManifest(msgspec.Struct, frozen=True, rename="camel"):
    """The members of ``manifest.json`` that code relies on; the other members are for people.

    :param version: the version that the vacuum was planned on; the vacuum's commits are newer.
    :param files_digest: SHA-256 of ``files.jsonl``; earlier builds wrote none.
    """

    version: int
    quarantined_ms: int
    files_digest: str | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.version <= _LARGEST and 0 <= self.quarantined_ms <= _LARGEST):
            raise ValueError("a number in it is out of range")


class _Line(msgspec.Struct):
    path: str
    reason: str


_LINES = msgspec.json.Decoder(_Line)


def read_manifest(storage: Storage, key: str) -> tuple[QuarantineManifest, str]:
    """Read a manifest and compute its digest.

    :raises FileNotFoundError: the manifest is absent.
    :raises ValueError: it cannot be read; the message says why.
    """
    data = storage.read(key, 0, _MANIFEST_BYTES)
    if len(data) == _MANIFEST_BYTES:
        raise ValueError("it is too large")
    try:
        manifest = msgspec.json.decode(data, type=QuarantineManifest)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    return manifest, hashlib.sha256(data).hexdigest()


def write_file_list(storage: Storage, plan: VacuumPlan, key: str) -> str:
    """Write ``files.jsonl``, and return its digest."""
    digest = hashlib.sha256()
    with storage.open_write(key) as file:
        for lines in plan.lines():
            file.write(lines)
            digest.update(lines)
    return digest.hexdigest()


def write_manifest(storage: Storage, key: str, manifest: Mapping[str, Any]) -> str:
    """Write ``manifest.json``, and return its digest."""
    data = json.dumps(manifest).encode()
    storage.put(key, data)
    return hashlib.sha256(data).hexdigest()


def keys_in_file_list(storage: Storage, key: str, digest: str) -> pa.ChunkedArray:
    """Read the keys that a file list names.

    :param digest: the digest that the list must have.
    :raises FileNotFoundError: the list is absent.
    :raises ValueError: it has another digest, or cannot be read.
    """
    # The first pass checks the digest and keeps nothing in memory, since the file may be of any size.
    for _ in _with_digest(_chunks(storage, key), digest):
        pass
    found = [_keys_of(lines) for lines in _lines(_with_digest(_chunks(storage, key), digest))]
    return pa.chunked_array(found, pa.string())


def _chunks(storage: Storage, key: str) -> Iterator[bytes]:
    with storage.open_read(key) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _with_digest(chunks: Iterable[bytes], digest: str) -> Iterator[bytes]:
    """Pass chunks through.

    :raises ValueError: after the last chunk, if their digest is another one.
    """
    found = hashlib.sha256()
    for chunk in chunks:
        found.update(chunk)
        yield chunk
    if found.hexdigest() != digest:
        raise ValueError("files.jsonl is not what it was when the vacuum began")


def _lines(chunks: Iterable[bytes]) -> Iterator[list[bytes]]:
    rest = b""
    for chunk in chunks:
        *whole, rest = (rest + chunk).split(b"\n")
        yield whole
    yield [rest]


def _keys_of(lines: list[bytes]) -> pa.Array:
    try:
        read = [_LINES.decode(line) for line in lines if line]
        return pa.array([line.path for line in read if line.reason in REASONS], pa.string())
    except (ValueError, RecursionError, pa.ArrowException) as error:
        raise ValueError(f"a line of files.jsonl cannot be read ({error})") from error


def vouched_names(storage: Storage, digests: Mapping[str, str], after_version: int) -> set[str]:
    """Find the quarantines that a vacuum's commit vouches for.

    :param digests: digest of each quarantine's manifest, by the quarantine's name.
    :param after_version: version after which commits are read.
    """
    missing = dict(digests)
    found: set[str] = set()
    versions = [version for version in sorted(list_log(storage).commits) if version > after_version]
    for start in range(0, len(versions), _COMMITS_AT_ONCE):
        keys = [commit_key(version) for version in versions[start : start + _COMMITS_AT_ONCE]]
        for key, body in zip(keys, _bodies(storage, keys), strict=True):
            name, digest = _quarantine_in(key, body)
            if name is not None and missing.get(name) == digest:
                found.add(name)
                del missing[name]
        if not missing:
            break
    return found


def _bodies(storage: Storage, keys: list[str]) -> Iterator[bytes]:
    try:
        yield from list(storage.read_many(keys))
    except FileNotFoundError:  # a commit that was cleaned from the log meanwhile vouches for nothing
        for key in keys:
            try:
                yield storage.read(key)
            except FileNotFoundError:
                yield b""


def _quarantine_in(key: str, body: bytes) -> tuple[str | None, str | None]:
    """Read the name and the manifest digest of the quarantine that a commit names, if it names one."""
    if DIGEST_PARAMETER.encode() not in body:
        return None, None
    try:
        infos = [action.commitInfo for action in decode_commit(body, key) if action.commitInfo is not None]
    except CorruptLog:
        return None, None
    info = infos[0] if infos else {}
    parameters = info.get("operationParameters")
    if info.get("operation") not in _OPERATIONS or not isinstance(parameters, Mapping):
        return None, None
    name, digest = parameters.get(NAME_PARAMETER), parameters.get(DIGEST_PARAMETER)
    return (name, digest) if isinstance(name, str) and isinstance(digest, str) else (None, None)
