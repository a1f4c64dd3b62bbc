"""What a quarantine says of itself, and whether the log vouches for it.

A quarantine lies in the table's directory, where others may write. So what it says is data until the log vouches for it:
``manifest.json`` holds the digest of ``files.jsonl``, and the commits ``VACUUM START`` and ``VACUUM END`` hold the digest of
``manifest.json``. Only what both digests cover is restored. The digest is in ``VACUUM START``, which is committed before the
first file is deleted, so that an interrupted vacuum can be restored as well.

A record that cannot be read says nothing, and is an error of that quarantine alone.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec
import pyarrow as pa

from delta_log.errors import CorruptLog
from delta_log.log.actions import decode_actions
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
    """``manifest.json``, as far as somebody relies on it; the other members are for people.

    :param version: that the vacuum was planned on; its commits are newer.
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
    """A manifest and its digest.

    :raises FileNotFoundError: there is none.
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


def write_record(storage: Storage, plan: VacuumPlan, lines_key: str) -> str:
    """``files.jsonl``; gives its digest."""
    digest = hashlib.sha256()
    with storage.open_write(lines_key) as file:
        for lines in plan.lines():
            file.write(lines)
            digest.update(lines)
    return digest.hexdigest()


def write_manifest(storage: Storage, key: str, manifest: Mapping[str, Any]) -> str:
    """``manifest.json``; gives its digest."""
    data = json.dumps(manifest).encode()
    storage.put(key, data)
    return hashlib.sha256(data).hexdigest()


def recorded_keys(storage: Storage, lines_key: str, digest: str) -> pa.ChunkedArray:
    """The keys of the files that a record names.

    :raises FileNotFoundError: there is no record.
    :raises ValueError: it is not the one of that digest, or cannot be read.
    """
    # Before the digest is known nothing is held, however large a thing lies there.
    for _ in _checked(_chunks(storage, lines_key), digest):
        pass
    found = [_keys_of(lines) for lines in _lines(_checked(_chunks(storage, lines_key), digest))]
    return pa.chunked_array(found, pa.string())


def _chunks(storage: Storage, key: str) -> Iterator[bytes]:
    with storage.open_read(key) as file:
        while chunk := file.read(_CHUNK_BYTES):
            yield chunk


def _checked(chunks: Iterable[bytes], digest: str) -> Iterator[bytes]:
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


def vouched_for(storage: Storage, wanted: Mapping[str, str], after_version: int) -> set[str]:
    """Names of quarantines that a vacuum's commit vouches for.

    :param wanted: digest of the manifest by name.
    :param after_version: only commits after it are looked at.
    """
    missing = dict(wanted)
    found: set[str] = set()
    versions = [version for version in sorted(list_log(storage).commits) if version > after_version]
    for start in range(0, len(versions), _COMMITS_AT_ONCE):
        keys = [commit_key(version) for version in versions[start : start + _COMMITS_AT_ONCE]]
        for key, body in zip(keys, _bodies(storage, keys), strict=True):
            name, digest = _named_in(key, body)
            if name is not None and missing.get(name) == digest:
                found.add(name)
                del missing[name]
        if not missing:
            break
    return found


def _bodies(storage: Storage, keys: list[str]) -> Iterator[bytes]:
    try:
        yield from list(storage.read_many(keys))
    except FileNotFoundError:  # one was cleaned from the log meanwhile, and vouches for nothing any more
        for key in keys:
            try:
                yield storage.read(key)
            except FileNotFoundError:
                yield b""


def _named_in(key: str, body: bytes) -> tuple[str | None, str | None]:
    if DIGEST_PARAMETER.encode() not in body:
        return None, None
    try:
        infos = [action.commitInfo for action in decode_actions(body, key) if action.commitInfo is not None]
    except CorruptLog:
        return None, None
    info = infos[0] if infos else {}
    parameters = info.get("operationParameters")
    if info.get("operation") not in _OPERATIONS or not isinstance(parameters, Mapping):
        return None, None
    name, digest = parameters.get(NAME_PARAMETER), parameters.get(DIGEST_PARAMETER)
    return (name, digest) if isinstance(name, str) and isinstance(digest, str) else (None, None)
