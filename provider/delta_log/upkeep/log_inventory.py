"""Everything that lies in a log's directories, each file as what it is.

A reader asks for the files of one version (:mod:`delta_log.log.log_segment`); whoever cleans up has to account for all of
them, the useless ones above all: parts of checkpoints that were never finished, sidecars that no checkpoint names,
temporary files of writers that died. A name that means nothing to us is in no list, and so is nobody's to delete.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

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
#: Ours and Hadoop's (``.00000000000000000003.json.<unique>.tmp``), and delta-rs's (``_commit_<uuid>.json.tmp``).
_TEMPORARY = re.compile(r"\..+\.tmp|_commit_[^/]+\.json\.tmp")
#: Beside each file that Hadoop's local file system wrote.
_HADOOP_CHECKSUM = re.compile(r"\.(?P<of>.+)\.crc")


@dataclass(frozen=True, slots=True)
class LogInventory:
    """The files of a log by what they are.

    :param listing: what readers make use of: commits, complete checkpoints, compactions.
    :param checksums: the versions' ``.crc``.
    :param unfinished: checkpoints and compactions that are empty, and parts of a set that is not complete.
    :param staged: commits by version; which of them count, a catalog knows.
    :param temporary: what writers leave behind that die.
    :param hadoop_checksums: checksums of Hadoop's local file system, by the key of the file that each is for.
    """

    listing: LogListing
    checksums: tuple[LogFile, ...] = ()
    unfinished: tuple[LogFile, ...] = ()
    sidecars: tuple[FileInfo, ...] = ()
    staged: tuple[tuple[int, FileInfo], ...] = ()
    temporary: tuple[FileInfo, ...] = ()
    hadoop_checksums: tuple[tuple[str, FileInfo], ...] = ()
    #: Keys of all files that were listed, unknown ones too.
    keys: frozenset[str] = frozenset()


def list_everything(storage: Storage) -> LogInventory:
    """One LIST for each of the log's directories; two where a commit is missing (:mod:`delta_log.log.log_segment`)."""
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
    """The files of ``_delta_log``, of ``_sidecars`` and of ``_staged_commits``, sorted out.

    :param latest: what readers make use of goes up to this version.
    """
    log, sidecars, staged = list(log), list(sidecars), list(staged)
    listing = listing_of(log, latest=latest)
    # Newer ones are complete as well.
    complete = listing if latest is None else listing_of(log)
    used = {file.key for checkpoint in complete.checkpoints for file in checkpoint.files}
    checksums, unfinished = [], []
    for info in log:
        # An empty checkpoint is none to a reader, and still a file.
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
