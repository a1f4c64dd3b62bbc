"""``_last_checkpoint``: advice on where to start listing.

Protocol section "Last Checkpoint File" and its "JSON checksum". A pointer that is missing, broken, or whose checksum
does not match is ignored and never an error. A writer puts it last, after the checkpoint that it names is complete.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import msgspec

from delta_log.errors import NotAFile
from delta_log.log.actions import Action, Sidecar
from delta_log.log.file_names import LAST_CHECKPOINT
from delta_log.storage.storage import Storage

_MAX_VERSION = 10**19


class _Number(str):
    """A JSON number in its original spelling."""

    __slots__ = ()


def read_last_checkpoint(storage: Storage) -> int | None:
    """The version that the pointer names; ``None``: there is no valid pointer."""
    try:
        data = storage.read(LAST_CHECKPOINT)
    except (FileNotFoundError, NotAFile):
        return None
    try:
        raw = json.loads(data, parse_int=_Number, parse_float=_Number)
        version = int(raw["version"])
        stated = raw.get("checksum")
        sound = stated is None or stated == checksum_of(raw)
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return version if sound and 0 <= version < _MAX_VERSION else None


def checksum_of(raw: dict[str, Any]) -> str:
    """The MD5, in hex, of an object's canonical form; numbers keep their spelling where they are :class:`_Number`."""
    pairs = sorted(_leaves({name: value for name, value in raw.items() if name != "checksum"}, ""))
    canonical = ",".join(f"{path}={value}" for path, value in pairs)
    return hashlib.md5(canonical.encode(), usedforsecurity=False).hexdigest()


def _leaves(value: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(value, dict):
        for name, member in value.items():
            yield from _leaves(member, f"{path}+{_quoted(name)}" if path else _quoted(name))
    elif isinstance(value, list):
        for index, member in enumerate(value):
            yield from _leaves(member, f"{path}+{index}")
    elif isinstance(value, str) and not isinstance(value, _Number):
        yield path, _quoted(value)
    elif isinstance(value, (bool, type(None))):
        yield path, json.dumps(value)
    else:
        yield path, str(value)


def _quoted(text: str) -> str:
    return f'"{quote(text, safe="-._~")}"'


class V2Checkpoint(msgspec.Struct, omit_defaults=True):
    """The top file of a V2 checkpoint, and its actions where they are few."""

    path: str
    sizeInBytes: int
    modificationTime: int
    nonFileActions: list[Action] | None = None
    sidecarFiles: list[Sidecar] | None = None


class LastCheckpoint(msgspec.Struct, omit_defaults=True):
    """The pointer, under the protocol's names; ``size`` is the number of actions, -1 if unknown."""

    version: int
    size: int
    sizeInBytes: int
    numOfAddFiles: int
    parts: int | None = None
    v2Checkpoint: V2Checkpoint | None = None


def encode_last_checkpoint(pointer: LastCheckpoint) -> bytes:
    """The content of the file, with its checksum."""
    raw = msgspec.to_builtins(pointer)
    return json.dumps(
        {**raw, "checksum": checksum_of(raw)}, ensure_ascii=False, separators=(",", ":")
    ).encode()
