"""What recent commits name, so that a vacuum protects it."""

from __future__ import annotations

import pyarrow as pa

from delta_log.log.actions import decode_commit
from delta_log.log.log_segment import LogListing
from delta_log.storage.storage import FileInfo, Storage
from delta_maintenance.vacuum.commit_bodies import commit_bodies
from delta_maintenance.vacuum.plan.protected_files import MENTION_SCHEMA, mentions_of


class RecentCommits:
    """The files that commits name. Each commit is read once, however often it is asked about."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self._mentions: dict[FileInfo, pa.Table] = {}

    def mentions(self, log: LogListing, cutoff_ms: int, *, every: bool) -> pa.Table:
        """Read what the commits since the cutoff name. Those files were needed then, whatever their timestamps say.

        :param every: read the older commits of the log, too.
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
