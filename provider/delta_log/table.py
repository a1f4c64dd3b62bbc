"""A Delta table at an address, which gives its snapshots, its history and its new commits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from delta_log.catalog.lookup import locate, opening_options
from delta_log.errors import InvalidRequest, NotATable
from delta_log.log.log_segment import find_log_segment, list_log
from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import EPOCH, Snapshot
from delta_log.snapshot.time_travel import read_history, version_at
from delta_log.snapshot.version_checksum import VersionChecksum, read_version_checksum
from delta_log.storage.opening import open_storage
from delta_log.storage.schemes import family_of, same_store, scheme_of
from delta_log.storage.storage import Storage
from delta_log.storage.table_uri import one_spelling

if TYPE_CHECKING:
    import pyarrow as pa

    from delta_log.tail.commit_follower import Start
    from delta_log.tail.commit_summary import CommitSummary


class Table:
    """A table at an address. The constructor reads nothing of the table.

    :param uri: a path or a URI; ``s3://``, ``gs://`` and ``abfs://`` need the extra of that name. For a name in a catalog
        (``glue://database.table``, ``uc://catalog.schema.table``, …) the constructor asks the catalog where the table is.
    :param storage_options: options of the store behind the URI, and for the catalog
        (:mod:`delta_log.catalog.lookup`).
    :raises NotInCatalog, NotDelta, StorageError: a catalog has no such Delta table, refuses, or does not answer.
    """

    def __init__(self, uri: str, storage_options: Mapping[str, Any] | None = None) -> None:
        location = locate(uri, storage_options)
        self._storage_options = opening_options(uri, storage_options)
        self.storage: Storage = open_storage(location, self._storage_options)
        #: Whether a snapshot was made, so that there was a table.
        self.has_been_read = False

    @property
    def uri(self) -> str:
        return self.storage.uri

    def storage_at(self, uri: str) -> Storage:
        """The storage at another address, with this table's storage options if it is a store of the same kind.

        Credentials that a catalog gave out are for this table alone.
        """
        is_within = f"{one_spelling(uri)}/".startswith(f"{one_spelling(self.uri)}/")
        is_foreign = "vended" in self._storage_options and not is_within
        if same_store(uri, self.uri) and not is_foreign and hasattr(self.storage, "beside"):
            beside: Storage = self.storage.beside(uri)  # shares the client, which takes long to make
            return beside
        left_out = ("lock", "managed_by", "vended") if is_foreign else ("lock", "managed_by")
        options = {name: value for name, value in self._storage_options.items() if name not in left_out}
        same_kind = family_of(scheme_of(uri)) == family_of(scheme_of(self.uri))
        return open_storage(uri, options if same_kind else None)

    def snapshot(
        self,
        version: int | None = None,
        timestamp: datetime | None = None,
        refresh_from: Snapshot | None = None,
    ) -> Snapshot:
        """The latest version, or a given one.

        :param refresh_from: an older snapshot of this table: only the commits since then are read.
        :param timestamp: time with a time zone; gives the newest version committed at or before it.
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
        snapshot = Snapshot(self.storage, find_log_segment(self.storage, version))
        self.has_been_read = True
        return snapshot

    def checksum(self, version: int) -> VersionChecksum | None:
        """The summary of a version by its writer, from one small read; ``None``: there is none.

        It may be wrong, see :mod:`delta_log.snapshot.version_checksum`.

        :raises CorruptLog: the file is not a checksum, or contradicts itself.
        """
        return read_version_checksum(self.storage, version)

    def history(self, limit: int | None = None) -> list[dict[str, Any]]:
        """The commits, newest first: ``version``, ``timestamp`` (ms), ``operation``, ``operationParameters``,
        ``operationMetrics``, ``engineInfo``, ``txnId``, … as far as their writers gave them.

        :meth:`snapshot` finds a version by that timestamp."""
        listing = list_log(self.storage)
        if listing.latest < 0:
            raise NotATable(self.uri)
        return read_history(self.storage, listing, limit)

    def changes(self, from_version: int, to_version: int | None = None) -> pa.RecordBatchReader:
        """The rows that the commits of a range inserted, deleted and updated, streamed.

        The columns are the columns of the table at the last version (nullable), and ``_change_type`` (``insert``, ``delete``,
        ``update_preimage``, ``update_postimage``), ``_commit_version`` and ``_commit_timestamp``. Rows come in the order of the commits.
        Maintenance changes no row. Updates show as such where their writer has written change data files
        (``delta.enableChangeDataFeed``), else as deleted and inserted rows; rows that a writer moved to another file along with
        them show as deleted and inserted, too.

        :param from_version: the first version whose changes are read.
        :param to_version: the last one; ``None``: the latest version.
        :raises InvalidRequest: the range is empty, or a column changed its type within it so that no schema shows all rows.
        :raises VersionNotFound: the last version does not exist.
        :raises LogCleaned: commits of the range were deleted from the log.
        :raises ChangesGone: while reading: a file of these rows was deleted by VACUUM.
        """
        # Imported here, since most programs that open a table do not read its rows.
        from delta_log.changes.change_reader import plan_changes, read_changes

        reader = read_changes(plan_changes(self.storage, from_version, to_version), self.storage)
        self.has_been_read = True
        return reader

    def tail(
        self,
        start: Start = "latest",
        *,
        data_change_only: bool = True,
        operations: Iterable[str] | None = None,
        partitions: Mapping[str, Any] | None = None,
        min_rows: int = 0,
        poll_interval_seconds: float | None = 5.0,
        runtime: Runtime | None = None,
    ) -> Iterator[CommitSummary]:
        """Follow the log: gives each commit once, ascending, as it comes: ``for commit in table.tail(start=5)``.

        When the store fails, the request is repeated, at growing intervals.

        :param start: the first version, ``earliest``, or ``latest`` (only commits from now on).
        :param data_change_only: ``True``: leave out maintenance.
        :param operations: operations to include, such as ``WRITE``.
        :param partitions: one or several raw values for each column: give only commits that touched these partitions.
        :param min_rows: number of rows that commits must have together; they are held back until then.
        :param poll_interval_seconds: ``None``: stop at the end of the log.
        :raises LogCleaned: commits that were not read yet were deleted.
        :raises LogReplaced: the table was made anew.
        """
        # Imported here, since most programs that open a table do not follow it.
        from delta_log.tail import commit_follower
        from delta_log.tail.commit_summary import CommitFilter

        chosen = CommitFilter.of(
            data_change_only=data_change_only, operations=operations, partitions=partitions, min_rows=min_rows
        )
        return commit_follower.follow(
            self.storage, start, chosen, poll_interval_seconds=poll_interval_seconds, runtime=runtime
        )
