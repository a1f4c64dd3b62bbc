"""The contract between a caller (an operator, the command line) and the job that does the maintenance.

A :class:`JobSpec` says *what* the caller wants, never *how*: the job opens a fresh snapshot and plans by itself, so a spec
may be minutes old when it runs. A :class:`JobReport` says what the job did. Its dictionary is both the ``--json`` output of
the command line and the XCom of the operators.

Rules of this file:

1. Specs and reports hold no secrets. Credentials and the run's key travel in the environment of the job
   (:mod:`delta_maintenance.job_interface`) or are ambient.
2. Both sides state the version of the contract. A reader accepts its own version and the one before.
3. A reader checks the type of each member. Its only error is :class:`~delta_maintenance.job_interface.ContractError`, whatever
   arrives.
4. `./dev lint --fix` publishes the types of the members as JSON Schema.
"""

from __future__ import annotations

import json
import re
import reprlib
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

from msgspec import Meta, Struct, to_builtins
from msgspec.structs import replace

from delta_maintenance.contract_json import converted, storable, whole_object
from delta_maintenance.job_interface import (
    CONTRACT_VERSION,
    EXIT_DONE,
    ContractError,
    encoded,
    exit_code_of,
    json_of_argument,
)

ENGINES = ("auto", "local", "spark")
#: Where executors take credentials of the table's storage from: the job sends them, or the machine has an identity.
EXECUTOR_CREDENTIALS = ("job", "ambient")
CHECKPOINT_POLICIES = ("classic", "v2")
CHECKPOINT_TOP_FORMATS = ("json", "parquet")
HOT_PARTITIONS = ("last", "wait")
VERIFICATIONS = ("counts", "full")
#: Which row groups a rewrite copies as bytes.
REWRITES = ("auto", "copy", "encode")
#: How OPTIMIZE divides rows between files. ``pack`` only puts files together, also in a clustered table.
LAYOUTS = ("pack", "zorder", "hilbert", "kd")
BROKEN_SOURCES = ("fail", "skip")
#: When finished bins are committed: at once, or when few statements of other writers are in flight.
COMMIT_MOMENTS = ("now", "gap")
#: What happens to them when no such moment came in time.
AFTER_MAX_WAIT = ("commit", "leave")

#: How a job ends; a report with another status is refused.
#:
#: ``committed``: the job added a version. ``written``: it wrote a checkpoint, a compaction, a checksum or manifests, which
#: adds no version. ``cleaned``: it only deleted files of the log or of a quarantine. ``restored``: it brought files back from a
#: quarantine. ``nothing_to_do``: the plan was empty. ``already_done``: an earlier try of the transaction had committed.
#: ``planned``: it was a dry run. ``begun``: it began a rewrite that goes on without it, see ``rewrite``. ``needs_spark``: ``engine="auto"`` found the work too large for this process, and wrote
#: nothing. ``failed``: see ``error``.
STATUSES = (
    "committed",
    "written",
    "cleaned",
    "restored",
    "nothing_to_do",
    "already_done",
    "planned",
    "begun",
    "needs_spark",
    "failed",
)

_RUN_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")

#: How many of the bins that were left out a report describes.
MAX_DROPPED = 20

#: How many partitions the report of a rewrite describes.
MAX_PARTITIONS = 10

#: A report does not name the columns of a wider table: an XCom is kept for every run.
MAX_COLUMNS = 500


class TransactionId(Struct, frozen=True, forbid_unknown_fields=True):
    """Identifies one piece of work, so that repeating it commits nothing (``txn`` action of the protocol).

    :param app_id: name of the application: dag, task, table and operation. A table sees few of them.
    :param version: numbers the pieces of work of the application, ascending.
    """

    app_id: str
    version: int

    @classmethod
    def parse(cls, text: str) -> TransactionId:
        """Parse ``APP_ID:VERSION``, split at the last colon."""
        app_id, _, version = text.rpartition(":")
        # Eighteen digits fit into 64 bits, as the protocol wants it.
        if not app_id or re.fullmatch(r"-?[0-9]{1,18}", version) is None:
            raise ContractError(
                f"{text[:200]!r} is not APP_ID:VERSION. The part behind the last colon must be an integer of at most 18 "
                "digits, for example nightly-optimize:20260101."
            )
        return cls(app_id, int(version))


class JobSpec(Struct, frozen=True):
    """A request for one maintenance operation on one table.

    :param operation: its name, as on the command line.
    :param table: its address; never with credentials.
    :param options: the options of the operation, named as on the command line with underscores
        (``where``, ``target_size_bytes``, …).
    :param run_id: name of the run in manifests, logs and commit tags; all tries of a run share it. Letters, digits, dots,
        hyphens and underscores.
    :param transaction: the transaction that makes the run idempotent, see :class:`TransactionId`.
    :param memory_limit_bytes: ceiling for the local engine.
    :param parallelism: threads of the local engine, or Spark tasks, at a time; ``None``: as many as the machine or cluster has.
    :param executor_credentials: ``job``: Spark's executors get the storage options of the job. ``ambient``: they get only the
        options that are no part of an identity, and use the identity of their own machines.
    :param allowed_roots: lists of roots, by who set them. The table and every other address must lie below a root of each
        list, see :mod:`delta_log.storage.table_uri`.
    :param tags: tags for ``commitInfo.tags``, which people read in the table's history.
    """

    operation: str
    table: str
    run_id: str
    options: Mapping[str, Any] = {}
    engine: Annotated[str, Meta(extra_json_schema={"enum": ENGINES})] = "auto"
    transaction: TransactionId | None = None
    memory_limit_bytes: int = 1 << 30
    parallelism: int | None = None
    executor_credentials: Annotated[str, Meta(extra_json_schema={"enum": EXECUTOR_CREDENTIALS})] = "job"
    dry_run: bool = False
    allowed_roots: Mapping[str, Annotated[Sequence[str], Meta(min_length=1)]] = {}
    tags: Mapping[str, str] = {}
    contract_version: int = CONTRACT_VERSION

    def __post_init__(self) -> None:
        if self.engine not in ENGINES:
            raise ContractError(f"engine {self.engine!r} is not one of {', '.join(ENGINES)}.")
        if self.executor_credentials not in EXECUTOR_CREDENTIALS:
            raise ContractError(
                f"executor_credentials {self.executor_credentials!r} is not one of {', '.join(EXECUTOR_CREDENTIALS)}."
            )
        run_id: object = self.run_id
        if not isinstance(run_id, str) or not _RUN_ID.fullmatch(run_id):
            raise ContractError(
                f"run_id {self.run_id!r} is not the name of a run: it names a directory in the table, and must be of 1 to "
                "128 letters, digits, dots, hyphens and underscores, the first of them no dot."
            )
        if not isinstance(self.dry_run, bool):
            raise ContractError(f"dry_run is {self.dry_run!r}; it must be true or false.")
        if not _are_roots(self.allowed_roots):
            raise ContractError(
                "allowed_roots must name, for each who set some, a list of addresses with at least one member."
            )

    @property
    def piece_of_work(self) -> tuple[str, int] | None:
        """The transaction as a commit takes it."""
        return None if self.transaction is None else (self.transaction.app_id, self.transaction.version)

    def to_json(self) -> str:
        return json.dumps(to_builtins(self), sort_keys=True)

    def to_argument(self) -> str:
        """The spec as a word for command lines that others put together, see :func:`encoded`."""
        return encoded(self.to_json())

    @classmethod
    def from_argument(cls, text: str) -> JobSpec:
        """
        :param text: text that :meth:`to_argument` made, or JSON.
        :raises ContractError: the text is not a spec that this release reads.
        """
        return cls.from_json(json_of_argument(text))

    @classmethod
    def from_json(cls, text: str) -> JobSpec:
        """
        :raises ContractError: the text is not a spec that this release reads.
        """
        raw = whole_object("job spec", text)
        _require_version("job spec", raw)
        return converted("job spec", raw, cls)


def _are_roots(value: Any) -> bool:
    """Check lists of roots. An empty list would allow nothing, so it counts as a mistake."""
    return isinstance(value, Mapping) and all(
        isinstance(roots, (list, tuple)) and roots and all(isinstance(root, str) for root in roots)
        for roots in value.values()
    )


class ErrorReport(Struct, frozen=True):
    """Why a job failed.

    :param type: name of the exception's class.
    :param kind: ``refused`` (the table or the request is at fault), ``conflict`` (another writer was faster) or ``failed``.
    :param retryable: the same request may succeed when it is repeated.
    :param facts: JSON values, named as the attributes of the exception.
    """

    type: str = ""
    message: str = ""
    kind: str = "failed"
    retryable: bool = True
    facts: Mapping[str, Any] = {}

    def to_dict(self) -> dict[str, Any]:
        """One object with the facts beside the members."""
        return {
            **self.facts,
            "type": self.type,
            "message": self.message,
            "kind": self.kind,
            "retryable": self.retryable,
        }

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> ErrorReport:
        """
        :raises ContractError: a member is not of its type.
        """
        return converted("error", _facts_apart(raw), cls)

    def with_facts(self, **facts: Any) -> ErrorReport:
        return replace(self, facts={**self.facts, **facts})

    @property
    def exit_code(self) -> int:
        """How a program ends that could not do what it was asked for."""
        return exit_code_of(self.kind)


def _facts_apart(raw: Any) -> Any:
    """An object of :meth:`ErrorReport.to_dict` with its facts in a member of their own; any other value as it is."""
    if not isinstance(raw, Mapping):
        return raw
    own = {name: raw[name] for name in ("type", "message", "kind", "retryable") if name in raw}
    return {**own, "facts": {name: value for name, value in raw.items() if name not in own}}


class SparkApplication(TypedDict, total=False):
    """A Spark application, in reports and in progress."""

    application_id: str | None
    ui_url: str | None
    version: str


class CommitWait(TypedDict, total=False):
    """How a run waited for a moment to commit."""

    waited_ms: int
    requests: int
    commits_seen: int
    moments: Sequence[Mapping[str, Any]]


class JobReport(Struct, frozen=True):
    """What a job did.

    :param operation: its name, as on the command line.
    :param table: the address that the job was given, or the name.
    :param location: the address that the catalog gives for the table, if the table was given by its name in a catalog.
    :param status: how the job ended, see :data:`STATUSES`.
    :param run_id: id that all tries of the run share.
    :param version: the version that the job's last commit created; ``None``: it committed nothing.
    :param read_version: the version that the plan was made on.
    :param engine: the engine that did the work; ``engine_reason`` says why this one.
    :param transaction: the transaction by which a repetition of the run is recognised, see :class:`TransactionId`.
    :param metrics: metrics, named as Spark names them (``numAddedFiles``, …); integers.
    :param plan: the plan of a dry run: what the job would do.
    :param dropped_bins: how many rewritten bins were left out of the commit because another writer changed their sources;
        ``dropped`` describes the first ones. Their rows are where the other writer left them.
    :param commit_wait: the wait of a run with ``commit_when="gap"``: ``waited_ms``, ``requests`` to the store meanwhile,
        ``commits_seen``, and the ``moments`` at which it committed or gave up, each with its ``decision``.
    :param remapped_bins: how many bins took over deletions that another writer made in their sources.
    :param broken_bins: how many bins were left out because a source cannot be read; ``broken`` describes the first ones.
    :param num_batches: commits with files, of all tries of the run; absent if the run has no batches.
    :param left: ``bins``, ``files`` and ``bytes`` that are left for another run.
    :param foreign: ``files``, ``bytes`` and a few ``examples`` of files outside of the table's directory, such as the files
        of a shallow clone's source. No run changes them.
    :param selection: the selection of a rewrite: the table's ``files`` and ``bytes``, the files that were ``chosen`` with their
        bins, partitions and reasons, and the files that were ``left``, by reason. It says why there was nothing to do.
    :param earlier_tries: ``bins``, ``files`` and ``bytes`` that earlier tries of the run had finished, and this one took over.
    :param table_size: what the run changed about the whole table, apart from other writers: ``files_before``,
        ``files_after``, ``bytes_before`` and ``bytes_after``.
    :param reading: what the table needs after the run, as far as the run knows it: ``version``, ``status``, ``facts``, ``findings`` and
        ``recommendations`` as in the document of health, and in ``unmeasured`` the findings that it does not look for.
    :param skipping: data skipping of a run with a layout, by statistics: for each of its columns, the parts of the rewritten files
        that a query for one value skipped ``before`` and skips ``after``; ``rangeBefore`` and ``rangeAfter`` likewise for 2 % of
        the rows.
    :param partitions: changes that a committed rewrite made in those :data:`MAX_PARTITIONS` partitions that lost the most files:
        ``partition`` (raw values), and ``files_before``, ``files_after``, ``bytes_before`` and ``bytes_after`` of the files
        that it read and wrote.
    :param requests: requests of this process to the object store during the job; absent on a disk, where Spark's machines did the work, and
        where the client of the store does not count.
    :param phases: how long the run took to ``plan_ms``, to ``rewrite_ms`` and to ``commit_ms``, and how long it waited for a moment to
        commit (``wait_ms``).
    :param columns: the table's top-level columns, of a rewrite that committed; absent if there are more than
        :data:`MAX_COLUMNS`.
    :param spark: the Spark application that did work: ``application_id``, ``ui_url`` (of its web UI, while it runs) and
        ``version``. A Spark Connect client does not know the address of the UI.
    :param started_ms: milliseconds since the epoch, by the clock of the job's machine; ``finished_ms`` likewise.
    :param rewrite: the rewrite that goes on where ``status`` is ``begun`` (a
        :class:`~delta_maintenance.engine.connect.detached_rewrite.DetachedRewrite`). Another job finishes it.
    :param error: why, where ``status`` is ``failed``.
    """

    operation: str
    table: str
    status: Annotated[str, Meta(extra_json_schema={"enum": STATUSES})]
    run_id: str = ""
    version: int | None = None
    read_version: int | None = None
    engine: str | None = None
    engine_reason: str | None = None
    transaction: TransactionId | None = None
    metrics: Mapping[str, int] = {}
    plan: Mapping[str, Any] | None = None
    dropped_bins: int = 0
    dropped: Sequence[Mapping[str, Any]] | None = None
    remapped_bins: int = 0
    commit_wait: CommitWait | None = None
    broken_bins: int = 0
    broken: Sequence[Mapping[str, Any]] | None = None
    num_batches: int | None = None
    left: Mapping[str, int] | None = None
    foreign: Mapping[str, Any] | None = None
    selection: Mapping[str, Any] | None = None
    earlier_tries: Mapping[str, int] | None = None
    table_size: Mapping[str, int] | None = None
    reading: Mapping[str, Any] | None = None
    skipping: Sequence[Mapping[str, Any]] | None = None
    partitions: Sequence[Mapping[str, Any]] | None = None
    requests: int | None = None
    phases: Mapping[str, int] | None = None
    columns: Sequence[str] | None = None
    spark: SparkApplication | None = None
    rewrite: Mapping[str, Any] | None = None
    started_ms: int | None = None
    finished_ms: int | None = None
    location: str | None = None
    error: ErrorReport | None = None
    contract_version: int = CONTRACT_VERSION

    def __post_init__(self) -> None:
        if self.status not in STATUSES:
            raise ContractError(
                f"status {reprlib.repr(self.status)} of a job report is not one of {', '.join(STATUSES)}."
            )

    def to_dict(self) -> dict[str, Any]:
        """The report as JSON values, without absent members."""
        members = {name: value for name, value in to_builtins(self).items() if value is not None}
        return members if self.error is None else {**members, "error": self.error.to_dict()}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> JobReport:
        """
        :raises ContractError: it is not a report that this release reads.
        """
        return cls.from_dict(whole_object("job report", text))

    @classmethod
    def from_dict(cls, raw: Mapping[str, Any]) -> JobReport:
        """
        :param raw: the object that :func:`~delta_maintenance.contract_json.first_object` reads.
        :raises ContractError: it is not a report that this release reads.
        """
        _require_version("job report", raw)
        members = storable(raw)
        return converted("job report", {**members, "error": _facts_apart(members.get("error"))}, cls)

    def given_as(self, address: str) -> JobReport:
        """The report to a caller who gave this address; of a name, the report tells where it led."""
        return self if address == self.table else replace(self, table=address, location=self.table)

    @property
    def exit_code(self) -> int:
        return EXIT_DONE if self.error is None else self.error.exit_code


def _require_version(what: str, raw: Mapping[str, Any]) -> None:
    version = raw.get("contract_version")
    if type(version) is not int or version not in (CONTRACT_VERSION, CONTRACT_VERSION - 1):
        raise ContractError(
            f"This {what} has contract version {reprlib.repr(version)}, but this release of airflow-provider-delta reads "
            f"{CONTRACT_VERSION - 1} and {CONTRACT_VERSION}. Install the same release on both sides."
        )
