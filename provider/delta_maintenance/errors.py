"""Every error of this package that a report, a log or a caller may show.

Below :class:`~delta_log.errors.DeltaLogError`, whose subclasses pass through unchanged::

    TableError                    the table or the request is at fault; repeating it cannot help
    ├── InvalidRequest
    │   ├── PlanChanged           the plan is no longer the approved one
    │   └── SparkMisconfigured    Spark cannot start, or cannot do the work, as it is configured
    ├── VacuumRefused             a deletion might lose data
    ├── RestoreRefused            files of the version to restore are gone
    ├── FeatureKept               a table feature cannot be dropped
    ├── ExpiryRefused             more rows have expired than was allowed
    ├── RepairRefused             no live file at all is there
    ├── QuarantineRefused         the log does not vouch for a quarantine
    ├── LogCleanupRefused         the table forbids the cleanup
    └── ClusterIncomplete         a machine of the cluster lacks a library
    DeltaLogError
    ├── TaskFailed                a worker or a Spark task could not rewrite its bin
    ├── CommitPostponed           other writers left no gap for a commit
    ├── EncodingFailed            the Parquet encoder cannot write the rows of a bin
    ├── NoTemporarySpace          rows that a layout sorts do not fit onto a machine's disk
    ├── SparkUnavailable          Spark cannot be reached, gives no executors, or was lost
    ├── SparkFailed               Spark gave up for a reason that this package does not know
    ├── NewerManifest             a newer release finished a bin of the run
    ├── BadManifest               a manifest contradicts its task
    ├── ManifestReplaced          another process keeps overwriting a manifest
    ├── RewriteMismatch           a new file does not hold the rows that were written
    ├── BoundsMismatch            statistics of a new file contradict its rows
    ├── SparkUnreachable          a Spark Connect server does not answer
    ├── OperationFailed           a rewrite on a Spark Connect server failed
    ├── OperationLost             a Spark Connect server has forgotten a rewrite
    ├── ConcurrentCleanup         another process changed the log while it was being cleaned
    ├── VacuumIncomplete          a vacuum deleted some files and not others
    ├── LiveFilesMissing          files of the latest version are missing after a vacuum or a restore
    └── LogCleanupIncomplete      a log cleanup deleted some files and not others

Two errors stand outside of this tree: :class:`~delta_maintenance.job_interface.ContractError`, which the standard library
has to suffice for, and the ``UsageError`` of the command line.

:func:`error_report` turns any exception into the :class:`~delta_maintenance.contract.ErrorReport` of a job report.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from delta_log.errors import DeltaLogError, InvalidRequest, TableError
from delta_log.printable import printable, printable_logger
from delta_maintenance.contract import ErrorReport
from delta_maintenance.job_interface import ContractError
from delta_maintenance.units import counted, format_bytes, format_duration

_EXAMPLES = 5
#: Characters that are shown of a reason that Spark gives.
_LONGEST_CAUSE = 500
_LOG = printable_logger(__name__)


def error_report(error: BaseException) -> ErrorReport:
    """Describe an exception for a report.

    An exception that is not ours counts as retryable: nothing says that a repetition cannot help, and repeating is safe.
    """
    if isinstance(error, TaskFailed):
        return error.report
    if isinstance(error, DeltaLogError):
        facts = {name: _plain(value) for name, value in error.facts().items() if name != "retryable"}
        return ErrorReport(type(error).__name__, str(error), error.kind, error.retryable, facts)
    report = ErrorReport(type(error).__name__, printable(str(error)) or "no message")
    if isinstance(error, ContractError):
        return replace(report, kind=error.kind, retryable=error.retryable)
    return report


def log_failure(error: BaseException) -> None:
    """Log what a report leaves out: the traceback of an error that is not ours, and at debug level the traceback of a cause."""
    if not isinstance(error, DeltaLogError):
        _LOG.error("This error was not foreseen. Its traceback:", exc_info=error)
    elif error.__cause__ is not None:
        _LOG.debug("The cause of %s:", type(error).__name__, exc_info=error.__cause__)


def refusal_report(error: BaseException) -> ErrorReport:
    """Describe an exception that a wrong request caused: repeating the request cannot help."""
    return replace(error_report(error), kind="refused", retryable=False)


def _plain(value: Any) -> Any:
    try:
        json.dumps(value)
    except (TypeError, ValueError):
        return str(value)
    return value


# -- refused: the table or the request is at fault ---------------------------------------------------------------


class PlanChanged(InvalidRequest):
    """The plan differs from the approved one; nothing was written.

    :ivar approved: digest of the approved plan; ``digest`` is the digest of the present plan.
    """

    at_fault = "another writer, or the request"

    def __init__(self, approved: str, digest: str) -> None:
        super().__init__(
            f"The plan {approved} was approved, but since then the table or the request has changed, and the plan is now "
            f"{digest}. Nothing was written. Plan again, and have that plan approved."
        )
        self.approved, self.digest = approved, digest


class VacuumRefused(TableError):
    """Deleting might lose data; nothing was deleted."""

    at_fault = "the table"


class RestoreRefused(TableError):
    """A version is not restored, since files of it were deleted; nothing was written.

    :ivar version: the version, and ``num_missing`` how many of its files are gone; ``missing`` names some.
    :ivar newest_before: the newest version before it that can be restored, and ``oldest_after`` the oldest one after it; ``None``: there is
        none.
    """

    at_fault = "a VACUUM that has run since"

    def __init__(
        self, version: int, missing: Sequence[str], newest_before: int | None, oldest_after: int | None
    ) -> None:
        whole = [f"version {found}" for found in (newest_before, oldest_after) if found is not None]
        remedy = (
            f"Restore {' or '.join(whole)}, the nearest with all files, or bring the files back"
            if whole
            else "No other version before the latest has all files. Bring the files back"
        )
        super().__init__(
            f"Version {version} cannot be restored: {len(missing)} of its files are gone, for example {missing[0]!r}, which VACUUM "
            f"deletes after delta.deletedFileRetentionDuration. {remedy} from a quarantine, from a version of the store's objects, or from a backup."
        )
        self.version, self.num_missing, self.missing = version, len(missing), tuple(missing[:_EXAMPLES])
        self.newest_before, self.oldest_after = newest_before, oldest_after


class FeatureKept(TableError):
    """A table feature cannot be dropped, or not while the table is as it is; the protocol was not changed.

    :ivar feature: the feature, and ``why`` it stays.
    """

    at_fault = "the table or the request"

    def __init__(self, feature: str, why: str, remedy: str) -> None:
        super().__init__(f"The feature {feature} is not dropped: {why}. {remedy}.")
        self.feature, self.why = feature, why


class ExpiryRefused(TableError):
    """More rows have expired than the options allow; nothing was written.

    :ivar num_rows: how many rows have expired, and ``max_rows`` how many may.
    """

    at_fault = "the request, or another writer"

    def __init__(self, num_rows: int, max_rows: int) -> None:
        super().__init__(
            f"{num_rows} rows have expired, and max_rows allows {max_rows}. Nothing was removed. Look at a dry run, and give a greater max_rows "
            "if these rows may go."
        )
        self.num_rows, self.max_rows = num_rows, max_rows


class RepairRefused(TableError):
    """No live file of the table is in the store, so nothing is taken out of the log.

    :ivar num_missing: number of the live files; ``missing`` names one.
    """

    at_fault = "the store, or a copy of the log without its files"

    def __init__(self, version: int, num_missing: int, example: str) -> None:
        super().__init__(
            f"None of the {num_missing} live files of version {version} is in the store, for example {example!r}. Most likely this is not the "
            "table's place, or its files are not visible from here, so nothing was taken out of the log. Look at the mount, the address and the "
            "rights; if the files are gone, bring them back from a backup, or delete all rows of the table."
        )
        self.num_missing, self.missing = num_missing, (example,)


class QuarantineRefused(TableError):
    """A quarantine is not restored, since no commit shows that a vacuum filled it.

    :ivar name: name of the quarantine; ``why`` says what is wrong with it.
    """

    at_fault = "the table"

    def __init__(self, name: str, why: str) -> None:
        super().__init__(
            f"The quarantine {name} is not restored: {why}. Nothing of it was changed. Look through the files below "
            f"_delta_quarantine/{name}/files/, copy by hand those that you know to be the table's to the same key below the "
            "table's root, and delete the directory."
        )
        self.name, self.why = name, why


class LogCleanupRefused(TableError):
    """The table does not allow a log cleanup any more."""

    at_fault = "the table"


class ClusterIncomplete(TableError):
    """A machine of the cluster lacks what the job needs.

    :ivar missing: what is missing, by the machine's name.
    """

    at_fault = "the machines of the cluster"

    def __init__(self, missing: Mapping[str, Sequence[str]], installed: Mapping[str, str]) -> None:
        """
        :param installed: text for people that says what each machine in `missing` has.
        """
        lines = [
            f"{where} lacks {', '.join(names)} (it has {installed[where]})"
            for where, names in missing.items()
        ]
        super().__init__(
            f"The Spark cluster cannot run this job: {'; '.join(lines)}. Nothing was written. Install "
            "them there, for example with an archive by venv-pack or conda-pack (spark.archives and "
            "spark.pyspark.python), or use the local engine."
        )
        self.missing = {where: list(names) for where, names in missing.items()}


# -- Spark -------------------------------------------------------------------------------------------------------


class SparkMisconfigured(InvalidRequest):
    """Spark cannot start, or cannot do the work, as it is configured. The same attempt fails again."""

    at_fault = "the Spark connection, or the installation of Spark"


class SparkUnavailable(DeltaLogError):
    """Spark cannot be reached, gives no executors, or was lost. It may be back when the next try begins."""

    at_fault = "Spark"
    retryable = True


class SparkFailed(DeltaLogError):
    """Spark gave up the work for a reason that this package does not know."""

    at_fault = "Spark"
    retryable = True


# -- failed: of a bin --------------------------------------------------------------------------------------------


class TaskFailed(DeltaLogError):
    """A bin could not be rewritten; stands for the error that a thread or a Spark task met.

    :ivar bin_id: id of the bin.
    """

    at_fault = "what its cause says"
    when_retryable = "as its cause"

    def __init__(self, bin_id: str, report: ErrorReport) -> None:
        """
        :param report: report of the original error.
        """
        super().__init__(report.message or "failed without saying why")
        self.bin_id = bin_id
        self.retryable = report.retryable
        self._report = report

    @property
    def is_of_its_bin(self) -> bool:
        """Whether the fault lies in the sources of the bin. Another fault, such as a missing right, meets every bin."""
        return self._report.kind == "refused"

    def naming_the_option(self) -> TaskFailed:
        """Return this failure with the option that leaves out such bins in its message."""
        message = (
            f"{self._report.message} This ends the run. To leave out the bins of such files and rewrite the others, give "
            'on_broken_source="skip" (--on-broken-source skip).'
        )
        return TaskFailed(self.bin_id, replace(self._report, message=message))

    @property
    def report(self) -> ErrorReport:
        """The original error, with the bin as one more fact."""
        return self._report.with_facts(bin_id=self.bin_id)


class EncodingFailed(DeltaLogError):
    """The Parquet encoder cannot write the rows of a bin. Nothing is wrong with the store, and another try fails likewise."""

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"Arrow's Parquet encoder cannot write these rows: {reason}. Nothing of this bin was committed, and another try would "
            "fail likewise. Leave the partition out with a predicate, or copy the row groups as they are (rewrite='copy'), and "
            "report this with the table's schema: it is a fault of this provider."
        )


class CommitPostponed(DeltaLogError):
    """Statements of other writers were in flight for as long as a run may wait; nothing was committed at this moment.

    :ivar waited_ms: how long the run waited.
    """

    at_fault = "other writers"
    retryable = True
    kind = "conflict"

    def __init__(self, waited_ms: int, num_bins: int) -> None:
        super().__init__(
            f"Statements of other writers were in flight for {format_duration(waited_ms / 1000)}, so {counted(num_bins, 'finished bin')} "
            "were not committed (after_max_wait='leave'). The next try of this run takes them over. Let it wait longer with max_wait, "
            "or commit anyway with after_max_wait='commit'."
        )
        self.waited_ms = waited_ms


class NoTemporarySpace(DeltaLogError):
    """Rows that a layout sorts fit neither into memory nor onto the disk; nothing was committed.

    :ivar directory: directory in which temporary files are made.
    """

    at_fault = "the machine's disk"

    def __init__(self, directory: str, why: str) -> None:
        super().__init__(
            f"The rows of a bin do not fit into memory, and a temporary file in {directory} cannot hold them: {why}. Nothing of "
            "the bin was committed. A layout needs as much room there as the decoded rows of its bins: set TMPDIR (on "
            "Spark: spark.local.dir) to a larger disk, or rewrite fewer partitions at a time with where."
        )
        self.directory = directory


class NewerManifest(DeltaLogError):
    """A newer release has finished a bin of this run in a way that this release does not know.

    Taking the bin over could commit other rows than it held. Rewriting it could overwrite what the newer release is about
    to commit. So the run fails; its next try may run on the newer release.

    :ivar bin_id: id of the bin; ``run_id`` is the id of the run.
    :ivar manifest_version: version that the manifest states.
    """

    at_fault = "two releases at one run"
    retryable = True

    def __init__(self, bin_id: str, run_id: str, manifest_version: object, known_version: int) -> None:
        """
        :param known_version: the newest that this release reads.
        """
        super().__init__(
            f"A newer release of airflow-provider-delta is at this run, or was: the manifest of bin {bin_id} has version "
            f"{manifest_version!r}, and this release reads up to {known_version}. Nothing was taken over, and nothing of "
            "the bin was committed. Let the newer release end the run; or begin a new run, once no job of this one is left: "
            f"_maintenance/{run_id} in the table's directory may be deleted then."
        )
        self.bin_id, self.run_id, self.manifest_version = bin_id, run_id, manifest_version


class BadManifest(DeltaLogError):
    """A manifest does not describe a finished bin, or not the one that was asked for.

    :ivar why: what is wrong with it.
    """

    at_fault = "two releases at one run"
    retryable = True

    def __init__(self, why: str) -> None:
        super().__init__(
            f"The manifest of a rewritten bin cannot be believed: {why}. Nothing of the bin was committed. Run again; if "
            "it happens again, look for workers with another release of airflow-provider-delta."
        )
        self.why = why


class ManifestReplaced(DeltaLogError):
    """Another process keeps putting its own file where the manifest of a bin belongs; nothing of the bin was committed.

    :ivar bin_id: id of the bin; ``path`` is the path of the manifest in the table's directory.
    """

    at_fault = "another program in the table's directory"
    retryable = True

    def __init__(self, bin_id: str, path: str, attempts: int) -> None:
        super().__init__(
            f"The manifest of bin {bin_id} cannot be left at {path}: a file that is not this run's was there, was "
            f"removed, and came back, {attempts} times. The bin's new files were removed, and nothing of it was committed. "
            "Find out who writes below _maintenance in the table's directory, and run again."
        )
        self.bin_id, self.path = bin_id, path


class RewriteMismatch(DeltaLogError):
    """A new file does not hold the rows that went into it; it was removed, and nothing was committed.

    :ivar bin_id: id of the bin.
    """

    at_fault = "the machine's memory or disks"
    retryable = True

    def __init__(self, bin_id: str, rows_read: int, rows_found: int) -> None:
        super().__init__(
            f"The new file of bin {bin_id} was read back and does not hold what was written to it ({rows_read} rows were "
            f"written, {rows_found} are there, and the checksums of all columns differ). It was removed and nothing of "
            "the bin was committed. Run again; if it happens again, look at the machine's memory and disks."
        )
        self.bin_id = bin_id


class BoundsMismatch(DeltaLogError):
    """Statistics of a new file would make readers skip some of its rows; it was removed, and nothing was committed.

    :ivar bin_id: id of the bin.
    :ivar path: key of the file.
    :ivar where: the column, and in which row group and page.
    :ivar why: what does not fit.
    """

    at_fault = "this package"
    retryable = True

    def __init__(self, bin_id: str, path: str, where: str, why: str) -> None:
        super().__init__(
            f"The new file {path} of bin {bin_id} was read back, and what it says of its rows is wrong ({where}: {why}): "
            "queries that skip rows by it would lose some. It was removed and nothing of the bin was committed. Run "
            "again; if it happens again, it is a bug of the release that wrote it: report it with this message."
        )
        self.bin_id, self.path, self.where, self.why = bin_id, path, where, why


# -- failed: of a Spark Connect server ---------------------------------------------------------------------------


class SparkUnreachable(DeltaLogError):
    """A Spark Connect server does not answer, or the way to it is broken.

    :ivar endpoint: host and port of the server.
    """

    at_fault = "the Spark Connect server, or the way to it"
    retryable = True

    def __init__(self, endpoint: str, why: str) -> None:
        super().__init__(
            f"The Spark Connect server {endpoint} does not answer ({why}). Is it running, and is the connection's use_ssl "
            "right? Another try goes on with the bins that are finished."
        )
        self.endpoint = endpoint


class OperationFailed(DeltaLogError):
    """A rewrite on a Spark Connect server failed."""

    at_fault = "what its cause says"
    retryable = True

    def __init__(self, text: str) -> None:
        first = text.partition("\n")[0][:_LONGEST_CAUSE]
        super().__init__(
            f"The rewrite on the Spark Connect server failed: {first or 'no reason was given'}. Nothing of the unfinished bins was "
            "committed; another try goes on with the bins that are finished."
        )
        self._text = text

    @property
    def text(self) -> str:
        """Everything that the server says, which may quote the table."""
        return self._text


class OperationLost(DeltaLogError):
    """A Spark Connect server does not have a rewrite any more: it was restarted, or no client asked for it for too long.

    :ivar endpoint: host and port of the server.
    :ivar why: the server's name for it, such as ``SESSION_NOT_FOUND``.
    """

    at_fault = "the Spark Connect server"
    retryable = True

    def __init__(self, endpoint: str, why: str) -> None:
        self._loss = f"The Spark Connect server {endpoint} has lost the rewrite ({why})"
        super().__init__(
            f"{self._loss}: it was restarted, the rewrite was cancelled, or no task followed it for too long. Another try goes on with "
            "the bins that are finished."
        )
        self.endpoint, self.why = endpoint, why

    @property
    def loss(self) -> str:
        """What happened, without the remedy."""
        return self._loss


# -- failed: of a deletion ---------------------------------------------------------------------------------------


class ConcurrentCleanup(DeltaLogError):
    """Another process changed the log while it was being cleaned; nothing more was deleted.

    :ivar key: the key of the checkpoint's file that changed.
    """

    at_fault = "another writer"
    retryable = True
    kind = "conflict"

    def __init__(self, key: str) -> None:
        super().__init__(
            f"{key} is not what it was when the cleanup was planned: another cleanup may be at work. Nothing more is deleted. "
            "Run again."
        )
        self.key = key


class VacuumIncomplete(DeltaLogError):
    """Some files were deleted, and others that should go were not. Running again goes on.

    :ivar deleted_files: how many files are gone, of ``deleted_bytes``; ``remaining_files`` are not.
    """

    at_fault = "what its cause says"
    when_retryable = "as its cause"

    def __init__(
        self, cause: Exception, deleted_files: int, deleted_bytes: int, remaining_files: int
    ) -> None:
        super().__init__(
            f"{cause} {deleted_files:,} files ({format_bytes(deleted_bytes)}) were deleted, {remaining_files:,} are left. "
            "No file that is needed was touched; running again goes on from here."
        )
        self.retryable = getattr(cause, "retryable", True)
        self.deleted_files, self.deleted_bytes = deleted_files, deleted_bytes
        self.remaining_files = remaining_files


class LiveFilesMissing(DeltaLogError):
    """Files of the latest version are missing after a vacuum or a restore.

    :ivar num_missing: how many; ``missing`` names some.
    """

    at_fault = "another program, or an earlier loss"

    def __init__(self, version: int, missing: Sequence[str]) -> None:
        super().__init__(
            f"{len(missing)} live files of version {version} are not in the store, for example {missing[0]!r}. None of "
            "them was among those that this run deleted. Restore them, or the version before."
        )
        self.num_missing, self.missing = len(missing), tuple(missing[:_EXAMPLES])


class LogCleanupIncomplete(DeltaLogError):
    """Some files of the log were deleted, and others that should go were not. Running again goes on.

    :ivar deleted_files: how many files are gone, of ``deleted_bytes``; ``remaining_files`` are not.
    """

    at_fault = "what its cause says"
    when_retryable = "as its cause"

    def __init__(
        self, cause: DeltaLogError | OSError, deleted_files: int, deleted_bytes: int, remaining_files: int
    ) -> None:
        super().__init__(
            f"{cause} {deleted_files:,} files of the log ({format_bytes(deleted_bytes)}) were deleted, {remaining_files:,} "
            "are left. Every version that had to stay can be read; running again goes on from here."
        )
        self.retryable = getattr(cause, "retryable", True)
        self.deleted_files, self.deleted_bytes = deleted_files, deleted_bytes
        self.remaining_files = remaining_files
