"""When to commit beside other writers: the rule, by properties and by simulated writers."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from delta_log.log.actions import Action, Add, Remove
from delta_log.transaction.conflict import WinningCommit
from delta_maintenance.optimize.commit.commit_gap import (
    Decision,
    Pauses,
    Situation,
    Statement,
    decide,
    partition_key,
    statements_in,
)

ALL = frozenset({partition_key({})})
FOREVER_MS = 10**9


def statement(committed_ms: int | None, took_ms: int | None) -> Statement:
    return Statement(0, committed_ms, took_ms, ALL)


# -- which commits are statements --------------------------------------------------------------------------------


def commit(version: int, *files: Add | Remove, **info: object) -> WinningCommit:
    actions = [Action(commitInfo={"timestamp": 1_000 * version, **info})]
    actions += [Action(add=file) if isinstance(file, Add) else Action(remove=file) for file in files]
    return WinningCommit(version, actions)


def add(day: str | None = None, *, changes: bool = True) -> Add:
    return Add(path="f", partitionValues={"day": day}, size=1, modificationTime=1, dataChange=changes)


def remove(day: str | None = None, *, changes: bool = True) -> Remove:
    return Remove(path="g", dataChange=changes, partitionValues={"day": day})


def test_a_statement_is_a_commit_that_may_have_read_rows() -> None:
    commits = [
        commit(1, add(), operation="WRITE", isBlindAppend=True),
        commit(2, add(), operation="WRITE"),
        commit(3, add(), operation="WRITE", isBlindAppend=False),
        commit(4, add(), remove(), operation="DELETE"),
        commit(5, remove(changes=False), add(changes=False), operation="OPTIMIZE"),
        commit(6, operation="SET TBLPROPERTIES"),
        commit(7, add(), operation="Manual Update"),
        commit(9, remove(), operation="DELETE"),
    ]
    assert [found.version for found in statements_in(commits, {})] == [3, 4, 7, 9]


def test_a_statement_takes_the_time_that_it_says_or_that_since_the_version_it_read() -> None:
    commits = [
        commit(10, add(), remove(), operation="DELETE", operationMetrics={"executionTimeMs": "250"}),
        commit(11, add(), remove(), operation="MERGE", operationMetrics={"execution_time_ms": 70}),
        commit(13, add(), remove(), operation="UPDATE", readVersion=10),
        commit(14, add(), remove(), operation="UPDATE", readVersion=5),
        commit(15, add(), remove(), operation="UPDATE"),
        commit(16, add(), remove(), operation="UPDATE", readVersion=9),
    ]
    assert [found.duration_ms for found in statements_in(commits, {9: 8_000})] == [
        250, 70, 3_000, None, None, 8_000,
    ]  # fmt: skip


def test_a_statement_is_in_the_partitions_of_its_files() -> None:
    (found,) = statements_in([commit(1, add("a"), remove("b"), remove(""), operation="MERGE")], {})
    assert found.partitions == {partition_key({"day": day}) for day in ("a", "b", None)}


# -- the rule ----------------------------------------------------------------------------------------------------

PAUSES = st.builds(
    Pauses.between,
    st.lists(
        st.tuples(st.integers(0, 50_000), st.none() | st.integers(0, 60_000)), min_size=1, max_size=80
    ).map(lambda steps: list(_history(steps))),
)


def _history(steps: list[tuple[int, int | None]]) -> Iterator[Statement]:
    now_ms = 0
    for pause_ms, took_ms in steps:
        now_ms += pause_ms
        yield statement(now_ms, took_ms)


@given(PAUSES, st.integers(-10, 200_000), st.integers(0, 10**6), st.integers(0, 10**6))
def test_the_rule_ends_every_wait(pauses: Pauses, silence_ms: int, waited_ms: int, max_wait_ms: int) -> None:
    found = decide(Situation(pauses, silence_ms), waited_ms, max_wait_ms)
    assert (found.decision is Decision.WAIT) == (found.until_ms is not None)
    if found.decision is Decision.WAIT:
        assert waited_ms < max_wait_ms
        # If no commit comes until then, the decision is to commit, and not before: the writers have gone, or pause.
        assert found.until_ms is not None
        assert silence_ms < found.until_ms <= pauses.silence_ms + 1
        before = {found.until_ms - 1, (max(0, silence_ms) + found.until_ms) // 2}
        for earlier_ms in before:
            still = decide(Situation(pauses, earlier_ms), waited_ms, max_wait_ms)
            assert still.decision is Decision.WAIT or earlier_ms < silence_ms
        assert decide(Situation(pauses, found.until_ms), waited_ms, max_wait_ms).commits
    if found.decision is Decision.GIVE_UP:
        assert waited_ms >= max_wait_ms


@given(PAUSES, st.integers(0, 200_000))
def test_directly_behind_a_statement_every_moment_is_good(pauses: Pauses, silence_ms: int) -> None:
    assert decide(Situation(pauses, silence_ms, just_committed=True), 0, 0).decision is Decision.BEHIND


def test_where_nobody_changes_rows_nothing_is_waited_for() -> None:
    assert decide(Situation(None), 0, 0).decision is Decision.QUIET


def test_a_nightly_merge_is_waited_for_only_while_it_is_due() -> None:
    day, minute = 86_400_000, 60_000
    pauses = Pauses.between([statement(night * day, 10 * minute) for night in range(5)])
    assert decide(Situation(pauses, 3 * 60 * minute), 0, FOREVER_MS).decision is Decision.BETWEEN
    late = decide(Situation(pauses, day - 5 * minute), 0, FOREVER_MS)
    assert late.decision is Decision.WAIT
    assert late.in_flight is not None
    assert late.in_flight > 0.2
    assert decide(Situation(pauses, 2 * day), 0, FOREVER_MS).decision is Decision.SILENCE


def test_a_writer_without_pause_is_followed_and_its_end_noticed() -> None:
    pauses = Pauses.between([statement(2_000 * number, 1_900) for number in range(40)])
    for silence_ms in (0, 500, 1_500, 2_500):
        assert decide(Situation(pauses, silence_ms), 0, FOREVER_MS).decision is Decision.WAIT
    assert decide(Situation(pauses, 4_000), 0, FOREVER_MS).decision is Decision.SILENCE
    assert decide(Situation(pauses, 500), 10, 10).decision is Decision.GIVE_UP


def test_few_pauses_do_not_tell_how_long_the_next_one_is() -> None:
    pauses = Pauses.between([statement(2_000 * number, 1_900) for number in range(5)])
    assert decide(Situation(pauses, 4_000), 0, FOREVER_MS).decision is Decision.WAIT
    assert decide(Situation(pauses, 61_000), 0, FOREVER_MS).decision is Decision.SILENCE


def test_one_statement_of_unknown_length_is_given_a_minute() -> None:
    pauses = Pauses.between([statement(None, None)])
    assert decide(Situation(pauses, 59_000), 0, FOREVER_MS).decision is Decision.WAIT
    assert decide(Situation(pauses, 61_000), 0, FOREVER_MS).decision is Decision.SILENCE


# -- simulated writers -------------------------------------------------------------------------------------------

#: From the moment that a commit can be seen to ours; and from a writer's commit to its next statement's read.
_REACTION_MS, _TURN_MS = 60, 150


@dataclass
class Table:
    """Sessions that change rows all over one table: of statements that overlap, only the first one can commit.

    :ivar compacted_ms: when compactions were committed.
    """

    sessions: int
    busy: float
    chance: random.Random

    def lives(self, statements: int, *, gap: bool, every_ms: int = 10_000) -> tuple[int, int]:
        """Return how many statements compactions made fail, and how many compactions were committed."""
        done: list[Statement] = []
        last_change_ms = failed = compactions = 0
        compacted_ms = -1
        # Per session, when the statement in flight has read the table and when it commits.
        flights = [self._next(0) for _ in range(self.sessions)]
        due_ms = wanted_ms = every_ms
        while len(done) < statements:
            who = min(range(self.sessions), key=lambda number: flights[number][1])
            began_ms, ends_ms = flights[who]
            moment_ms = self._moment(done, due_ms, wanted_ms, gap=gap)
            if moment_ms < ends_ms:
                compacted_ms, compactions = moment_ms, compactions + 1
                due_ms = wanted_ms = moment_ms + every_ms
                continue
            if began_ms < compacted_ms and began_ms >= last_change_ms:
                failed += 1
            elif began_ms >= last_change_ms:
                done.append(statement(ends_ms, ends_ms - began_ms))
                last_change_ms = ends_ms
                if gap and due_ms <= ends_ms:
                    due_ms = ends_ms + _REACTION_MS
                    # Behind a statement: no need to look at the history.
                    compacted_ms, compactions = due_ms, compactions + 1
                    due_ms = wanted_ms = due_ms + every_ms
            flights[who] = self._next(ends_ms)
        return failed, compactions

    def _moment(self, done: list[Statement], due_ms: int, wanted_ms: int, *, gap: bool) -> int:
        """When the compaction will be committed if no statement is committed before."""
        if not gap or not done:
            return due_ms
        pauses = Pauses.between(done[-64:])
        last_ms = done[-1].committed_ms or 0
        found = decide(Situation(pauses, due_ms - last_ms), due_ms - wanted_ms, FOREVER_MS)
        return due_ms if found.commits else last_ms + (found.until_ms or 0)

    def _next(self, now_ms: int) -> tuple[int, int]:
        took_ms = int(1_000 * self.chance.choice((0.5, 0.5, 1, 1, 2, 4, 10)))
        idle_ms = took_ms * (1 - self.busy) / self.busy
        began_ms = now_ms + _TURN_MS + int(self.chance.uniform(0.5, 1.5) * idle_ms)
        return began_ms, began_ms + took_ms


@pytest.mark.parametrize(("busy", "limit"), [(0.2, 0.05), (0.5, 0.05), (0.9, 0.1), (1.0, 0.1)])
def test_one_writer_hardly_notices(busy: float, limit: float) -> None:
    failed, compactions = Table(1, busy, random.Random(7)).lives(2_000, gap=True)
    assert compactions > 200
    assert failed / compactions <= limit
    failed_now, compactions_now = Table(1, busy, random.Random(7)).lives(2_000, gap=False)
    assert failed_now / compactions_now > 0.7 * busy


@pytest.mark.parametrize("busy", [0.2, 0.5, 0.9, 1.0])
def test_three_writers_notice_less_than_half(busy: float) -> None:
    failed, compactions = Table(3, busy, random.Random(7)).lives(2_000, gap=True)
    failed_now, compactions_now = Table(3, busy, random.Random(7)).lives(2_000, gap=False)
    assert failed / compactions <= failed_now / compactions_now / 2


@pytest.mark.parametrize("busy", [0.2, 0.5, 0.9, 1.0])
@pytest.mark.parametrize("sessions", [1, 3])
def test_writers_of_a_young_table_hardly_notice(sessions: int, busy: float) -> None:
    lives = [Table(sessions, busy, random.Random(seed)).lives(40, gap=True) for seed in range(60)]
    failed, compactions = (sum(counts) for counts in zip(*lives, strict=True))
    assert failed / compactions <= 0.1
