"""Does what was decided: one table after the other, one operation after the other, in this process."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from delta_log.runtime import Runtime
from delta_maintenance.contract import JobSpec
from delta_maintenance.fleet.account.night import Night, NotBegun, Outcome, outcome_of
from delta_maintenance.fleet.decision.decide import FleetState, decide
from delta_maintenance.fleet.decision.document import Decision, WorkUnit
from delta_maintenance.fleet.facts import SurveyedTable, UnreadTable
from delta_maintenance.fleet.history import FleetHistory
from delta_maintenance.fleet.lease import Lease, take_lease
from delta_maintenance.fleet.pattern import matches
from delta_maintenance.fleet.policy.reading import WrittenPolicy
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.units import format_bytes


class FleetJob(Struct, frozen=True):
    """How the jobs of a fleet run.

    :param engine: program that does the work, as for a single operation.
    :param allowed_roots: lists of roots below which every table must lie, by who set them.
    """

    engine: str = "local"
    memory_limit_bytes: int = 1 << 30
    parallelism: int | None = None
    allowed_roots: Mapping[str, Sequence[str]] = {}


def approvals(
    tables: Sequence[SurveyedTable | UnreadTable], patterns: Collection[str]
) -> dict[str, tuple[str, ...]]:
    """The deletions that a person approves, by table.

    :param patterns: patterns of the addresses of tables.
    """
    return {
        table.table: ("cleanup-log", "vacuum")
        for table in tables
        if any(matches(pattern, table.table) for pattern in patterns)
    }


def begin_night(
    written: WrittenPolicy,
    tables: Sequence[SurveyedTable | UnreadTable],
    history: FleetHistory,
    approved: Mapping[str, tuple[str, ...]],
    runtime: Runtime,
) -> Night:
    """Decide what a night does; nothing has been done yet."""
    now_ms = runtime.now_ms()
    decision = decide(written, FleetState(tables, history, now_ms, approved))
    return Night(
        run_id=f"fleet-{runtime.new_id()[:8]}",
        started_ms=now_ms,
        finished_ms=now_ms,
        policy=written.text,
        source=written.source,
        tables=tuple(tables),
        history=history,
        approved=approved,
        decision=decision,
    )


class FleetRunner:
    """Works through the units of a decision.

    :ivar outcomes: what came of each operation so far.
    :ivar not_begun: units for which there was no time, or whose table another run works on.
    """

    def __init__(self, night: Night, job: FleetJob, site: JobSite, progress: ProgressReporter) -> None:
        self._night, self._job, self._site, self._progress = night, job, site, progress
        self.outcomes: list[Outcome] = []
        self.not_begun: list[NotBegun] = []

    def run(self, until_ms: int | None) -> Night:
        """Work until all is done, or until a moment after which no unit is begun.

        :return: the night with what came of it.
        """
        units = self._night.decision.units
        versions = {
            table.table: table.facts.version
            for table in self._night.tables
            if isinstance(table, SurveyedTable)
        }
        for number, unit in enumerate(self._in_time(units, until_ms), 1):
            self._progress.message(f"{number:,} of {len(units):,}: {unit.table}, {_summary(unit)}")
            self._maintain(unit, versions[unit.table])
        return replace(
            self._night,
            outcomes=tuple(self.outcomes),
            not_begun=tuple(self.not_begun),
            finished_ms=self._site.runtime.now_ms(),
        )

    def _in_time(self, units: Sequence[WorkUnit], until_ms: int | None) -> Iterator[WorkUnit]:
        """Yield units at or after their moments. Those that may begin are not held up by one that may not yet."""
        runtime, waiting = self._site.runtime, list(units)
        while waiting:
            now_ms = runtime.now_ms()
            if until_ms is not None and now_ms >= until_ms:
                self.not_begun += (
                    NotBegun(unit.table, "time", "The time of the run is over.") for unit in waiting
                )
                return
            ready = next((unit for unit in waiting if unit.not_before_ms <= now_ms), None)
            if ready is None:
                first_ms = min(unit.not_before_ms for unit in waiting)
                runtime.sleep((min(first_ms, until_ms or first_ms) - now_ms) / 1000)
                continue
            waiting.remove(ready)
            yield ready

    def _maintain(self, unit: WorkUnit, version: int) -> None:
        lease = take_lease(unit.table, self._site.storage_options, self._night.run_id, self._site.runtime)
        if not isinstance(lease, Lease):
            self.not_begun.append(NotBegun(unit.table, "lease", lease.why))
            return
        try:
            self.outcomes += maintain(
                unit, version, self._night.run_id, self._job, self._site, self._progress
            )
        finally:
            lease.release()


def maintain(
    unit: WorkUnit,
    version: int,
    run_id: str,
    job: FleetJob,
    site: JobSite,
    progress: ProgressReporter,
) -> Iterator[Outcome]:
    """Do the operations of one unit in their order, and yield what came of each. A failure ends the unit.

    :param version: version of the table when it was surveyed.
    :param run_id: id of the night; each operation has its own after it.
    """
    for work in unit.operations:
        spec = JobSpec(
            operation=work.operation,
            table=unit.table,
            run_id=f"{run_id}-{work.operation}",
            options=dict(work.options),
            engine=job.engine if work.operation in ("optimize", "purge") else "local",
            memory_limit_bytes=job.memory_limit_bytes,
            parallelism=job.parallelism,
            allowed_roots=job.allowed_roots,
            tags={"fleet": run_id},
        )
        outcome = outcome_of(unit.table, work, run_job(spec, site, progress), version)
        yield outcome
        if outcome.run.has_failed:
            return


def _summary(unit: WorkUnit) -> str:
    names = ", ".join(work.operation.upper() for work in unit.operations)
    return f"{names}, {format_bytes(unit.cost.read_bytes)}" if unit.cost.read_bytes else names


def last_moment(decision: Decision, max_seconds: float | None) -> int:
    """The moment after which no unit is begun: the end of the window, or the time that the caller gives."""
    ends = [decision.window[1]]
    if max_seconds is not None:
        ends.append(decision.decided_ms + int(max_seconds * 1000))
    return min(ends)
