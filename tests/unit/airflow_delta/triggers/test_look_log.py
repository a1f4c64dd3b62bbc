from __future__ import annotations

import logging
from contextvars import ContextVar

import pytest

from airflow_delta.hooks.watched_store import watched_store
from airflow_delta.triggers.look_log import REPEAT_SECONDS, LookLog, awaited_text, seen_text
from delta_log.tail.commit_summary import CommitFilter, CommitSummary
from delta_log.tail.version_range import Awaited


def test_a_line_is_written_when_something_changed_and_every_ten_minutes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    now = [0.0]
    looks = LookLog(logging.getLogger("looks"), lambda: now[0])
    with caplog.at_level(logging.INFO, "looks"):
        for second in range(0, 1801, 30):
            now[0] = float(second)
            looks.tell("version 3" if second >= 900 else "version 2")
    assert REPEAT_SECONDS == 600
    assert caplog.messages == ["version 2", "version 2", "version 3", "version 3"]


def commit(version: int, rows: int) -> CommitSummary:
    return CommitSummary(version, 0, "WRITE", data_change=True, num_added_rows=rows)


def test_what_was_seen_is_told_with_its_rows_where_rows_are_awaited() -> None:
    any_rows, many_rows = CommitFilter(), CommitFilter(min_rows=1000)
    held = [commit(13, 100), commit(15, 20)]
    assert seen_text(12, 12, (), any_rows) == "no commit after version 12 yet"
    assert seen_text(-1, -1, (), any_rows) == "no commit from version 0 on yet"
    assert seen_text(12, 17, held, any_rows) == "2 of 5 commits after version 12 count"
    assert seen_text(12, 17, held, many_rows) == "2 of 5 commits after version 12 count, with 120 rows"


@pytest.mark.parametrize(
    ("commit_filter", "awaited", "text"),
    [
        (CommitFilter(), None, "a commit that changes data"),
        (
            CommitFilter.of(
                data_change_only=False, operations=["merge", "write"], partitions={"day": [1, None]}
            ),
            None,
            "a commit, by MERGE or WRITE, in day=1|null",
        ),
        (CommitFilter(min_rows=1000), None, "a commit that changes data, at least 1,000 rows"),
        (
            CommitFilter(data_change_only=False),
            Awaited(version=9, newer_than_ms=1_767_225_600_000, transaction=("load", 7)),
            "a commit, version 9 or later, at 2026-01-01T00:00:00+00:00 or later, with version 7 or later of load",
        ),
    ],
)
def test_what_is_awaited_is_told(commit_filter: CommitFilter, awaited: Awaited | None, text: str) -> None:
    assert awaited_text(commit_filter, awaited) == text


def test_a_look_in_a_thread_belongs_to_the_log_of_its_task() -> None:
    task: ContextVar[str] = ContextVar("task")
    token = task.set("wait")
    try:
        assert watched_store(None).submit(task.get).result() == "wait"
    finally:
        task.reset(token)
