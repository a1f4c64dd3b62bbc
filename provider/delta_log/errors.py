"""The errors that a caller of this package may see.

::

    DeltaLogError
    ├── TableError              the table or the request is at fault; repeating it cannot help
    │   ├── NotATable           no Delta log at that address
    │   │   └── NotInCatalog    a catalog has no table of that name
    │   ├── TableDropped        the table was deleted or moved while it was read
    │   ├── NotDelta            a catalog's name stands for a view, or for a table of another format
    │   ├── VersionNotFound     the log does not hold that version (any more)
    │   ├── LogCleaned          commits that a tail has not read yet were deleted
    │   ├── LogReplaced         the log ends before a version that was read from it
    │   ├── ChangesGone         a file that a commit changed was deleted since
    │   ├── UnsupportedFeature  the table needs something that this package does not implement
    │   │   └── NeedsCatalog    a catalog manages the table, and it was opened without it
    │   ├── MaintenanceForbidden  the catalog that manages the table does not permit an operation
    │   ├── CorruptLog          a file of the table contradicts the protocol
    │   ├── InvalidMetadata     the table's schema, or what else a commit has set for the whole table, cannot be used
    │   │   └── InvalidProperty  a table property has a value that it cannot have
    │   ├── InvalidPartitionValue  a partition value of a file is no value of its column's type
    │   ├── ClockAhead          young files look old by this machine's clock
    │   └── InvalidRequest      the caller asked for something that makes no sense for this table
    │       └── OutsideAllowedRoots  the address lies outside of where tables may lie
    ├── CommitFailed            nothing was committed
    │   ├── ConcurrentDelete    another writer removed a file that this commit read
    │   ├── ConcurrentAppend    another writer changed rows, and this commit read the whole table
    │   ├── MetadataChanged     another writer changed schema or properties
    │   ├── ProtocolChanged     another writer changed the protocol
    │   ├── CommitContention    other writers took every version that was tried
    │   └── TableReplaced       the table was deleted and made anew
    ├── CheckpointMismatch      a checkpoint is not what the log replays to; of delta_log.checkpoint.writer
    └── StorageError            the store is at fault; ``__cause__`` is the original error
        ├── AccessDenied        the store answers, and refuses; repeating it cannot help, unless credentials have expired
        │   ├── NoCredentials   there is nothing to sign requests with
        │   ├── ListingDenied   reading is allowed and listing is not, so a missing file cannot be told from a forbidden one
        │   └── SymbolicLinkRefused  a link below the table's root, which is not followed
        ├── NotAFile            a directory has the name of a file
        ├── BucketNotFound      the store has no bucket or container of that name
        ├── WrongRegion         the bucket is elsewhere than the requests were sent to
        ├── CommitRefused       the catalog that manages the table refused a commit
        └── CommitUnknown       whether the commit took effect is not known yet

A message states the problem, the reason and the remedy in one printable line. The facts are attributes, see
:meth:`DeltaLogError.facts`. Both hide the credentials of an address, because a path in a log or a client library's error may
hold some. Any other exception that leaves this package is a bug of this package.
"""

from __future__ import annotations

import os
from typing import Any, ClassVar

from delta_log.printable import printable
from delta_log.redaction import redact, redacted

#: No store has longer names.
_MAX_PATH = 4096
#: Characters of a property or partition value that a message shows.
_SHOWN_VALUE = 200


def brief(text: str, limit: int = 500) -> str:
    """Shorten a text that a message quotes to its beginning and its end."""
    if len(text) <= limit:
        return text
    return f"{text[: limit - 100]} … {text[-100:]} ({len(text):,} characters)"


class DeltaLogError(Exception):
    """Base of every error of this package."""

    #: Whether the same request may succeed when it is repeated.
    retryable: bool = False
    #: ``refused`` (the table or the request is at fault), ``conflict`` (another writer won) or ``failed``.
    kind: ClassVar[str] = "failed"
    #: For people: who, or what, has to change before the request succeeds.
    at_fault: ClassVar[str] = "what the message names"
    #: For people: when `retryable` of an instance differs from `retryable` of its class.
    when_retryable: ClassVar[str] = ""

    def __init__(self, message: str = "") -> None:
        super().__init__(redact(message))

    def __str__(self) -> str:
        # Messages quote paths and values of tables, and every output, logs and tracebacks included, calls this method.
        return printable(super().__str__())

    def facts(self) -> dict[str, Any]:
        """Return the attributes of this error as JSON values."""
        return {name: redacted(value) for name, value in vars(self).items() if not name.startswith("_")}


class TableError(DeltaLogError):
    """The table or the request is at fault."""

    at_fault = "the table or the request"
    kind = "refused"


def _table_above(table_uri: str) -> str | None:
    """Return the address of the table that an address of a log, a data file or a partition directory belongs to."""
    start, slashes, path = table_uri.rstrip("/").rpartition("://")
    names = path.split("/")
    if "_delta_log" in names:
        names = names[: names.index("_delta_log")]
    elif names[-1].endswith(".parquet"):
        names.pop()
    while names and "=" in names[-1]:
        names.pop()
    above = f"{start}{slashes}{'/'.join(names)}"
    return None if above == table_uri.rstrip("/") or not any(names) else above


class NotATable(TableError):
    """There is no Delta log at an address."""

    at_fault = "the address"

    def __init__(
        self, table_uri: str, why: str = "it has no _delta_log directory with commits in it"
    ) -> None:
        above = _table_above(table_uri)
        hint = (
            "Check the address and the credentials."
            if above is None
            else f"The table is probably {above}: give its address."
        )
        super().__init__(f"{table_uri} is not a Delta table: {why}. {hint}")
        self.table_uri = table_uri


class TableDropped(TableError):
    """The table was there, and its log is gone: the table was deleted or moved meanwhile.

    :ivar table_uri: the address.
    """

    def __init__(self, table_uri: str, said: str) -> None:
        """
        :param said: the error that this stands for, which is a consequence.
        """
        super().__init__(
            f"{table_uri} was dropped or moved while this ran: it has no Delta log any more. So nothing has to be restored for this "
            "run. If the table was dropped for good, take it out of the maintenance; if it was moved, give its new address; if "
            f"it is being made anew, repeat this when it is there. (Noticed by: {brief(said, 300)})"
        )
        self.table_uri = table_uri


class NotInCatalog(NotATable):
    """A catalog has no table, or no database, of that name. There may be one later."""

    at_fault = "the name, or the choice of the catalog"

    def __init__(self, name: str, said: str) -> None:
        """
        :param said: the catalog's own words.
        """
        super(NotATable, self).__init__(
            f"{name} is not in the catalog ({said}). Check the name, and that it is the right catalog: account and region of Glue, or "
            "address of the metastore or server. Another try cannot help before that."
        )
        self.table_uri = name


class NotDelta(TableError):
    """A name in a catalog stands for something else than a Delta table with a location."""

    at_fault = "the name"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"{name} is not a Delta table: {why}. Nothing was opened. Name a Delta table, or give the table's own address."
        )
        self.name = name


class VersionNotFound(TableError):
    """The log does not hold a version any more, or not yet.

    :ivar earliest: the first version that the log can reconstruct, and ``latest`` the last one.
    """

    at_fault = "the request"

    def __init__(
        self,
        table_uri: str,
        asked: object,
        earliest: int,
        latest: int,
        times: tuple[str, str] | None = None,
    ) -> None:
        """
        :param times: times at which the first and the last version were committed; ``None``: the times do not matter.
        """
        committed = "" if times is None else f", committed from {times[0]} to {times[1]}"
        super().__init__(
            f"{table_uri} has no version for {asked}: its log can reconstruct versions {earliest} to {latest}{committed}. "
            "Older versions were cleaned from the log, newer ones do not exist yet. Ask for one of these versions"
            f"{'' if times is None else ', for a time in between, or for no time to get the latest version'}."
        )
        self.table_uri, self.earliest, self.latest = table_uri, earliest, latest


class LogCleaned(TableError):
    """Commits that a reader had not read yet were deleted from the log.

    :ivar baseline: the version that was read last.
    :ivar earliest: the first later commit that is still in the log.
    """

    at_fault = "a log retention that is shorter than a reader's pause"

    def __init__(self, table_uri: str, baseline: int, earliest: int) -> None:
        super().__init__(
            f"{table_uri}: the log was cleaned past version {baseline}; the commits {baseline + 1} to {earliest - 1} "
            f"are gone, and what they changed cannot be told any more. Go on from version {earliest} after looking at "
            "the table as a whole, and tail more often than delta.logRetentionDuration."
        )
        self.table_uri, self.baseline, self.earliest = table_uri, baseline, earliest


class ChangesGone(TableError):
    """The rows that a commit changed cannot be read any more, since a file of them was deleted.

    :ivar version: the version of the commit, and ``path`` the file, as the log has it.
    """

    at_fault = "a file retention that is shorter than a reader's pause"

    def __init__(self, table_uri: str, version: int, path: str) -> None:
        path = brief(path, _MAX_PATH)
        super().__init__(
            f"{table_uri}: what version {version} changed cannot be read any more: {path} is not there, which VACUUM deletes after "
            "delta.deletedFileRetentionDuration. Go on from a later version after looking at the table as a whole, and read changes more "
            "often than that."
        )
        self.table_uri, self.version, self.path = table_uri, version, path


class LogReplaced(TableError):
    """The log ends before a version that was read from it.

    :ivar baseline: the version that was read last.
    :ivar latest: the last version in the log; -1: the log is empty.
    """

    at_fault = "another writer"

    def __init__(self, table_uri: str, baseline: int, latest: int) -> None:
        found = f"the log ends at version {latest}" if latest >= 0 else "there is no log any more"
        cause = "was made anew or put back from a copy" if latest >= 0 else "was dropped or moved"
        super().__init__(
            f"{table_uri}: {found}, and version {baseline} had been read from it. The table {cause}, so nothing that was "
            "read before counts. Start again with the table that is at its address."
        )
        self.table_uri, self.baseline, self.latest = table_uri, baseline, latest


class UnsupportedFeature(TableError):
    """The table needs something that this package does not implement for an operation."""

    at_fault = "this release"

    def __init__(self, features: tuple[str, ...], operation: str, why: str = "") -> None:
        super().__init__(
            f"Cannot {operation} this table: it uses {', '.join(features)}, which this release does not support"
            f" for that operation{f' ({why})' if why else ''}. Nothing was written. "
            "docs/reference/supported-protocol lists what is supported; use a newer release or another engine for this table."
        )
        self.features, self.operation = features, operation


class NeedsCatalog(UnsupportedFeature):
    """A catalog decides which commits of the table count, and the table was opened without it."""

    at_fault = "the address"

    def __init__(self, table_uri: str, feature: str) -> None:
        TableError.__init__(
            self,
            f"{table_uri} has the feature {feature}: its catalog decides which commits count, and the files of its log alone cannot tell. "
            "Nothing was written. Open the table by its name, such as uc://catalog.schema.table, with the catalog in the storage options (in "
            "Airflow: in the connection).",
        )
        self.table_uri, self.features, self.operation = table_uri, (feature,), "open"


class MaintenanceForbidden(TableError):
    """The catalog that manages the table does not permit this maintenance to its clients.

    :ivar maintenance: maintenance in the words of Unity Catalog, such as ``DATA_REORGANIZATION``.
    """

    at_fault = "the catalog, or the owner of the table"

    def __init__(self, table_uri: str, maintenance: str) -> None:
        super().__init__(
            f"The catalog that manages {table_uri} does not permit {maintenance} to its clients. Nothing was written. Have the catalog permit "
            "it. If you own the table, you may decide so yourself: set owner_permits_maintenance of the catalog's option to true (in Airflow: "
            "in the extra of the connection)."
        )
        self.table_uri, self.maintenance = table_uri, maintenance


#: What to do about a statement of the log about a file: the file is not broken, and its commit cannot be changed.
OTHER_COMMIT = "The file itself is not broken: ask the writer of the commit that says so, or restore the table to a version before it."


class CorruptLog(TableError):
    """A file of the table contradicts the protocol."""

    at_fault = "the writer of the file"

    def __init__(self, path: str, why: str, remedy: str = "Restore that file, or ask its writer.") -> None:
        path, why = brief(path, _MAX_PATH), brief(why)
        super().__init__(f"{path} contradicts the Delta protocol: {why}. {remedy}")
        self.path, self.why = path, why


class InvalidMetadata(TableError):
    """Something that a commit has set for the whole table, such as its schema, cannot be used. No file is broken.

    :ivar what: name in the log of what was set; ``why`` says what is wrong with it.
    """

    at_fault = "the writer that has set it"

    def __init__(self, what: str, why: str) -> None:
        why = brief(why)
        super().__init__(
            f"The {what} of this table cannot be used: {why}. Its files are not broken, so none has to be restored: set "
            "it right with the engine that set it, or restore the table to a version before it was set."
        )
        self.what, self.why = what, why


class InvalidProperty(InvalidMetadata):
    """A table property has a value that it cannot have.

    :ivar name: name of the property; ``value`` is what the property is set to.
    """

    def __init__(self, name: str, value: str, wanted: str, example: str) -> None:
        """
        :param wanted: text for people that says which values are possible.
        :param example: one possible value.
        """
        value = brief(value, _SHOWN_VALUE)
        super(InvalidMetadata, self).__init__(
            f"The table property {name} is {value!r}, not {wanted}. Set it right: ALTER TABLE … SET TBLPROPERTIES "
            f"('{name}' = '{example}'); or return to its default: ALTER TABLE … UNSET TBLPROPERTIES ('{name}')."
        )
        self.what, self.why = "metaData.configuration", f"{name} is {value!r}, not {wanted}"
        self.name, self.value = name, value


class InvalidPartitionValue(TableError):
    """A partition value of a file is no value of its column's type, and the operation needs the value.

    :ivar column: its logical name, and ``value`` the text in the log; ``why`` says what is wrong with it.
    :ivar path: path of a file with that value, as the log has it; ``None``: the value does not come from a file.
    :ivar version: version of the table in which the file is live.
    """

    at_fault = "the writer of the file"

    def __init__(
        self,
        column: str,
        value: str,
        type_name: str,
        why: str,
        path: str | None = None,
        version: int | None = None,
    ) -> None:
        file = "A file" if path is None else f"The file {brief(path, _MAX_PATH)}"
        live = "" if version is None else f" in version {version}"
        shown = brief(value, _SHOWN_VALUE)
        super().__init__(
            f"{file} of this table has{live} the partition value {shown!r} in column {column}, which is no {type_name}: "
            f"{why}. The file itself is not broken. Have the rows of this partition written again by an engine that "
            "reads the value, or delete them by another partition column; operations that do not need this value work."
        )
        self.column, self.value, self.why = column, value, why
        self.path, self.version = path, version
        self._type_name = type_name

    def of_file(self, path: str, version: int) -> InvalidPartitionValue:
        """Return this error with a file that has the value."""
        return InvalidPartitionValue(self.column, self.value, self._type_name, self.why, path, version)


class ClockAhead(TableError):
    """This machine's clock is ahead of the store's, so that young files look old.

    :ivar ahead_ms: milliseconds by which this machine's clock is ahead of the store's clock.
    """

    at_fault = "this machine's clock"

    def __init__(self, ahead_ms: int) -> None:
        super().__init__(
            f"This machine's clock is {ahead_ms / 60_000:,.0f} minutes ahead of the store's, so files that are needed may "
            "look old enough to go. Nothing was deleted. Set the clock."
        )
        self.ahead_ms = ahead_ms


class InvalidRequest(TableError):
    """The request makes no sense for this table; the message says why."""

    at_fault = "the request"


class OutsideAllowedRoots(InvalidRequest):
    """An address lies outside of the roots that an administrator allows; nothing was opened.

    :ivar allowed_roots: the roots, and ``set_by`` where they are written down.
    """

    def __init__(
        self, address: str, set_by: str, allowed_roots: tuple[str, ...], leads_to: str | None = None
    ) -> None:
        link = f" leads to {leads_to} by a symbolic link, which" if leads_to is not None else ""
        super().__init__(
            f"{address}{link} is outside of the allowed roots of {set_by}: {', '.join(allowed_roots)}. Nothing was "
            "opened. Name a place below one of them, or have its administrator add a root to allowed_roots."
        )
        self.address, self.set_by, self.allowed_roots = address, set_by, allowed_roots


class CommitFailed(DeltaLogError):
    """Nothing was committed.

    :ivar version: the last version that was tried.
    :ivar winning_commits: the versions that other writers committed since the version that was read.
    :ivar maintained_by: the task or run of this project that won, for people; ``None``: another writer did.
    """

    at_fault = "another writer"
    retryable = True
    kind = "conflict"

    def __init__(
        self,
        message: str,
        *,
        version: int | None = None,
        winning_commits: tuple[int, ...] = (),
        maintained_by: str | None = None,
    ) -> None:
        super().__init__(message)
        self.version, self.winning_commits, self.maintained_by = version, winning_commits, maintained_by


def vanished(key: str) -> CommitFailed:
    """Return the error for a file of the log that was written and then deleted by another program."""
    return CommitFailed(
        f"{key} was written a moment ago and is not there any more. Run again; if it happens again, find out which program "
        "deletes files of the log."
    )


class ConcurrentDelete(CommitFailed):
    """Another writer removed a source file of this commit, or gave it another deletion vector."""


class ConcurrentAppend(CommitFailed):
    """Another writer changed rows, and this commit rests on all rows of the table."""


class MetadataChanged(CommitFailed):
    """Another writer changed the schema or the properties since the version that was read."""


class ProtocolChanged(CommitFailed):
    """Another writer changed the protocol since the version that was read."""


class CommitContention(CommitFailed):
    """Other writers took every version that was tried."""


class TableReplaced(CommitFailed):
    """The table that was read is no longer at its address. It was deleted, and perhaps another table was made there.

    :ivar table_uri: the address.
    :ivar read_version: the version that was read, whose commit is gone or is another one; ``why`` says which.
    :ivar left: the key of a file of this run that could not be removed from the log that is there now; usually ``None``.
    """

    when_retryable = "no, if the message names a file that is left"

    def __init__(
        self,
        table_uri: str,
        read_version: int,
        why: str,
        *,
        version: int | None = None,
        left: str | None = None,
    ) -> None:
        remedy = (
            f"{left}, which this run wrote for the table that is gone, could not be taken back from the log that is there "
            "now. Remove that file; where it is a commit that others have followed, restore the table to the version "
            "before it."
            if left is not None
            else "Nothing was committed, and nothing more is written or deleted for the table that is gone. Run again: the "
            "next run works on what is there then."
        )
        super().__init__(
            f"{table_uri} was deleted or made anew while this ran: {why}. {remedy}",
            version=version,
        )
        self.table_uri, self.read_version, self.why = table_uri, read_version, why
        self.left = left
        self.retryable = left is None


class StorageError(DeltaLogError):
    """The store refused or failed; ``path`` names the object."""

    at_fault = "the store"
    retryable = True
    when_retryable = "no, if a limit of the file system or of a process is reached"

    def __init__(self, message: str, path: str, *, is_final: bool = False) -> None:
        """
        :param is_final: ``True`` if another try fails likewise.
        """
        super().__init__(message)
        self.path = path
        if is_final:
            self.retryable = False


#: Where the credentials of a table come from, for the messages about them.
CREDENTIALS = "the table's storage options (in Airflow: the connection of delta_conn_id)"


class AccessDenied(StorageError):
    """The store answered, and refused access.

    A repetition with the same credentials is refused again.

    :param may_pass: ``True`` if the refusal may pass: the credentials have expired, and another try gets new ones.
    :ivar identity: name, never a secret, of the identity that sent the request; ``None``: not known.
    :ivar right: missing right and its resource; ``None``: not known.
    """

    at_fault = "rights or credentials"
    when_retryable = "yes, if credentials have expired or a clock is wrong"
    retryable = False
    identity: str | None = None
    right: str | None = None

    def __init__(
        self,
        message: str,
        path: str,
        *,
        may_pass: bool = False,
        identity: str | None = None,
        right: str | None = None,
    ) -> None:
        super().__init__(message, path)
        if identity is not None:
            self.identity = identity
        if right is not None:
            self.right = right
        if may_pass:
            self.retryable = True


class NoCredentials(AccessDenied):
    """There is nothing to sign requests with: neither storage options nor an identity of the machine."""

    at_fault = "the connection, or the identity of the machine"

    def __init__(self, path: str, said: str) -> None:
        """
        :param said: the client's own words.
        """
        super().__init__(
            f"{path}: there are no credentials for this store ({said}). Put them into {CREDENTIALS}, or give machine "
            f"{os.uname().nodename} an identity that may read and write the table. Another try cannot help before that.",
            path,
        )


class ListingDenied(AccessDenied):
    """Known files can be read, but listing is forbidden.

    Such a store gives one answer for a missing object and for a forbidden one.
    """

    def __init__(self, table_uri: str) -> None:
        super().__init__(
            f"{table_uri}: its files may be read but not listed, so a commit that is not there yet looks like one that is "
            "forbidden. Grant the right to list: s3:ListBucket on the bucket (S3), storage.objects.list (Google "
            "Cloud Storage).",
            table_uri,
        )
        self.table_uri = table_uri


class SymbolicLinkRefused(AccessDenied):
    """A path below the table's root leads through a symbolic link. Links there are never followed.

    :ivar link: the key of the link.
    """

    at_fault = "the table's directory"
    kind = "refused"

    def __init__(self, path: str, link: str) -> None:
        super().__init__(
            f"{path} is a symbolic link, and links below a table's root are not followed: a writer of the table could "
            "lead this process to files outside of the table. Put the files in the place of the link, or give the real "
            "directory as the table's address.",
            path,
        )
        self.link = link


class NotAFile(StorageError):
    """A directory, or something else that is no file, has the name of a file of the table."""

    retryable = False
    kind = "refused"

    def __init__(self, path: str) -> None:
        super().__init__(
            f"{path} is not a file, and the table has a file of this name, or needs the name for the next one. No program can "
            "write it while something else is there: find out what made it, and move it away. Another try cannot help before "
            "that.",
            path,
        )


class ObjectArchived(StorageError):
    """An object is in a storage class from which it has to be restored before it can be read. Rights do not help.

    :ivar storage_class: name that the store gives the storage class.
    """

    kind = "refused"
    retryable = False
    at_fault = "a lifecycle rule of the store"

    def __init__(self, uri: str, storage_class: str, *, is_being_restored: bool = False) -> None:
        now = (
            "is being restored"
            if is_being_restored
            else f"is archived ({storage_class}), and has to be restored"
        )
        super().__init__(
            f"{uri} {now} before anybody can read it. Nothing is wrong with the rights. Restore it in the store, exclude its partition "
            "with a predicate (where), or leave the bins of such files out with on_broken_source='skip'.",
            uri,
        )
        self.storage_class = storage_class


class KeyUnusable(StorageError):
    """An object is encrypted with a key that cannot be used: the identity may not, or the key is disabled or gone."""

    kind = "refused"
    retryable = False
    at_fault = "the key of the object, or rights on it"

    def __init__(self, uri: str, identity: str, said: str) -> None:
        super().__init__(
            f"{uri} is encrypted with a key that {identity} cannot use ({said}). Give that identity the right kms:Decrypt on the key, "
            "enable the key, exclude the file's partition with a predicate (where), or leave the bins of such files out with "
            "on_broken_source='skip'.",
            uri,
        )


class BucketNotFound(StorageError):
    """The store has no bucket or container of that name."""

    at_fault = "the address or the connection"
    retryable = False

    def __init__(self, path: str, bucket: str, where: str) -> None:
        """
        :param bucket: text for people that names what is missing, such as ``bucket lake``.
        :param where: the store that was asked.
        """
        super().__init__(
            f"{path}: there is no {bucket} {where}. Check the table's address, and the endpoint or account in {CREDENTIALS}. "
            "Another try cannot help before that.",
            path,
        )


class WrongRegion(StorageError):
    """The bucket is in another region, or behind another address, than the requests were sent to."""

    at_fault = "the connection"
    retryable = False

    def __init__(self, path: str, bucket: str, endpoint: str, region: str | None) -> None:
        """
        :param region: region in which the bucket is, as the store says.
        """
        place = f"to region {region}" if region else "without saying where to"
        super().__init__(
            f"{path}: {endpoint} sends requests for bucket {bucket} elsewhere, {place}. Correct region_name or endpoint_url (also its "
            f"https) in {CREDENTIALS}. Another try cannot help before that.",
            path,
        )
        self.region = region


class CommitUnknown(StorageError):
    """The store gave no usable answer to a commit, and reading the commit back did not settle its outcome.

    A caller that repeats the work with the same transaction learns the outcome: if the commit took effect, the repetition
    commits nothing.
    """


class CommitRefused(StorageError):
    """The catalog that manages the table answered a commit, and refused it. Nothing was committed."""

    at_fault = "the catalog, or the commit"
    retryable = False
    when_retryable = ""

    def __init__(self, table_uri: str, said: str) -> None:
        """
        :param said: answer of the catalog.
        """
        super().__init__(
            f"The catalog that manages {table_uri} refused a commit ({brief(said)}). Nothing was committed. Another try fails likewise, unless "
            "the catalog or the table in it changes.",
            table_uri,
        )
        self.table_uri = table_uri
