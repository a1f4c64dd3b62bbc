"""The names of the files in ``_delta_log``, by the protocol section "Delta Log Entries" and its neighbours.

A name matches one of the patterns from its first to its last character, or the file is not part of the log. Dot-files,
temporary files and empty checkpoints are not part of it either.
"""

from __future__ import annotations

import re
from enum import Enum

from msgspec import Struct

from delta_log.storage.storage import FileInfo

LOG_DIRECTORY = "_delta_log"
SIDECAR_DIRECTORY = "_delta_log/_sidecars"
LAST_CHECKPOINT = "_delta_log/_last_checkpoint"
#: The ``modification_time_ms`` of a :func:`known_commit`.
UNKNOWN_TIME_MS = -1


class LogFileKind(Enum):
    """What a file of the log is; each member's comment shows its name."""

    COMMIT = "commit"  # 00000000000000000010.json
    CLASSIC_CHECKPOINT = "classic checkpoint"  # 00000000000000000010.checkpoint.parquet
    MULTI_PART_CHECKPOINT = "multi-part checkpoint"  # ….checkpoint.0000000001.0000000002.parquet
    UUID_CHECKPOINT = "uuid checkpoint"  # ….checkpoint.<unique>.json or .parquet
    COMPACTION = "log compaction"  # 00000000000000000004.00000000000000000006.compacted.json
    CHECKSUM = "checksum"  # 00000000000000000010.crc


_COMMIT = re.compile(r"[0-9]{20}\.json")
_PATTERNS = (
    (LogFileKind.CHECKSUM, re.compile(r"(?P<version>[0-9]{20})\.crc")),
    (LogFileKind.CLASSIC_CHECKPOINT, re.compile(r"(?P<version>[0-9]{20})\.checkpoint\.parquet")),
    (
        LogFileKind.MULTI_PART_CHECKPOINT,
        re.compile(r"(?P<version>[0-9]{20})\.checkpoint\.(?P<part>[0-9]{10})\.(?P<parts>[0-9]{10})\.parquet"),
    ),
    (
        LogFileKind.UUID_CHECKPOINT,
        re.compile(r"(?P<version>[0-9]{20})\.checkpoint\.(?P<unique>[^.]+)\.(json|parquet)"),
    ),
    (
        LogFileKind.COMPACTION,
        re.compile(r"(?P<version>[0-9]{20})\.(?P<end>[0-9]{20})\.compacted\.json"),
    ),
)

CHECKPOINTS = frozenset(
    {LogFileKind.CLASSIC_CHECKPOINT, LogFileKind.MULTI_PART_CHECKPOINT, LogFileKind.UUID_CHECKPOINT}
)
_WITH_SUBSTITUTE = CHECKPOINTS | {LogFileKind.COMPACTION}


class LogFile(Struct, frozen=True):
    """One recognised file of a log; ``end`` differs from ``version`` for log compactions only."""

    kind: LogFileKind
    version: int
    end: int
    info: FileInfo
    part: int = 1
    parts: int = 1

    @property
    def key(self) -> str:
        return self.info.key


def parse_log_file(info: FileInfo) -> LogFile | None:
    """The kind and the versions of a listed file; ``None``: it is not part of the log."""
    # Commits come first, since nearly all files of a long log are commits. An empty commit is an error (unlike other
    # empty files it has no substitute), which is found where it is read.
    if _COMMIT.fullmatch(info.name) is not None:
        version = int(info.name[:20])
        return LogFile(LogFileKind.COMMIT, version, version, info)
    for kind, pattern in _PATTERNS:
        match = pattern.fullmatch(info.name)
        if match is None:
            continue
        if info.size == 0 and kind in _WITH_SUBSTITUTE:
            return None
        named = match.groupdict()
        version = int(named["version"])
        part, parts = int(named.get("part") or 1), int(named.get("parts") or 1)
        if not 1 <= part <= parts:
            return None
        end = int(named.get("end") or version)
        if kind is LogFileKind.COMPACTION and end <= version:
            return None
        return LogFile(kind, version, end, info, part, parts)
    return None


def commit_name(version: int) -> str:
    return f"{version:020d}.json"


def commit_key(version: int) -> str:
    return f"{LOG_DIRECTORY}/{commit_name(version)}"


def known_commit(version: int, size_bytes: int) -> LogFile:
    """A commit that was read or written but not listed, so that its modification time is unknown."""
    info = FileInfo(commit_key(version), commit_name(version), size_bytes, UNKNOWN_TIME_MS)
    return LogFile(LogFileKind.COMMIT, version, version, info)


def checksum_key(version: int) -> str:
    return f"{LOG_DIRECTORY}/{version:020d}.crc"
