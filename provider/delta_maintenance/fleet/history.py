"""What a fleet remembers from one run to the next.

The history is a fold over nights: :func:`~delta_maintenance.fleet.account.night.next_history` makes the next one of the last one, a decision
and its outcomes.
"""

from __future__ import annotations

from collections.abc import Mapping

from msgspec import Struct

from delta_maintenance.health.facts import FileTotal

HISTORY_VERSION = 1
#: As many runs of a table are remembered, the newest last.
MAX_RUNS = 20
MAX_NIGHTS = 90
#: A table that no survey has seen for so long is forgotten.
FORGOTTEN_AFTER_MS = 90 * 86_400_000


class Cost(Struct, frozen=True):
    """What work takes, by forecast or as measured.

    :param read_bytes: bytes of data files that are read.
    :param worker_seconds: seconds of one processor.
    :param requests: requests to the store.
    """

    read_bytes: float = 0
    worker_seconds: float = 0
    requests: float = 0

    def plus(self, other: Cost) -> Cost:
        return Cost(
            self.read_bytes + other.read_bytes,
            self.worker_seconds + other.worker_seconds,
            self.requests + other.requests,
        )

    def times(self, factor: float) -> Cost:
        return Cost(self.read_bytes * factor, self.worker_seconds * factor, self.requests * factor)


class PastRun(Struct, frozen=True):
    """One run of an operation on a table.

    :param operation: its name as a command.
    :param status: status of its report, see :data:`~delta_maintenance.contract.STATUSES`.
    :param forecast: cost that was expected; ``by_log`` is the cost by the log alone, before earlier runs had corrected it.
    :param outcome: cost that was measured; a resource that was not measured is 0.
    :param kind: kind of the error, as in a report; empty: it did not fail.
    :param message: what went wrong.
    :param version: the table's version before the run.
    :param saved_files: live files less than before; ``saved_bytes`` counts bytes of the store that became free.
    """

    operation: str
    started_ms: int
    status: str
    forecast: Cost
    outcome: Cost = Cost()
    kind: str = ""
    message: str = ""
    version: int | None = None
    saved_files: int = 0
    saved_bytes: int = 0
    by_log: Cost = Cost()

    @property
    def has_failed(self) -> bool:
        return self.status == "failed"


class HeldFiles(Struct, frozen=True):
    """The files that had been removed within the retention of VACUUM before a survey.

    A checkpoint drops the tombstones of older ones, so that the log does not tell of them any more when they become due.

    :param measured_ms: time of the survey.
    """

    measured_ms: int
    total: FileTotal


class TableHistory(Struct, frozen=True):
    """What is remembered of one table.

    :param first_seen_ms: the first run of the fleet that has seen it; ``last_seen_ms`` is the last one.
    :param unread_since_ms: the first of the runs that could not read it, without one that could since; ``None``: it could be read.
    :param reports: number of nights that have reported it.
    :param unhealthy_since_ms: the first run that found it unhealthy without one that found it healthy since; ``None``: it is healthy.
    :param missed_windows: windows since it was last worked on in which its work found no room in the budget, or no time;
        ``missed_in_ms`` is the beginning of the last one.
    :param announced: first report that announced a deletion, by operation, in ms. A deletion that was carried out, or is no longer
        due, is forgotten.
    :param held: removed files, by surveys that are at least the retention of VACUUM apart, so that none counts twice; oldest first. Files
        that a VACUUM has deleted since are forgotten.
    :param runs: the newest :data:`MAX_RUNS` runs, oldest first.
    """

    first_seen_ms: int
    last_seen_ms: int = 0
    reports: int = 0
    unread_since_ms: int | None = None
    unhealthy_since_ms: int | None = None
    missed_windows: int = 0
    missed_in_ms: int | None = None
    announced: Mapping[str, int] = {}
    held: tuple[HeldFiles, ...] = ()
    runs: tuple[PastRun, ...] = ()

    @property
    def waiting_since_ms(self) -> int | None:
        """The moment since which the table waits for work: it was found unhealthy, or was worked on since; ``None``: it is healthy.

        A table that is unhealthy again at each survey, and is worked on each time, does not wait.
        """
        if self.unhealthy_since_ms is None:
            return None
        return max([self.unhealthy_since_ms, *(run.started_ms for run in self.runs if not run.has_failed)])

    def last_runs(self, operation: str) -> tuple[PastRun, ...]:
        return tuple(run for run in self.runs if run.operation == operation)

    def failures(self, operation: str) -> tuple[PastRun, ...]:
        """The failed runs of an operation since its last success, oldest first."""
        found: list[PastRun] = []
        for run in self.last_runs(operation):
            found = [*found, run] if run.has_failed else []
        return tuple(found)


class NightFigures(Struct, frozen=True):
    """The figures of one run, for trends.

    :param num_tables: tables that were seen, of which ``num_unhealthy`` were unhealthy, and ``num_unread`` could not be read.
    :param num_files: live files of all tables; ``reclaimable_bytes`` are bytes that VACUUM could free.
    """

    started_ms: int
    num_tables: int
    num_unhealthy: int
    num_unread: int
    num_files: int
    size_bytes: int
    reclaimable_bytes: int
    num_done: int
    num_failed: int


class FleetHistory(Struct, frozen=True):
    """What is remembered of all tables, by address, and of the newest :data:`MAX_NIGHTS` runs."""

    tables: Mapping[str, TableHistory] = {}
    nights: tuple[NightFigures, ...] = ()
    history_version: int = HISTORY_VERSION

    def of(self, table: str, now_ms: int) -> TableHistory:
        """What is remembered of a table, or of a table that is first seen now."""
        return self.tables.get(table) or TableHistory(now_ms)
