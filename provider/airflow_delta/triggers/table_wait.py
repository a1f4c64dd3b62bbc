"""Waiting for one range of versions of one table, in the task of a sensor or in the triggerer.

All calls block. The place in the log is kept between two looks. An outcome is a JSON value: its ``status`` is ``found``, with the
``range``, or ``refused``, with an error that waiting does not cure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from airflow.sdk.exceptions import AirflowFailException

from airflow_delta.triggers.look_log import LookLog, awaited_text, seen_text
from delta_log.printable import printable_logger

if TYPE_CHECKING:
    from airflow_delta.hooks.watched_store import WatchedStore
    from delta_log.errors import LogCleaned
    from delta_log.tail.commit_follower import CommitFollower
    from delta_log.tail.commit_summary import CommitFilter
    from delta_log.tail.version_range import Awaited, Progress

log = printable_logger(__name__)

Outcome = dict[str, Any]


def refusal(error: Exception) -> Outcome:
    """The outcome for an error that waiting does not cure."""
    return {"status": "refused", "type": type(error).__name__, "message": str(error)}


class TableWait:
    """Looks for commits after a version until they make a range.

    :param baseline: the version after which to look.
    :param commit_filter: function that makes the filter of commits; called in a thread, as is ``awaited``.
    :param awaited: function that makes the further conditions on a commit.
    :param on_cleaned: ``fail`` or ``continue`` if commits were deleted before they were read.
    """

    def __init__(
        self,
        table: str,
        store: WatchedStore,
        *,
        baseline: int,
        commit_filter: Callable[[], CommitFilter],
        awaited: Callable[[], Awaited | None],
        on_cleaned: str = "fail",
    ) -> None:
        self.table, self.store, self.baseline, self.on_cleaned = table, store, baseline, on_cleaned
        self._commit_filter, self._awaited = commit_filter, awaited
        self._tail: CommitFollower | None = None
        self._progress: Progress | None = None
        self._looks = LookLog(log)
        self.failures = 0

    def look(self) -> Outcome | None:
        """Look once; returns the outcome, or ``None`` if it is too early."""
        from delta_log.errors import AccessDenied, LogCleaned, NotInCatalog, StorageError, TableError

        try:
            while True:
                try:
                    outcome, again = self._look()
                except LogCleaned as cleaned:
                    if self.on_cleaned != "continue":
                        raise
                    self._go_on_after(cleaned)
                    continue
                if outcome is not None or not again:
                    break
        except NotInCatalog as error:
            self._looks.tell(str(error))
            return None
        except (TableError, AirflowFailException) as error:
            return refusal(error)
        except StorageError as error:
            if not error.retryable:
                return refusal(error)
            if isinstance(error, AccessDenied):
                # Credentials have expired. The next look opens the table with what the connection says by then.
                self.store.forget_credentials()
                self._tail = None
            self.failures += 1
            if self.failures == 1:
                log.warning("%s Trying again, less and less often.", error)
            return None
        if self.failures:
            log.info("%s answers again.", self.table)
            self.failures = 0
        return outcome

    def seconds(self, poll_interval: float, jitter: float) -> float:
        """How long to wait until the next look."""
        from delta_log.tail.commit_follower import wait_seconds

        return wait_seconds(poll_interval, self.failures, jitter)

    def _look(self) -> tuple[Outcome | None, bool]:
        """An outcome, or whether to look again at once."""
        from delta_log.tail.commit_follower import MAX_COMMITS, CommitFollower
        from delta_log.tail.version_range import Place, Progress

        if self._tail is None or self._progress is None:
            self._tail = CommitFollower(self.store.open(self.table), self.baseline)
            self._progress = Progress(Place.after(self.baseline))
        self._tail.storage = self.store.follow(self.table, self._tail.storage)
        commits = self._tail.poll()
        commit_filter, awaited = self._commit_filter(), self._awaited()
        self._progress, told = self._progress.with_commits(commits, commit_filter, awaited)
        if len(commits) < MAX_COMMITS:
            held = self._progress.held if told is None else told.commits
            seen = seen_text(self.baseline, self._tail.position, held, commit_filter)
            newest = f"version {self._tail.position}" if self._tail.position >= 0 else "no version yet"
            self._looks.tell(
                f"{self.table}, {newest}: {seen}; awaited: {awaited_text(commit_filter, awaited)}."
            )
        if told is not None:
            return {"status": "found", "range": told.to_dict(self.table)}, False
        return None, len(commits) == MAX_COMMITS

    def _go_on_after(self, cleaned: LogCleaned) -> None:
        assert self._tail is not None
        assert self._progress is not None
        log.warning("%s", cleaned)
        self._progress = self._progress.without(self._tail.position + 1, cleaned.earliest - 1)
        self._tail.skip_to(cleaned.earliest - 1)
