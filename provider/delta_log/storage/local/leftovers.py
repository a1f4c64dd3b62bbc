"""The names of the temporary files of :class:`~delta_log.storage.local.local_storage.LocalStorage`, and the removal of old ones.

A process that is killed leaves its temporary files behind. Such a file is removed when its name is exactly of the pattern that
this module gives out, it is a regular file, and it was written a day ago or earlier by the clock of its file system and by the
caller's. No write takes a day.
"""

from __future__ import annotations

import os
import re
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress

from delta_log.errors import SymbolicLinkRefused
from delta_log.storage.local.directory import DirectoryWalk

_DAY_MS = 24 * 60 * 60 * 1000
#: A temporary name repeats at most this much of its target's name, because a name has at most 255 bytes.
_NAME_LENGTH = 50
#: The second form belongs to :func:`probe_names`.
_PATTERN = re.compile(r"\.(?:[^/]{1,100}\.[0-9a-f]{32}\.tmp|[0-9a-f]{32}\.tmp2?)", re.DOTALL)


def temporary_name(name: str) -> str:
    """Return a hidden, unique name for the content that is to become a file of that name."""
    return f".{name[:_NAME_LENGTH]}.{uuid.uuid4().hex}.tmp"


def probe_names() -> tuple[str, str]:
    """Return two hidden, unique names, for trying out hard links."""
    probe = f".{uuid.uuid4().hex}.tmp"
    return probe, f"{probe}2"


def find_leftovers(walk: DirectoryWalk, directories: Iterable[str], before_ms: int) -> Iterator[str]:
    """Yield the keys of the leftovers directly in some directories that were written before a moment."""
    for directory in directories:
        # A directory that cannot be opened, or is reached by a link, is left alone.
        with suppress(FileNotFoundError, NotADirectoryError, SymbolicLinkRefused):
            descriptor = walk.open_for_listing(directory)
            try:
                names = [
                    name for name in os.listdir(descriptor) if name[0] == "." and _PATTERN.fullmatch(name)
                ]
            finally:
                os.close(descriptor)
            for name in names:
                key = f"{directory}/{name}" if directory else name
                status = walk.status(key)
                if status is not None and is_older(status, before_ms):
                    yield key


def is_older(status: os.stat_result, before_ms: int) -> bool:
    """Whether it is a regular file that was written before a moment."""
    return stat.S_ISREG(status.st_mode) and status.st_mtime_ns // 1_000_000 < before_ms


def remove_leftovers(
    walk: DirectoryWalk,
    directories: Iterable[str],
    now_ms: int,
    store_clock_ms: Callable[[str], int],
    *,
    dry_run: bool,
) -> list[str]:
    """See :meth:`delta_log.storage.storage.Storage.remove_leftovers`.

    :param store_clock_ms: function that returns the time by the clock of a directory's file system.
    """
    found = list(find_leftovers(walk, directories, now_ms - _DAY_MS))
    if dry_run or not found:
        return found
    removed = []
    clock_ms: dict[str, int] = {}
    for key in found:
        directory = key.rpartition("/")[0]
        # Directories may be on different file systems.
        if directory not in clock_ms:
            clock_ms[directory] = store_clock_ms(directory)
        status = walk.status(key)
        if status is not None and is_older(status, clock_ms[directory] - _DAY_MS):
            with suppress(FileNotFoundError, SymbolicLinkRefused):
                walk.unlink(key)
                removed.append(key)
    return removed
