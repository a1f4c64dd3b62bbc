"""The contract between whoever wants maintenance done and the job that does it.

A :class:`JobSpec` says *what is wanted*, never *how*: the job opens a fresh snapshot and plans by itself, so that
a spec may be minutes old when it is run. A :class:`JobReport` says what came of it; its dictionary form is at once
the ``--json`` output of the command line and the XCom of the operators.

Rules of this file:

1. Standard library only, since a DAG file and a Spark driver both import it.
2. No secret is ever part of a spec or a report: credentials travel in the environment of the job
   (:data:`STORAGE_OPTIONS_VARIABLE`) or are ambient.
3. Both ends state :data:`CONTRACT_VERSION`; a reader accepts its own version and the one before.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any

CONTRACT_VERSION = 1

#: Environment variable with the storage options (a JSON object) of the table.
STORAGE_OPTIONS_VARIABLE = "DELTA_MAINTENANCE_STORAGE_OPTIONS"

#: A job's lines on standard output that are meant for a program: the prefix, then one JSON object.
PROGRESS_PREFIX = "DELTA_PROGRESS "
REPORT_PREFIX = "DELTA_REPORT "

OPERATIONS = (
    "optimize",
    "purge",
    "checkpoint",
    "vacuum",
    "restore-quarantine",
    "cleanup-log",
    "compact-log",
)
ENGINES = ("auto", "local", "spark")
CHECKPOINT_POLICIES = ("classic", "v2")
CHECKPOINT_TOP_FORMATS = ("json", "parquet")
HOT_PARTITIONS = ("last", "wait")
VERIFICATIONS = ("counts", "full")
BROKEN_SOURCES = ("fail", "skip")

#: ``committed``: a version was added. ``written``: what adds no version was written (a checkpoint). ``cleaned``: nothing was committed, and files of the log or of a quarantine were deleted. ``restored``: files are back from a quarantine. ``nothing_to_do``: the plan was empty. ``already_done``: an earlier try of the
#: same transaction had committed. ``planned``: a dry run. ``needs_spark``: ``engine="auto"`` found the work too
#: large for this process; nothing was written. ``failed``: see ``error``.
STATUSES = (
    "committed",
    "written",
    "cleaned",
    "restored",
    "nothing_to_do",
    "already_done",
    "planned",
    "needs_spark",
    "failed",
)

#: So many of the bins that were left out are told one by one.
MAX_DROPPED = 20

EXIT_DONE, EXIT_FAILED, EXIT_REFUSED, EXIT_CONFLICT = 0, 1, 2, 3


class ContractError(ValueError):
    """A spec or report that this release cannot read; the message says which side to upgrade."""


@dataclass(frozen=True)
class TransactionId:
    """Names one piece of work for ever, so that its repetition commits nothing (`txn` action of the protocol).

    :param app_id: who: dag, task, table and operation; few over a table's life.
    :param version: which piece of work: an integer that grows.
    """

    app_id: str
    version: int

    @classmethod
    def parse(cls, text: str) -> TransactionId:
        """``APP_ID:VERSION``, split at the last colon."""
        app_id, _, version = text.rpartition(":")
        # Eighteen digits fit into 64 bits, as the protocol wants it.
        if not app_id or re.fullmatch(r"-?[0-9]{1,18}", version) is None:
            raise ContractError(
                f"{text[:200]!r} is not APP_ID:VERSION. The part behind the last colon must be an integer of at most 18 "
                "digits, for example nightly-optimize:20260101."
            )
        return cls(app_id, int(version))


@dataclass(frozen=True)
class JobSpec:
    """One maintenance operation that somebody wants on one table.

    :param options: the options of the operation, named as on the command line with underscores
        (``where``, ``target_size_bytes``, …).
    :param run_id: names this run in manifests, logs and commit tags; the same for every try of one run.
    :param transaction: makes the run idempotent, see :class:`TransactionId`.
    :param memory_limit_bytes: ceiling for the local engine.
    :param parallelism: worker processes or Spark tasks at a time; ``None``: what the machine or cluster has.
    :param tags: put into ``commitInfo.tags``, for people who read the table's history.
    """

    operation: str
    table: str
    run_id: str
    options: Mapping[str, Any] = field(default_factory=dict)
    engine: str = "auto"
    transaction: TransactionId | None = None
    memory_limit_bytes: int = 1 << 30
    parallelism: int | None = None
    dry_run: bool = False
    tags: Mapping[str, str] = field(default_factory=dict)
    contract_version: int = CONTRACT_VERSION

    def __post_init__(self) -> None:
        if self.operation not in OPERATIONS:
            raise ContractError(f"operation {self.operation!r} is not one of {', '.join(OPERATIONS)}.")
        if self.engine not in ENGINES:
            raise ContractError(f"engine {self.engine!r} is not one of {', '.join(ENGINES)}.")

    def to_json(self) -> str:
        return json.dumps(asdict(self), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> JobSpec:
        raw = _parse("job spec", text)
        transaction = raw.pop("transaction", None)
        return cls(**raw, transaction=TransactionId(**transaction) if transaction else None)


@dataclass(frozen=True)
class JobReport:
    """What came of a job.

    :param version: the version that the job's last commit created; ``None`` where it committed nothing.
    :param read_version: the version that was planned on.
    :param engine: the engine that did the work, and ``engine_reason`` why that one.
    :param metrics: named as Spark names them (``numAddedFiles``, …); integers.
    :param plan: for a dry run what would be done.
    :param dropped_bins: bins that were rewritten and left out of the commit, since somebody else changed their sources
        meanwhile; ``dropped`` tells the first of them. Their rows are where the other writer left them.
    :param remapped_bins: bins of whose sources somebody else deleted rows meanwhile, and that took that over.
    :param broken_bins: bins that were left out since a source of theirs cannot be read; ``broken`` tells the first.
    :param num_batches: commits with files that the run has made, all its tries together; absent without batches.
    :param left: ``bins``, ``files`` and ``bytes`` that a budget has left for another run.
    :param foreign: ``files``, ``bytes`` and a few ``examples`` of files that lie outside of the table's directory, as those
        of a shallow clone's source do, and stay as they are.
    :param error: ``{"type", "message", "retryable", …facts}`` where ``status`` is ``failed``.
    """

    operation: str
    table: str
    status: str
    run_id: str = ""
    version: int | None = None
    read_version: int | None = None
    engine: str | None = None
    engine_reason: str | None = None
    transaction: TransactionId | None = None
    metrics: Mapping[str, Any] = field(default_factory=dict)
    plan: Mapping[str, Any] | None = None
    dropped_bins: int = 0
    dropped: Sequence[Mapping[str, Any]] | None = None
    remapped_bins: int = 0
    broken_bins: int = 0
    broken: Sequence[Mapping[str, Any]] | None = None
    num_batches: int | None = None
    left: Mapping[str, int] | None = None
    foreign: Mapping[str, Any] | None = None
    started_ms: int | None = None
    finished_ms: int | None = None
    error: Mapping[str, Any] | None = None
    contract_version: int = CONTRACT_VERSION

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values, absent ones left out."""
        return {key: value for key, value in asdict(self).items() if value is not None}

    def to_json(self) -> str:
        return json.dumps(self.to_dict(), sort_keys=True)

    @classmethod
    def from_json(cls, text: str) -> JobReport:
        raw = _parse("job report", text)
        transaction = raw.pop("transaction", None)
        return cls(**raw, transaction=TransactionId(**transaction) if transaction else None)

    @property
    def exit_code(self) -> int:
        if self.error is None:
            return EXIT_DONE
        return {"refused": EXIT_REFUSED, "conflict": EXIT_CONFLICT}.get(
            self.error.get("kind", ""), EXIT_FAILED
        )


def _parse(what: str, text: str) -> dict[str, Any]:
    try:
        raw = json.loads(text)
    except ValueError as error:
        raise ContractError(f"This {what} is not JSON: {error}. Was it cut short?") from error
    if not isinstance(raw, dict):
        raise ContractError(f"This {what} is not a JSON object.")
    version = raw.get("contract_version")
    if version not in (CONTRACT_VERSION, CONTRACT_VERSION - 1):
        raise ContractError(
            f"This {what} has contract version {version!r}, but this release of airflow-provider-delta reads "
            f"{CONTRACT_VERSION - 1} and {CONTRACT_VERSION}. Install the same release on both sides."
        )
    known = {f.name for f in fields(JobSpec if what == "job spec" else JobReport)}
    return {key: value for key, value in raw.items() if key in known}
