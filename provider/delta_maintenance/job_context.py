"""What the ``run`` of every operation is given besides its spec."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, field

from delta_log.runtime import Runtime
from delta_log.snapshot.snapshot import Snapshot
from delta_log.table import Table
from delta_log.transaction.transaction import find_transaction
from delta_maintenance.contract import JobReport, JobSpec
from delta_maintenance.engine.engines import EngineFactory
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.rewrite.manifest.manifest_file import RunKey


class SeenTable(Struct, frozen=True):
    """The newest state of the table that a job has met.

    :param checkpointed: the version of a checkpoint that the job has written since; a snapshot does not learn of it.
    """

    snapshot: Snapshot
    checkpointed: int | None = None


class JobContext(Struct, frozen=True):
    """The surroundings of one job.

    :param engines: factory of the engines, for operations that distribute their work.
    :param run_key: the secret that the tries of one run share.
    :param started_ms: time at which the job began; plans are made for this moment.
    :param seen: what the job has met of the table so far, the newest last.
    """

    table: Table
    progress: ProgressReporter
    runtime: Runtime
    engines: EngineFactory
    run_key: RunKey
    started_ms: int
    seen: list[SeenTable] = field(default_factory=list)

    def saw(self, snapshot: Snapshot | None, checkpointed: int | None = None) -> None:
        """Note the newest state of the table, for the reading with which the job ends."""
        if snapshot is not None:
            self.seen.append(SeenTable(snapshot, checkpointed))

    def version_of_an_earlier_try(self, spec: JobSpec, snapshot: Snapshot) -> int | None:
        """Return the version that an earlier try of the same piece of work has committed."""
        if spec.piece_of_work is None:
            return None
        return find_transaction(snapshot, self.table.storage, *spec.piece_of_work)

    def report(self, spec: JobSpec, status: str, read_version: int | None, **facts: Any) -> JobReport:
        """The report of a job that ends now.

        :param read_version: the version that the plan was made on.
        :param facts: further members of the report, by name.
        """
        return JobReport(
            operation=spec.operation,
            table=spec.table,
            status=status,
            run_id=spec.run_id,
            read_version=read_version,
            started_ms=self.started_ms,
            finished_ms=self.runtime.now_ms(),
            spark=self.engines.application,
            **facts,
        )
