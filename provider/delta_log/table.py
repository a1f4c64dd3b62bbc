"""A Delta table at an address: the door to its snapshots and its history."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

from delta_log.errors import InvalidRequest, NotATable
from delta_log.log.log_segment import find_log_segment, list_log
from delta_log.runtime import Runtime
from delta_log.snapshot.commit_info import read_history
from delta_log.snapshot.snapshot import EPOCH, Snapshot
from delta_log.snapshot.time_travel import version_at
from delta_log.snapshot.version_checksum import VersionChecksum, read_version_checksum
from delta_log.storage.opening import open_storage
from delta_log.storage.schemes import family_of, same_store, scheme_of
from delta_log.storage.storage import Storage
from delta_log.tail import commit_follower
from delta_log.tail.commit_summary import CommitFilter, CommitSummary


class Table:
    """A table's address; nothing is read before something is asked.

    :param uri: a path or a URI; ``s3://``, ``gs://`` and ``abfs://`` need the extra of that name.
    :param storage_options: for the fsspec file system behind the URI.
    """

    def __init__(self, uri: str, storage_options: Mapping[str, Any] | None = None) -> None:
        self.storage: Storage = open_storage(uri, storage_options)
        self._storage_options = dict(storage_options or {})

    @property
    def uri(self) -> str:
        return self.storage.uri

    def storage_at(self, uri: str) -> Storage:
        """Another place: with this table's storage options where it is a store of the same kind, else without."""
        if same_store(uri, self.uri) and hasattr(self.storage, "beside"):
            beside: Storage = self.storage.beside(uri)  # a client is dear
            return beside
        options = {name: value for name, value in self._storage_options.items() if name != "lock"}
        same_kind = family_of(scheme_of(uri)) == family_of(scheme_of(self.uri))
        return open_storage(uri, options if same_kind else None)

    def snapshot(
        self,
        version: int | None = None,
        timestamp: datetime | None = None,
        refresh_from: Snapshot | None = None,
    ) -> Snapshot:
        """The latest version, or the one asked for.

        :param refresh_from: an older snapshot of this table: only the commits since then are read.
        :param timestamp: with a time zone; gives the newest version committed at or before it.
        :raises NotATable: there is no log at this address.
        :raises VersionNotFound: the log does not hold that version.
        :raises UnsupportedFeature: the table needs what this package does not implement.
        :raises CorruptLog: the log contradicts the protocol.
        """
        if version is not None and timestamp is not None:
            raise InvalidRequest("Give a version or a timestamp, not both.")
        if version is not None and version < 0:
            raise InvalidRequest(f"Version {version} is negative. The first version is 0.")
        if timestamp is not None:
            if timestamp.tzinfo is None:
                raise InvalidRequest(f"The timestamp {timestamp} has no time zone. Give one, such as UTC.")
            version = version_at(self.storage, (timestamp - EPOCH) // timedelta(milliseconds=1))
        if refresh_from is not None and version is None:
            return refresh_from.refreshed()
        return Snapshot(self.storage, find_log_segment(self.storage, version))

    def checksum(self, version: int) -> VersionChecksum | None:
        """What the writer of a version stated about it, by one small read; ``None`` where it stated nothing.

        :raises CorruptLog: the statement is broken. It is a statement in any case: see the module of
            :class:`~delta_log.snapshot.version_checksum.VersionChecksum`.
        """
        return read_version_checksum(self.storage, version)

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The commits, newest first: ``version``, ``timestamp`` (ms), ``operation``, ``operationParameters``,
        ``operationMetrics``, ``engineInfo``, ``txnId``, … as far as their writers said."""
        listing = list_log(self.storage)
        if listing.latest < 0:
            raise NotATable(self.uri)
        return read_history(self.storage, listing, limit)

    def tail(
        self,
        start: commit_follower.Start = "latest",
        *,
        data_change_only: bool = True,
        operations: Iterable[str] | None = None,
        partitions: Mapping[str, Any] | None = None,
        min_rows: int = 0,
        poll_interval_seconds: float | None = 5.0,
        runtime: Runtime | None = None,
    ) -> Iterator[CommitSummary]:
        """The commits from a version on as they come, ascending, each once: ``for commit in table.tail(start=5)``.

        A store that fails is asked again, less and less often.

        :param start: the first version, ``earliest`` or ``latest`` (what is committed from now on).
        :param data_change_only: leave out maintenance.
        :param operations: only these, such as ``WRITE``.
        :param partitions: only commits that touched these: raw values for each column, one or several.
        :param min_rows: give commits only when together they have so many rows.
        :param poll_interval_seconds: ``None``: end where the log ends.
        :raises LogCleaned: commits from that place on were deleted.
        :raises LogReplaced: the table was made anew.
        """
        chosen = CommitFilter.of(
            data_change_only=data_change_only, operations=operations, partitions=partitions, min_rows=min_rows
        )
        return commit_follower.follow(
            self.storage, start, chosen, poll_interval_seconds=poll_interval_seconds, runtime=runtime
        )
