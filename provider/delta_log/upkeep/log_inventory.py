"""All files in a log's directories, sorted by kind.

A reader needs the files of one version (:mod:`delta_log.log.log_segment`). A cleanup needs all files, above all the
useless ones: parts of unfinished checkpoints, sidecars that no checkpoint names, temporary files of writers that died. A
file of an unknown name is in no list, so that no cleanup deletes it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from delta_log.log.file_names import (
    CHECKPOINTS,
    LOG_DIRECTORY,
    SIDECAR_DIRECTORY,
    LogFile,
    LogFileKind,
    parse_log_file,
)
from delta_log.log.log_segment import LogListing, listing_of
from delta_log.storage.storage import FileInfo, Storage

STAGED_COMMITS_DIRECTORY = "_delta_log/_staged_commits"
_STAGED = re.compile(r"(?P<version>[0-9]{20})\.[^.]+\.json")
#: Temporary files of this package and Hadoop (``.00000000000000000003.json.<unique>.tmp``), and of delta-rs
#: (``_commit_<uuid>.json.tmp``).
_TEMPORARY = re.compile(r"\..+\.tmp|_commit_[^/]+\.json\.tmp")
#: Hadoop's local file system puts one beside each file that it writes.
_HADOOP_CHECKSUM = re.compile(r"\.(?P<of>.+)\.crc")


class LogInventory(Struct, frozen=True):
    """The files of a log by kind.

    :param listing: the files that readers use: commits, complete checkpoints, compactions.
    :param checksums: the version checksums (``.crc``).
    :param unfinished: empty checkpoints and compactions, and parts of incomplete checkpoints.
    :param staged: staged commits by version; only a catalog knows which of them count.
    :param temporary: temporary files of writers.
    :param hadoop_checksums: checksums of Hadoop's local file system, each with the key of the file that it belongs to.
    :param keys: keys of all files that were listed, including files of unknown names.
    """

    listing: LogListing
    checksums: tuple[LogFile, ...] = ()
    unfinished: tuple[LogFile, ...] = ()
    sidecars: tuple[FileInfo, ...] = ()
    staged: tuple[tuple[int, FileInfo], ...] = ()
    temporary: tuple[FileInfo, ...] = ()
    hadoop_checksums: tuple[tuple[str, FileInfo], ...] = ()
    keys: frozenset[str] = frozenset()


def list_everything(storage: Storage) -> LogInventory:
    """List the directories of the log: one LIST for each, or two where a commit is missing
    (:mod:`delta_log.log.log_segment`)."""
    found = _listed(storage)
    return _listed(storage, found.listing.latest) if found.listing.is_torn else found


def _listed(storage: Storage, latest: int | None = None) -> LogInventory:
    log = list(storage.list_from(LOG_DIRECTORY))
    sidecars = list(storage.list_from(SIDECAR_DIRECTORY))
    return inventory_of(log, sidecars, storage.list_from(STAGED_COMMITS_DIRECTORY), latest)


def inventory_of(
    log: Iterable[FileInfo],
    sidecars: Iterable[FileInfo] = (),
    staged: Iterable[FileInfo] = (),
    latest: int | None = None,
) -> LogInventory:
    """Sort the files of ``_delta_log``, ``_sidecars`` and ``_staged_commits`` by kind.

    :param latest: the last version whose files readers use.
    """
    log, sidecars, staged = list(log), list(sidecars), list(staged)
    listing = listing_of(log, latest=latest)
    # Checkpoints of later versions may be complete, too.
    complete = listing if latest is None else listing_of(log)
    used = {file.key for checkpoint in complete.checkpoints for file in checkpoint.files}
    checksums, unfinished = [], []
    for info in log:
        # Readers ignore empty checkpoints; a cleanup does not.
        file = parse_log_file(info if info.size else replace(info, size=1))
        if file is None:
            continue
        if file.kind is LogFileKind.CHECKSUM:
            checksums.append(file)
        elif (file.kind in CHECKPOINTS and file.key not in used) or info.size == 0 < file.end - file.version:
            unfinished.append(file)
    every = [*log, *sidecars, *staged]
    return LogInventory(
        listing,
        tuple(checksums),
        tuple(unfinished),
        tuple(info for info in sidecars if info.name.endswith(".parquet") and info.name[:1] != "."),
        tuple((int(match["version"]), info) for info in staged if (match := _STAGED.fullmatch(info.name))),
        tuple(info for info in every if _TEMPORARY.fullmatch(info.name)),
        tuple(
            (info.key[: -len(info.name)] + match["of"], info)
            for info in every
            if (match := _HADOOP_CHECKSUM.fullmatch(info.name))
        ),
        frozenset(info.key for info in every),
    )
