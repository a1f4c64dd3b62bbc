"""Does what was decided: one table after the other, one operation after the other, in this process."""

from __future__ import annotations

import socket
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any

from msgspec import Struct

from delta_log.errors import InvalidRequest
from delta_log.runtime import Runtime
from delta_log.table import Table
from delta_maintenance.contract import JobSpec
from delta_maintenance.fleet.account.night import Night, NotBegun, Outcome, UnitResult, outcome_of
from delta_maintenance.fleet.account.report import FleetReport, report_of
from delta_maintenance.fleet.account.store import FleetStore
from delta_maintenance.fleet.decision.decide import FleetState, decide
from delta_maintenance.fleet.decision.document import Decision, WorkUnit
from delta_maintenance.fleet.discovery import discover
from delta_maintenance.fleet.facts import SurveyedTable, UnreadTable
from delta_maintenance.fleet.history import FleetHistory
from delta_maintenance.fleet.lease import Held, lease_of, take_lease
from delta_maintenance.fleet.pattern import matches
from delta_maintenance.fleet.policy.reading import WrittenPolicy
from delta_maintenance.fleet.policy.settings import settings_of
from delta_maintenance.fleet.survey import survey
from delta_maintenance.fleet.survey_memory import SurveyMemory, SurveyMemoryFile
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.health.reading import read_health
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.units import format_bytes

_MEMORY = "survey"


def surveyed_tables(
    written: WrittenPolicy,
    memory: SurveyMemory,
    storage_options: Mapping[str, Any],
    runtime: Runtime,
    progress: ProgressReporter,
) -> tuple[tuple[SurveyedTable | UnreadTable, ...], SurveyMemory]:
    """Find the tables of a policy and read their facts.

    :param memory: what the last survey knew.
    :return: the tables, and the places that could not be read; and the memory for the next survey.
    :raises InvalidRequest: the policy includes no table, or an include is no address.
    """
    wanted = written.policy.tables
    if not wanted.include:
        raise InvalidRequest(
            f"{written.source}: the policy includes no table. Add tables, such as tables: {{include: ['s3://lake/**']}}."
        )
    found = discover(wanted.include, wanted.exclude, storage_options, runtime=runtime)
    for pattern in found.without_tables:
        progress.message(f"{pattern} has no table")

    def options_of(table: str, properties: Mapping[str, str]) -> HealthOptions:
        return settings_of(written, table, properties).reading_options

    read = survey(found.tables, options_of, memory, storage_options, runtime=runtime, progress=progress)
    return (*read.tables, *read.unread, *found.unlisted), read.memory


def survey_one(
    written: WrittenPolicy, table: str, storage_options: Mapping[str, Any], runtime: Runtime
) -> SurveyedTable:
    """Read the facts of one table.

    :raises DeltaLogError: it cannot be read.
    """
    opened = Table(table, storage_options)
    snapshot = opened.snapshot()
    options = settings_of(written, table, snapshot.properties).reading_options
    facts = read_health(opened, options, runtime.now_ms())
    return SurveyedTable(
        table, facts.measured_ms, facts, snapshot.properties, tuple(snapshot.partition_columns)
    )


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
    """Works through the units of a night, one after the other."""

    def __init__(
        self, night: Night, store: FleetStore, job: FleetJob, site: JobSite, progress: ProgressReporter
    ) -> None:
        self._night, self._store, self._job, self._site, self._progress = night, store, job, site, progress

    def run(self, until_ms: int | None) -> None:
        """Work until all is done, or until a moment after which no unit is begun. The store has the result of each unit at once."""
        units = self._night.decision.units
        for done, (number, in_time) in enumerate(self._in_time(units, until_ms), 1):
            unit = units[number]
            if not in_time:
                late = NotBegun(unit.table, "time", "The time of the run is over.")
                self._store.add(self._night, number, UnitResult(not_begun=late))
                continue
            self._progress.message(f"{done:,} of {len(units):,}: {unit.table}, {_summary(unit)}")
            maintain(self._night, number, self._store, self._job, self._site, self._progress)

    def _in_time(self, units: Sequence[WorkUnit], until_ms: int | None) -> Iterator[tuple[int, bool]]:
        """Yield the numbers of units at or after their moments, and whether there is time for them. Those that may begin are not
        held up by one that may not yet."""
        runtime, waiting = self._site.runtime, list(range(len(units)))
        while waiting:
            now_ms = runtime.now_ms()
            if until_ms is not None and now_ms >= until_ms:
                yield from ((number, False) for number in waiting)
                return
            ready = next((number for number in waiting if units[number].not_before_ms <= now_ms), None)
            if ready is None:
                first_ms = min(units[number].not_before_ms for number in waiting)
                runtime.sleep((min(first_ms, until_ms or first_ms) - now_ms) / 1000)
                continue
            waiting.remove(ready)
            yield ready, True


def maintain(
    night: Night, number: int, store: FleetStore, job: FleetJob, site: JobSite, progress: ProgressReporter
) -> UnitResult:
    """Do one unit of a night under a lease, and write what came of it to the store.

    :param number: number of the unit within the decision.
    """
    unit = night.decision.units[number]
    lease = take_lease(unit.table, site.storage_options, night.run_id, site.runtime)
    if isinstance(lease, Held):
        result = UnitResult(not_begun=NotBegun(unit.table, "lease", lease.why))
        store.add(night, number, result)
        return result
    outcomes: list[Outcome] = []
    with lease:
        try:
            outcomes += _done(unit, night, job, site, progress)
        finally:
            result = UnitResult(tuple(outcomes))
            store.add(night, number, result)
    return result


def _done(
    unit: WorkUnit, night: Night, job: FleetJob, site: JobSite, progress: ProgressReporter
) -> Iterator[Outcome]:
    """Do the operations of one unit in their order, and yield what came of each. A failure ends the unit."""
    for work in unit.operations:
        spec = JobSpec(
            operation=work.operation,
            table=unit.table,
            run_id=f"{night.run_id}-{work.operation}",
            options=dict(work.options),
            engine=job.engine if work.operation in ("optimize", "purge") else "local",
            memory_limit_bytes=job.memory_limit_bytes,
            parallelism=job.parallelism,
            allowed_roots=job.allowed_roots,
            tags={"fleet": night.run_id},
        )
        outcome = outcome_of(unit.table, work, run_job(spec, site, progress), unit.version)
        yield outcome
        if outcome.run.has_failed:
            return


def _summary(unit: WorkUnit) -> str:
    names = ", ".join(work.operation.upper() for work in unit.operations)
    return f"{names}, {format_bytes(unit.cost.read_bytes)}" if unit.cost.read_bytes else names


class FleetNight:
    """A whole night in this process.

    :param state: path or URI of the directory in which the fleet keeps its memory.
    :param site: where the jobs run, with the options of the stores and the clock.
    """

    def __init__(self, written: WrittenPolicy, state: str, site: JobSite, progress: ProgressReporter) -> None:
        self._written, self._site, self._progress = written, site, progress
        self._store = FleetStore.open(state, site.storage_options)
        self._memory_file = SurveyMemoryFile(f"{self._store.storage.uri}/{_MEMORY}", site.storage_options)

    def plan(self, approved: Collection[str] = ()) -> FleetReport:
        """Decide, and write nothing: neither to a table nor to the memory.

        :param approved: patterns of the tables whose deletions a person approves.
        """
        night, _ = self._begin(approved)
        return report_of(night, is_planned=True)

    def run(self, approved: Collection[str], job: FleetJob, max_seconds: float | None = None) -> FleetReport:
        """Decide and maintain. What was done is kept also where the run is interrupted.

        :param max_seconds: time after which no table is begun.
        :raises InvalidRequest: another run of the fleet is at work.
        """
        runtime = self._site.runtime
        lease = lease_of(self._store.storage, f"of {socket.gethostname()}", runtime)
        if isinstance(lease, Held):
            raise InvalidRequest(
                f"The fleet whose memory is {self._store.storage.uri} is being maintained. {lease.why}"
            )
        with lease:
            return self._run(approved, job, max_seconds)

    def _run(self, approved: Collection[str], job: FleetJob, max_seconds: float | None) -> FleetReport:
        self._finish_killed()
        night, memory = self._begin(approved)
        self._store.begin(night)
        try:
            runner = FleetRunner(night, self._store, job, self._site, self._progress)
            runner.run(last_moment(night.decision, max_seconds))
        finally:
            night = self._store.finish(night, self._site.runtime.now_ms())
            self._memory_file.write(memory.without({outcome.table for outcome in night.outcomes}))
        return report_of(night)

    def _finish_killed(self) -> None:
        """Account for what a night has done whose run was killed."""
        killed = self._store.unfinished_night()
        if killed is not None:
            self._progress.message(
                f"the night {killed.run_id} was not finished; what it has done is accounted for"
            )
            self._store.finish(killed, killed.started_ms)

    def _begin(self, approved: Collection[str]) -> tuple[Night, SurveyMemory]:
        site = self._site
        history, memory = self._store.history(), self._memory_file.read(self._progress)
        tables, memory = surveyed_tables(
            self._written, memory, site.storage_options, site.runtime, self._progress
        )
        night = begin_night(self._written, tables, history, approvals(tables, approved), site.runtime)
        return night, memory


def last_moment(decision: Decision, max_seconds: float | None) -> int:
    """The moment after which no unit is begun: the end of the window, or the time that the caller gives."""
    ends = [decision.window[1]]
    if max_seconds is not None:
        ends.append(decision.decided_ms + int(max_seconds * 1000))
    return min(ends)
