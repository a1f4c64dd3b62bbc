"""Reading commits that a vacuum needs to know, although a log cleanup may delete them at any moment."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa

from delta_log.log.actions import decode_commit
from delta_log.log.log_segment import LogListing
from delta_log.storage.storage import FileInfo, Storage
from delta_maintenance.errors import VacuumRefused
from delta_maintenance.vacuum.plan.protected_files import MENTION_SCHEMA, mentions_of


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
