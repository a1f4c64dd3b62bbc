"""Does what was decided: one table after the other, one operation after the other, in this process."""

from __future__ import annotations

import socket
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import nullcontext
from typing import Any

from msgspec import Struct

from delta_log.errors import DeltaLogError, InvalidRequest
from delta_log.runtime import Runtime
from delta_log.storage.table_uri import require_within
from delta_log.table import Table
from delta_log.upkeep.log_inventory import list_everything
from delta_maintenance.contract import JobReport, JobSpec, TransactionId
from delta_maintenance.errors import error_report
from delta_maintenance.fleet.account.approvals import ApprovalFolder, not_used_up
from delta_maintenance.fleet.account.night import Night, NotBegun, Outcome, UnitResult, outcome_of
from delta_maintenance.fleet.account.report import FleetReport, report_of
from delta_maintenance.fleet.account.store import FleetStore
from delta_maintenance.fleet.decision.decide import FleetState, decide
from delta_maintenance.fleet.decision.document import Decision, Work, WorkUnit
from delta_maintenance.fleet.decision.holds import Hold
from delta_maintenance.fleet.discovery import FoundTable, discover
from delta_maintenance.fleet.facts import SurveyedTable, UnreadTable
from delta_maintenance.fleet.history import FleetHistory
from delta_maintenance.fleet.lease import Held, Lease, lease_of, take_lease
from delta_maintenance.fleet.pattern import matches
from delta_maintenance.fleet.policy.reading import WrittenPolicy
from delta_maintenance.fleet.policy.settings import settings_of
from delta_maintenance.fleet.survey import survey
from delta_maintenance.fleet.survey_memory import SurveyMemory, SurveyMemoryFile
from delta_maintenance.health.options import HealthOptions
from delta_maintenance.health.reading import read_facts
from delta_maintenance.job import JobSite, run_job
from delta_maintenance.progress import ProgressReporter
from delta_maintenance.units import format_bytes

_MEMORY = "survey"
#: Operations that rewrite data files.
REWRITES = ("optimize", "purge")
#: Does one job. Only an exception that ends the process is raised; every other becomes part of the report.
RunJob = Callable[[JobSpec, JobSite, ProgressReporter], JobReport]


def surveyed_tables(
    written: WrittenPolicy,
    memory: SurveyMemory,
    storage_options: Mapping[str, Any],
    runtime: Runtime,
    progress: ProgressReporter,
    allowed_roots: Mapping[str, Sequence[str]] | None = None,
) -> tuple[tuple[SurveyedTable | UnreadTable, ...], SurveyMemory]:
    """Find the tables of a policy and read their facts.

    :param memory: what the last survey knew.
    :param allowed_roots: lists of roots, by who set them: a table that is not below a root of each list is not opened, and counts as one
        that cannot be read.
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

    allowed, outside = _fenced(found.tables, allowed_roots or {}, runtime.now_ms())
    read = survey(allowed, options_of, memory, storage_options, runtime=runtime, progress=progress)
    return (*read.tables, *read.unread, *outside, *found.unlisted), read.memory


def _fenced(
    tables: Sequence[FoundTable], allowed_roots: Mapping[str, Sequence[str]], now_ms: int
) -> tuple[list[FoundTable], list[UnreadTable]]:
    """Part tables that lie below the allowed roots from the others."""
    allowed: list[FoundTable] = []
    outside: list[UnreadTable] = []
    for table in tables:
        try:
            require_within(table.location, allowed_roots)
        except InvalidRequest as error:
            outside.append(UnreadTable(table.table, now_ms, error_report(error)))
        else:
            allowed.append(table)
    return allowed, outside


def survey_one(
    written: WrittenPolicy, table: str, storage_options: Mapping[str, Any], runtime: Runtime
) -> SurveyedTable:
    """Read the facts of one table.

    :raises DeltaLogError: it cannot be read.
    """
    opened = Table(table, storage_options)
    snapshot = opened.snapshot()
    options = settings_of(written, table, snapshot.properties).reading_options
    facts = read_facts(opened.storage, snapshot, list_everything(opened.storage), options, runtime.now_ms())
    return SurveyedTable(
        table, facts.measured_ms, facts, snapshot.properties, tuple(snapshot.partition_columns)
    )


class FleetJob(Struct, frozen=True):
    """How the jobs of a fleet run.

    :param spark_above_bytes: a rewrite that reads more runs on Spark; ``None``: none does.
    :param executor_credentials: credentials of Spark's executors, as in a :class:`~delta_maintenance.contract.JobSpec`.
    :param allowed_roots: lists of roots below which every table must lie, by who set them.
    """

    memory_limit_bytes: int = 1 << 30
    parallelism: int | None = None
    spark_above_bytes: int | None = None
    executor_credentials: str = "job"
    allowed_roots: Mapping[str, Sequence[str]] = {}

    def engine_of(self, work: Work) -> str:
        """The engine that does an operation."""
        above = self.spark_above_bytes
        is_large = work.operation in REWRITES and above is not None and work.cost.read_bytes > above
        return "spark" if is_large else "local"


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
    holds: tuple[Hold, ...] = (),
) -> Night:
    """Decide what a night does; nothing has been done yet."""
    now_ms = runtime.now_ms()
    decision = decide(written, FleetState(tables, history, now_ms, approved, holds))
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
        holds=holds,
    )


class FleetRunner:
    """Works through units of a night, one after the other.

    :param run: function that does each job.
    :param goes_on: id of a job that was begun earlier and goes on elsewhere.
    """

    def __init__(
        self,
        night: Night,
        store: FleetStore,
        job: FleetJob,
        site: JobSite,
        progress: ProgressReporter,
        run: RunJob = run_job,
        goes_on: str | None = None,
    ) -> None:
        self._night, self._store, self._job, self._site = night, store, job, site
        self._progress, self._run_job, self._goes_on = progress, run, goes_on

    def run(self, until_ms: int | None, numbers: Sequence[int] | None = None) -> list[UnitResult]:
        """Work until all is done, or until a moment after which no unit is begun. The store has the result of each operation at once.
        What an earlier process has done of a unit is not repeated.

        :param numbers: numbers of the units within the decision; ``None``: all.
        """
        units = self._night.decision.units
        wanted = range(len(units)) if numbers is None else numbers
        results = []
        for done, (number, in_time) in enumerate(self._in_time(wanted, until_ms), 1):
            unit = units[number]
            if not in_time:
                late = NotBegun(unit.table, "time", "The time of the run is over.")
                results.append(_left(self._night, number, self._store, late))
                continue
            self._progress.message(f"{done:,} of {len(wanted):,}: {unit.table}, {_summary(unit)}")
            results.append(
                maintain(
                    self._night,
                    number,
                    self._store,
                    self._job,
                    self._site,
                    self._progress,
                    self._run_job,
                    self._goes_on,
                )
            )
        return results

    def _in_time(self, numbers: Sequence[int], until_ms: int | None) -> Iterator[tuple[int, bool]]:
        """Yield the numbers of units at or after their moments, and whether there is time for them. Those that may begin are not
        held up by one that may not yet."""
        units = self._night.decision.units
        runtime, waiting = self._site.runtime, list(numbers)
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
    night: Night,
    number: int,
    store: FleetStore,
    job: FleetJob,
    site: JobSite,
    progress: ProgressReporter,
    run: RunJob = run_job,
    goes_on: str | None = None,
) -> UnitResult:
    """Do one unit of a night under a lease. A failure ends the unit.

    What comes of each operation is written to the store at once. What an earlier process has done is not repeated.

    :param number: number of the unit within the decision.
    :param run: function that does each job.
    :param goes_on: id of a job that was begun earlier and goes on elsewhere.
    """
    unit = night.decision.units[number]
    outcomes = _done_before(night, number, store)
    done = {outcome.run.operation for outcome in outcomes}
    specs = [
        (work, _spec(night, number, work, job)) for work in unit.operations if work.operation not in done
    ]
    lease: Lease | Held | nullcontext[None]
    try:
        lease = take_lease(
            unit.table,
            site.storage_options,
            night.run_id,
            site.runtime,
            takes_over_own=True,
            allowed_roots=job.allowed_roots,
        )
    except DeltaLogError as error:
        specs, lease = [], nullcontext()
        outcomes = (*outcomes, *_not_reached(unit, night, number, error, site.runtime))
        store.add(night, number, UnitResult(outcomes))
    if isinstance(lease, Held):
        # A job that goes on elsewhere is brought to its end, since nobody else would do that. Commits protect the table.
        specs = [(work, spec) for work, spec in specs[:1] if spec.run_id == goes_on]
        if not specs:
            return _left(night, number, store, NotBegun(unit.table, "lease", lease.why))
        lease = nullcontext()
    with lease:
        for work, spec in specs:
            outcome = outcome_of(unit.table, work, run(spec, site, progress), unit.version)
            outcomes = (*outcomes, outcome)
            store.add(night, number, UnitResult(outcomes))
            if outcome.run.has_failed:
                break
    return UnitResult(outcomes)


def _not_reached(
    unit: WorkUnit, night: Night, number: int, error: DeltaLogError, runtime: Runtime
) -> Iterator[Outcome]:
    """The outcome of a unit whose table cannot be opened: its first operation has failed."""
    now_ms = runtime.now_ms()
    for work in unit.operations[:1]:
        report = JobReport(
            operation=work.operation,
            table=unit.table,
            status="failed",
            run_id=f"{unit_run(night, number)}{work.operation}",
            error=error_report(error),
            started_ms=now_ms,
            finished_ms=now_ms,
        )
        yield outcome_of(unit.table, work, report, unit.version)


def _left(night: Night, number: int, store: FleetStore, why: NotBegun) -> UnitResult:
    """Write that a unit is not begun, or not gone on with."""
    result = UnitResult(_done_before(night, number, store), why)
    store.add(night, number, result)
    return result


def _done_before(night: Night, number: int, store: FleetStore) -> tuple[Outcome, ...]:
    """What an earlier process has done of a unit, without failures."""
    earlier = store.result(night, number)
    return () if earlier is None else tuple(one for one in earlier.outcomes if not one.run.has_failed)


def unit_run(night: Night, number: int) -> str:
    """The beginning of the ids of the jobs of a unit."""
    return f"{night.run_id}-{number}-"


def _transaction(night: Night, work: Work) -> TransactionId | None:
    """The transaction of a rewrite: a process that was killed between a commit and its result does not lead to a second commit."""
    if work.operation not in REWRITES:
        return None
    return TransactionId(f"delta-maintenance-fleet:{work.operation}", night.started_ms)


def _spec(night: Night, number: int, work: Work, job: FleetJob) -> JobSpec:
    return JobSpec(
        operation=work.operation,
        table=night.decision.units[number].table,
        run_id=f"{unit_run(night, number)}{work.operation}",
        options=dict(work.options),
        engine=job.engine_of(work),
        transaction=_transaction(night, work),
        memory_limit_bytes=job.memory_limit_bytes,
        parallelism=job.parallelism,
        executor_credentials=job.executor_credentials,
        allowed_roots=job.allowed_roots,
        tags={"fleet": night.run_id},
    )


def _summary(unit: WorkUnit) -> str:
    names = ", ".join(work.operation.upper() for work in unit.operations)
    return f"{names}, {format_bytes(unit.cost.read_bytes)}" if unit.cost.read_bytes else names


class FleetNight:
    """The steps of a night: :meth:`begin` surveys and decides, a :class:`FleetRunner` does the work, and :func:`account_for` keeps what came of
    it. :meth:`run` does all of them in this process.

    :param state: path or URI of the directory in which the fleet keeps its memory.
    :param site: where the jobs run, with the options of the stores and the clock.
    :param allowed_roots: lists of roots below which every table must lie, by who set them; a table elsewhere counts as one that cannot
        be read.
    :param owner: name of the run, the same for each of its processes, of which one is at work at a time; ``None``: the run is this
        process.
    :param holds: what persons have said of tables since the policy was written.
    """

    def __init__(
        self,
        written: WrittenPolicy,
        state: str,
        site: JobSite,
        progress: ProgressReporter,
        allowed_roots: Mapping[str, Sequence[str]] | None = None,
        owner: str | None = None,
        holds: tuple[Hold, ...] = (),
    ) -> None:
        self._written, self._site, self._progress = written, site, progress
        self._allowed_roots, self._owner, self._holds = allowed_roots or {}, owner, holds
        self.store = FleetStore.open(state, site.storage_options)
        self._memory_file = memory_file_of(self.store, site)

    def plan(self, approved: Collection[str] = ()) -> FleetReport:
        """Decide, and write nothing: neither to a table nor to the memory.

        :param approved: patterns of the tables whose deletions a person approves.
        """
        night, _ = self._decided(approved)
        return report_of(night, is_planned=True)

    def run(
        self,
        approved: Collection[str],
        job: FleetJob,
        max_seconds: float | None = None,
        run: RunJob = run_job,
    ) -> FleetReport:
        """Decide and maintain. What was done is kept also where the run is interrupted.

        :param max_seconds: time after which no table is begun.
        :param run: function that does each job.
        :raises InvalidRequest: another run of the fleet is at work.
        """
        with self._lease():
            night = self._begin(approved)
            try:
                runner = FleetRunner(night, self.store, job, self._site, self._progress, run)
                runner.run(last_moment(night.decision, max_seconds))
            finally:
                night = account_for(night, self.store, self._site, self._progress)
            return report_of(night)

    def begin(self, approved: Collection[str] = ()) -> Night:
        """Survey, decide, and write the night to the store. Nothing is done to a table.

        A night that was begun before and is not finished is accounted for: its run was killed.

        :raises InvalidRequest: another run of the fleet is at work.
        """
        with self._lease():
            return self._begin(approved)

    def _lease(self) -> Lease:
        owner = self._owner or f"of {socket.gethostname()}"
        lease = lease_of(
            self.store.storage, owner, self._site.runtime, takes_over_own=self._owner is not None
        )
        if isinstance(lease, Held):
            raise InvalidRequest(
                f"The fleet whose memory is {self.store.storage.uri} is being maintained. {lease.why}"
            )
        return lease

    def _begin(self, approved: Collection[str]) -> Night:
        killed = self.store.unfinished_night()
        if killed is not None:
            self._progress.message(
                f"the night {killed.run_id} was not finished; what it has done is accounted for"
            )
            account_for(killed, self.store, self._site, self._progress)
        night, memory = self._decided(approved)
        self.store.begin(night)
        self._memory_file.write(memory)
        return night

    def _decided(self, approved: Collection[str]) -> tuple[Night, SurveyMemory]:
        site = self._site
        history, memory = self.store.history(), self._memory_file.read(self._progress)
        tables, memory = surveyed_tables(
            self._written, memory, site.storage_options, site.runtime, self._progress, self._allowed_roots
        )
        recorded = ApprovalFolder(self.store.storage).valid(site.runtime.now_ms())
        all_approved = {**not_used_up(recorded, history), **approvals(tables, approved)}
        night = begin_night(self._written, tables, history, all_approved, site.runtime, self._holds)
        return night, memory


def account_for(night: Night, store: FleetStore, site: JobSite, progress: ProgressReporter) -> Night:
    """Make the results of a night part of it and of what is remembered; return it. A night that is finished stays as it is."""
    if night.is_finished:
        return night
    whole = store.finish(night, site.runtime.now_ms())
    memory_file = memory_file_of(store, site)
    memory_file.write(memory_file.read(progress).without({outcome.table for outcome in whole.outcomes}))
    return whole


def memory_file_of(store: FleetStore, site: JobSite) -> SurveyMemoryFile:
    """The memory of the surveys of a fleet."""
    return SurveyMemoryFile(f"{store.storage.uri}/{_MEMORY}", site.storage_options)


def last_moment(decision: Decision, max_seconds: float | None) -> int:
    """The moment after which no unit is begun: the end of the window, or the time that the caller gives."""
    ends = [decision.window[1]]
    if max_seconds is not None:
        ends.append(decision.decided_ms + int(max_seconds * 1000))
    return min(ends)
