"""Which files make up one version of a table: a checkpoint and the commits after it.

Protocol section "Snapshot construction". :func:`find_log_segment` costs one read of ``_last_checkpoint`` and one LIST,
and a second LIST where the pointer did not help or a commit is missing. ``_last_checkpoint`` is advice: a missing, broken
or stale pointer changes the cost and never the result.

The listing of a local directory is not atomic: it may show a file and miss one that was written before it. So a commit
counts as missing only if a second listing misses it as well. From the second listing only versions up to the latest one
of the first count, since all of those existed when the second began.
"""

from __future__ import annotations

from collections.abc import Iterable

from msgspec import Struct, field

from delta_log.errors import CorruptLog, NotATable, VersionNotFound
from delta_log.log.file_names import (
    CHECKPOINTS,
    LOG_DIRECTORY,
    LogFile,
    LogFileKind,
    commit_key,
    parse_log_file,
)
from delta_log.log.last_checkpoint import read_last_checkpoint
from delta_log.storage.storage import FileInfo, Storage


class Checkpoint(Struct, frozen=True):
    """One complete checkpoint; its ``files`` are in the order of their parts."""

    version: int
    files: tuple[LogFile, ...]

    @property
    def rank(self) -> tuple[int, int, str]:
        """The greatest is preferred: the newest version; of one version, V2 before multi-part before classic."""
        order = (
            LogFileKind.CLASSIC_CHECKPOINT,
            LogFileKind.MULTI_PART_CHECKPOINT,
            LogFileKind.UUID_CHECKPOINT,
        )
        return self.version, order.index(self.files[0].kind), self.files[0].info.name


class LogSegment(Struct, frozen=True):
    """The files of one version. Guarantees:

    1. ``commits`` are exactly the versions ``checkpoint.version + 1`` (or 0) to ``version``, ascending, without a gap;
    2. ``checkpoint``, if any, is complete and not newer than ``version``;
    3. ``tail`` is what has to be replayed after the checkpoint, ascending: commits, or compactions in their place.
    """

    version: int
    checkpoint: Checkpoint | None
    commits: tuple[LogFile, ...]
    tail: tuple[LogFile, ...]
    #: The commit of ``version``; ``None``: it was cleaned, since a checkpoint holds it.
    last_commit: LogFile | None = None


class LogListing(Struct):
    """What one LIST of the log found, from version ``start`` on."""

    start: int
    commits: dict[int, LogFile] = field(default_factory=dict)
    checkpoints: list[Checkpoint] = field(default_factory=list)
    compactions: list[LogFile] = field(default_factory=list)

    @property
    def latest(self) -> int:
        return max(max(self.commits, default=-1), max((c.version for c in self.checkpoints), default=-1))

    @property
    def earliest(self) -> int:
        """The first version that can be reconstructed from here."""
        candidates = [c.version for c in self.checkpoints]
        if 0 in self.commits:
            candidates.append(0)
        return min(candidates, default=self.latest + 1)

    @property
    def is_torn(self) -> bool:
        """Whether a commit is missing between others. Commits before the first one, or up to a checkpoint, may have been
        cleaned."""
        newest, oldest = self.latest, min(self.commits, default=-1)
        if newest < 0:
            return False
        base = max((checkpoint.version for checkpoint in self.checkpoints), default=self.start - 1)
        return oldest > base + 1 or len(self.commits) != newest - oldest + 1


def list_log(storage: Storage, start: int = 0) -> LogListing:
    """List the log from a version on, which must exist. Takes one LIST, or two where a commit is missing."""
    listing = _listed(storage, start)
    return _listed(storage, start, listing.latest) if listing.is_torn else listing


def _listed(storage: Storage, start: int, latest: int | None = None) -> LogListing:
    return listing_of(storage.list_from(LOG_DIRECTORY, f"{start:020d}."), start, latest)


def listing_of(infos: Iterable[FileInfo], start: int = 0, latest: int | None = None) -> LogListing:
    """Sort out listed files: commits, compactions and complete checkpoints.

    :param latest: last version to include; files of later versions are ignored.
    """
    listing = LogListing(start)
    parts: dict[tuple[int, LogFileKind, int, str], list[LogFile]] = {}
    for info in infos:
        file = parse_log_file(info)
        if file is None or (latest is not None and file.end > latest):
            continue
        if file.kind is LogFileKind.COMMIT:
            listing.commits[file.version] = file
        elif file.kind is LogFileKind.COMPACTION:
            listing.compactions.append(file)
        elif file.kind in CHECKPOINTS:
            several = file.kind is LogFileKind.MULTI_PART_CHECKPOINT
            parts.setdefault((file.version, file.kind, file.parts, "" if several else info.name), []).append(
                file
            )
    for (version, _, count, _), files in parts.items():
        if len(files) == count:
            listing.checkpoints.append(Checkpoint(version, tuple(sorted(files, key=lambda f: f.part))))
    listing.checkpoints.sort(key=lambda checkpoint: checkpoint.rank)
    return listing


def find_log_segment(
    storage: Storage, version: int | None = None, unusable: frozenset[str] = frozenset()
) -> LogSegment:
    """The files of a version (default: the latest).

    :param unusable: keys of checkpoint files that could not be read; an older checkpoint is chosen instead.
    :raises NotATable: there is no log.
    :raises VersionNotFound: the log does not hold that version.
    :raises CorruptLog: a commit is missing in the middle.
    """
    hint = read_last_checkpoint(storage)
    start = 0 if hint is None or (version is not None and hint > version) or unusable else hint
    listing = list_log(storage, start)
    if start > 0 and not any(c.version <= _target(listing, version) for c in listing.checkpoints):
        listing = list_log(storage)
    return segment_of(listing, storage, version, unusable)


def segment_of(
    listing: LogListing, storage: Storage, version: int | None = None, unusable: frozenset[str] = frozenset()
) -> LogSegment:
    """Choose the files of a version from a listing; see :func:`find_log_segment`."""
    if listing.latest < 0:
        raise NotATable(storage.uri)
    target = _target(listing, version)
    usable = [
        checkpoint
        for checkpoint in listing.checkpoints
        if checkpoint.version <= target and not any(file.key in unusable for file in checkpoint.files)
    ]
    checkpoint = usable[-1] if usable else None
    first = checkpoint.version + 1 if checkpoint else 0
    if version is not None and (target > listing.latest or (checkpoint is None and 0 not in listing.commits)):
        raise VersionNotFound(storage.uri, f"version {version}", listing.earliest, listing.latest)
    commits = tuple(_contiguous(listing.commits, first, target, checkpoint))
    return LogSegment(
        version=target,
        checkpoint=checkpoint,
        commits=commits,
        tail=tuple(_with_compactions(commits, listing.compactions)),
        last_commit=listing.commits.get(target),
    )


def _target(listing: LogListing, version: int | None) -> int:
    return listing.latest if version is None else version


def _contiguous(
    commits: dict[int, LogFile], first: int, target: int, checkpoint: Checkpoint | None
) -> Iterable[LogFile]:
    for version in range(first, target + 1):
        if version not in commits:
            why = (
                f"this commit is missing, and no checkpoint at or before version {target} makes up for it"
                if checkpoint is None
                else f"this commit is missing between the checkpoint of version {checkpoint.version} and {target}"
            )
            raise CorruptLog(commit_key(version), f"{why}; a version must never be skipped")
        yield commits[version]


def _with_compactions(commits: tuple[LogFile, ...], compactions: list[LogFile]) -> Iterable[LogFile]:
    """Commits, replaced by the widest compactions that fit."""
    if not commits:
        return
    first, last = commits[0].version, commits[-1].version
    widest: dict[int, LogFile] = {}
    for file in sorted(compactions, key=lambda f: f.end):
        if first <= file.version and file.end <= last:
            widest[file.version] = file
    version = first
    while version <= last:
        file = widest.get(version, commits[version - first])
        yield file
        version = file.end + 1
