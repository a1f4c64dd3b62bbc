"""Reading commits that a vacuum needs to know, although a log cleanup may delete them at any moment.

Besides what recent commits name, the versions that stay readable (:mod:`delta_log.table_config.kept_versions`) protect files.
"""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from delta_log.errors import VersionNotFound
from delta_log.log.actions import decode_commit
from delta_log.log.file_names import commit_key
from delta_log.log.log_segment import LogListing, segment_of
from delta_log.snapshot.snapshot import Snapshot
from delta_log.storage.storage import FileInfo, Storage
from delta_log.table_config.kept_versions import KEEP_VERSIONS, KeptVersions
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.vacuum.plan.protected_files import MENTION_SCHEMA, live_and_vector_keys, mentions_of


def commit_bodies(
    storage: Storage, keys: list[str], so_far: str = "Nothing was deleted. Run again."
) -> Iterator[bytes]:
    """Read the content of commits.

    :param so_far: the end of the error message, which says what the vacuum has deleted so far.
    :raises VacuumRefused: a commit is gone, so what it removed is unknown.
    """
    try:
        yield from storage.read_many(keys)
    except FileNotFoundError as error:
        raise VacuumRefused(
            f"{error}: this commit was deleted from the log before it could be read, and what it removed has to be known. "
            f"{so_far}"
        ) from error


class RecentCommits:
    """The files that commits name. Each commit is read once, however often it is asked about."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._mentions: dict[FileInfo, pa.Table] = {}

    def mentions(self, log: LogListing, cutoff_ms: int, *, every: bool) -> pa.Table:
        """Read what the commits since the cutoff name. Those files were needed then, whatever their timestamps say.

        :param every: ``True``: read the older commits of the log, too.
        :raises VacuumRefused: a commit was deleted meanwhile.
        """
        files = [
            log.commits[version]
            for version in sorted(log.commits)
            if every or log.commits[version].info.modification_time_ms >= cutoff_ms
        ]
        new = [file for file in files if file.info not in self._mentions]
        for file, body in zip(new, commit_bodies(self.storage, [file.key for file in new]), strict=True):
            self._mentions[file.info] = mentions_of(
                decode_commit(body, file.key), file.info.modification_time_ms, self.storage.uri
            )
        known = (self._mentions[file.info] for file in files)
        return pa.concat_tables([MENTION_SCHEMA.empty_table(), *known])


def kept_files(storage: Storage, latest: Snapshot, log: LogListing, kept: KeptVersions) -> pa.ChunkedArray:
    """Collect the keys of the files, and of their deletion vectors, that the versions to keep need and the latest version may not.

    :param log: listing of the log that ends with the latest version, or later.
    :return: distinct keys, some of which may be live files; none if only the latest version is kept.
    :raises VacuumRefused: a version to keep cannot be opened, or a commit after it is missing.
    """
    named = _named_files(storage, log, kept.named - {latest.version})
    parts = [*named, *_last_files(storage, latest, log, kept)]
    keys = pa.chunked_array([chunk for part in parts for chunk in part.chunks], pa.string())
    return pa.chunked_array([pc.unique(keys)])


def _named_files(storage: Storage, log: LogListing, versions: frozenset[int]) -> Iterator[pa.ChunkedArray]:
    for version in sorted(versions):
        try:
            snapshot = Snapshot(storage, segment_of(log, storage, version))
        except VersionNotFound as error:
            raise VacuumRefused(
                f"Version {version} is to be kept, and the log holds versions {error.earliest} to {error.latest}. Nothing was deleted. "
                f"Take the version out of keep_versions, or out of the table property {KEEP_VERSIONS}."
            ) from None
        yield live_and_vector_keys(snapshot, storage.uri)


def _last_files(
    storage: Storage, latest: Snapshot, log: LogListing, kept: KeptVersions
) -> Iterator[pa.ChunkedArray]:
    """Yield what the newest versions need: the commits since the oldest of them name each of its files that is not live now."""
    first = max(kept.first_of_last(latest.version), log.earliest)
    commits = [commit_key(version) for version in range(first + 1, latest.version + 1)]
    for key, body in zip(commits, commit_bodies(storage, commits), strict=True):
        yield mentions_of(decode_commit(body, key), 0, storage.uri).column("key")
