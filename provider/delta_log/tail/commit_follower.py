"""Follows a log: yields the commits after a version in order, each once, and leaves none out.

Protocol section "Delta Log Entries": versions are consecutive, so the name of the next commit is known, and one request for it
tells whether there is news. The follower makes a LIST only

* at the beginning, after a failure, and every :data:`POLLS_PER_LIST` quiet polls, to find out what the next commit cannot tell:
  that the log was cleaned past its place, or ends before it;
* when there is more than one new commit, to read them together.

It refuses to skip commits that were deleted before it read them (:class:`~delta_log.errors.LogCleaned`), and to go on in another
log than before (:class:`~delta_log.errors.LogReplaced`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Literal

from msgspec import Struct, field
from msgspec.structs import replace

from delta_log.errors import AccessDenied, CorruptLog, ListingDenied, LogCleaned, LogReplaced, StorageError
from delta_log.log.actions import Action, Metadata, Protocol, decode_commit
from delta_log.log.file_names import LOG_DIRECTORY, LogFileKind, commit_key, commit_name, parse_log_file
from delta_log.log.last_checkpoint import read_last_checkpoint
from delta_log.log.log_segment import find_log_segment, list_log
from delta_log.printable import printable_logger
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.snapshot.version_checksum import read_version_checksum
from delta_log.storage.storage import FileInfo, Storage
from delta_log.table_config import features as table_features
from delta_log.table_config.schema import mapping_mode, parse_schema
from delta_log.tail.commit_summary import CommitFilter, CommitSummary, summarise

POLLS_PER_LIST = 120
#: The most commits of one poll.
MAX_COMMITS = 500
#: Each failure in a row doubles the wait, up to this.
MAX_WAIT_SECONDS = 60.0

Start = int | Literal["latest", "earliest"]


def wait_seconds(poll_interval_seconds: float, failures: int, jitter: float) -> float:
    """Return the seconds until the next poll, after some failures in a row.

    :param jitter: random number in [0, 1), so that watchers that failed together do not return together.
    """
    if failures == 0:
        return poll_interval_seconds
    longest = max(MAX_WAIT_SECONDS, poll_interval_seconds)
    return float(min(longest, poll_interval_seconds * 2 ** min(failures, 30)) * (0.75 + 0.25 * jitter))


def start_position(storage: Storage, start: Start) -> int:
    """Return the version before the first one to read.

    :param start: ``latest``: commits from now on; ``earliest``: every commit that the log still holds; a number: this version
        and later ones. A table that does not exist yet starts with version 0.
    """
    if isinstance(start, int):
        return start - 1
    if start == "earliest":
        first = _first_commit(storage)
        # A listing may miss a commit that was written just before the one it shows; a second listing shows both.
        return (first if first < 1 else _first_commit(storage)) - 1
    hint = read_last_checkpoint(storage) or 0
    latest = list_log(storage, hint).latest
    return latest if latest >= 0 or hint == 0 else list_log(storage).latest


class CommitFollower(Struct):
    """A place in a log, which :meth:`poll` moves. Not thread-safe.

    :param position: the last version that was read; -1: none.
    """

    storage: Storage
    position: int
    _sure: bool = False
    _quiet_polls: int = 0
    _names: _PartitionNames | None = None

    @classmethod
    def at_latest(cls, storage: Storage) -> CommitFollower:
        """Begin at the end of the log, which may be empty."""
        return cls(storage, start_position(storage, "latest"), True)

    def poll(self, max_commits: int = MAX_COMMITS) -> list[CommitSummary]:
        """Return the commits since the last poll, ascending and without a gap. An error leaves the place as it was.

        :param max_commits: the most commits to return.
        :raises LogCleaned: commits after the position were deleted.
        :raises LogReplaced: the log ends before the position.
        :raises ListingDenied: the permission to list is missing, so the follower cannot tell whether there is news.
        :raises UnsupportedFeature: a commit made the table need a feature that this package does not implement.
        """
        try:
            if self._sure and self._quiet_polls < POLLS_PER_LIST:
                found = self._next(max_commits)
            else:
                found = self._listed(self.position, max_commits)
        except BaseException:
            self._sure = False
            raise
        self._quiet_polls = 0 if found else self._quiet_polls + 1
        if found:
            self.position = found[-1].version
        return found

    def skip_to(self, position: int) -> None:
        """Continue after another version."""
        self.position, self._sure = position, False

    def _next(self, max_commits: int) -> list[CommitSummary]:
        """Read the next commit, and if there is a second one, all others together."""
        found: list[CommitSummary] = []
        while len(found) < min(2, max_commits):
            version = self.position + 1 + len(found)
            body = self._read(version)
            # An empty commit may still be being written. It counts when another one follows it.
            if body is None or not body.strip():
                return found
            found.append(self._summary(version, body, None))
        return found + self._listed(found[-1].version, max_commits - len(found))

    def _read(self, version: int) -> bytes | None:
        try:
            return self.storage.read(commit_key(version))
        except FileNotFoundError:
            return None
        except AccessDenied as denied:
            self._explain(denied)
            # Listing is allowed, so the commit exists, and only reading it is denied.
            raise

    def _explain(self, denied: AccessDenied) -> None:
        """Find out whether only the permission to list is missing. Stores then deny reading a file that does not exist.

        :raises ListingDenied: it is; existing files can be read.
        """
        try:
            next(self.storage.list_from(LOG_DIRECTORY, commit_name(self.position + 1)), None)
        except AccessDenied:
            if self._can_read(max(0, self.position)):
                raise ListingDenied(self.storage.uri) from denied

    def _can_read(self, version: int) -> bool:
        try:
            self.storage.read(commit_key(version))
        except (StorageError, FileNotFoundError):
            return False
        return True

    def _listed(self, position: int, max_commits: int) -> list[CommitSummary]:
        if max_commits < 1:
            return []
        try:
            files = self._files_after(position, max_commits)
        except AccessDenied as denied:
            self._explain(denied)
            raise
        self._sure, self._quiet_polls = True, 0
        found: list[CommitSummary] = []
        bodies = self.storage.read_many([info.key for info in files])
        # If a commit was cleaned between the LIST and the read, the next LIST shows that.
        with suppress(FileNotFoundError):
            for info, body in zip(files, bodies, strict=True):
                if info is files[-1] and not body.strip():
                    files = files[:-1]
                    break
                found.append(self._summary(position + 1 + len(found), body, info))
        self._sure = len(found) == len(files)
        return found

    def _files_after(self, position: int, max_commits: int) -> list[FileInfo]:
        """List the commits that follow a version without a gap."""
        files, own, beyond = self._scanned(position, max_commits)
        if beyond is not None:
            # A listing may miss a commit that was written just before the one it shows; a second listing shows both.
            files, own, beyond = self._scanned(position, max_commits)
            if beyond is not None:
                raise LogCleaned(self.storage.uri, position, beyond)
        if not files and not own and self._goes_on(position):
            files, _, _ = self._scanned(position, max_commits)
        return files

    def _scanned(self, position: int, max_commits: int) -> tuple[list[FileInfo], bool, int | None]:
        """Make one LIST.

        :returns: the commits that follow the position, whether the position's own commit is there, and, where the next version
            is missing, the first one after it.
        """
        files: list[FileInfo] = []
        own = position < 0
        for version, info in _commits_from(self.storage, max(0, position)):
            if version <= position:
                own = True
                continue
            if version != position + 1 + len(files):
                return files, own, None if files else version
            files.append(info)
            if len(files) == max_commits:
                break
        return files, own, None

    def _goes_on(self, position: int) -> bool:
        """Tell whether the next commit has just appeared; if not, the log ends at the position.

        :raises LogReplaced: the log ends before the position.
        :raises LogCleaned: commits after the position were deleted.
        """
        # The commit of the position may have been cleaned after a checkpoint of it was written.
        listing = list_log(self.storage, position)
        if listing.latest < position:
            listing = list_log(self.storage)
        if listing.latest < position:
            raise LogReplaced(self.storage.uri, position, listing.latest)
        goes_on = position + 1 in listing.commits
        if listing.latest > position and not goes_on:
            raise LogCleaned(self.storage.uri, position, listing.latest + 1)
        return goes_on

    def _summary(self, version: int, body: bytes, info: FileInfo | None) -> CommitSummary:
        key = commit_key(version)
        actions = decode_commit(body, key)
        names = self._names_for(version, actions)
        summary = summarise(version, actions, info.modification_time_ms if info else None, names)
        if summary.timestamp_ms == 0 and info is None:
            written = self.storage.head(key)
            summary = replace(summary, timestamp_ms=written.modification_time_ms if written else 0)
        return summary

    def _names_for(self, version: int, actions: Sequence[Action]) -> dict[str, str]:
        """Return logical partition column names by physical ones, as of a version.

        :raises UnsupportedFeature, NeedsCatalog: this package cannot read the table, or not by its address.
        """
        metadata = next((a.metaData for a in actions if a.metaData is not None), None)
        protocol = next((a.protocol for a in actions if a.protocol is not None), None)
        if metadata is not None and protocol is not None:
            self._names = _PartitionNames.of(protocol, metadata, self.storage)
        elif self._names is not None and (metadata is not None or protocol is not None):
            self._names = _PartitionNames.of(
                protocol or self._names.protocol, metadata or self._names.metadata, self.storage
            )
        elif self._names is None:
            with_files = any(a.add is not None or a.remove is not None for a in actions)
            if not with_files and metadata is None and protocol is None:
                return {}
            self._names = _names_at(self.storage, version)
        return self._names.logical


class _PartitionNames(Struct, frozen=True):
    protocol: Protocol
    metadata: Metadata
    logical: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, protocol: Protocol, metadata: Metadata, storage: Storage) -> _PartitionNames:
        table_features.require(protocol, table_features.Operation.READ)
        table_features.require_catalog(protocol, storage)
        if not metadata.partition_columns or mapping_mode(metadata.properties, protocol) == "none":
            return cls(protocol, metadata)
        schema = parse_schema(metadata.schemaString, mapped=True)
        columns = [schema.field(name) for name in metadata.partition_columns]
        return cls(protocol, metadata, {column.physical_name: column.name for column in columns})


def _names_at(storage: Storage, version: int) -> _PartitionNames:
    """Find the names by the version's checksum, a small file, else by the newest snapshot.

    The version itself may not be readable any more, and for renamed columns the newest names are the better ones.
    """
    checksum = None
    with suppress(CorruptLog):
        checksum = read_version_checksum(storage, version)
    if checksum is not None and checksum.protocol is not None and checksum.metadata is not None:
        return _PartitionNames.of(checksum.protocol, checksum.metadata, storage)
    snapshot = Snapshot(storage, find_log_segment(storage))
    return _PartitionNames.of(snapshot.protocol, snapshot.metadata, storage)


def _first_commit(storage: Storage) -> int:
    """Return the first version whose commit a LIST shows; 0 if there is none yet."""
    return next((version for version, _ in _commits_from(storage, 0)), 0)


def _commits_from(storage: Storage, version: int) -> Iterator[tuple[int, FileInfo]]:
    for info in storage.list_from(LOG_DIRECTORY, f"{version:020d}."):
        file = parse_log_file(info)
        if file is not None and file.kind is LogFileKind.COMMIT:
            yield file.version, info


def follow(
    storage: Storage,
    start: Start = "latest",
    commit_filter: CommitFilter | None = None,
    *,
    poll_interval_seconds: float | None = 5.0,
    runtime: Runtime | None = None,
) -> Iterator[CommitSummary]:
    """Yield the commits that pass a filter; see :meth:`delta_log.table.Table.tail`."""
    chosen, world = commit_filter or CommitFilter(), runtime or Runtime()
    tail: CommitFollower | None = None
    held: list[CommitSummary] = []
    failures = 0
    while True:
        found: list[CommitSummary] = []
        try:
            if tail is None:
                tail = CommitFollower(storage, start_position(storage, start))
            found = tail.poll()
            failures = 0
        except StorageError as error:
            if isinstance(error, AccessDenied) or poll_interval_seconds is None:
                raise
            failures += 1
            if failures == 1:
                printable_logger(__name__).warning("%s Trying again, less and less often.", error)
        held += filter(chosen.passes, found)
        if chosen.is_enough(held):
            yield from held
            held = []
        if found:
            continue
        if poll_interval_seconds is None:
            return
        world.sleep(wait_seconds(poll_interval_seconds, failures, world.jitter()))
