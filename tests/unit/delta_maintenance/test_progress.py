from __future__ import annotations

import io
import json
from collections.abc import Iterable
from itertools import pairwise
from typing import Any

import pytest

from delta_maintenance.contract import SparkApplication
from delta_maintenance.job_interface import PROGRESS_PREFIX
from delta_maintenance.progress import REWRITING, HumanProgress, JobProgress, ProgressLines, ProgressThrottle


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line.removeprefix(PROGRESS_PREFIX)) for line in stream.getvalue().splitlines()]


def test_lines_carry_the_contracts_members() -> None:
    stream = io.StringIO()
    ProgressLines(stream).start(3, 100)
    assert stream.getvalue().startswith(PROGRESS_PREFIX)
    assert lines(stream) == [
        {"done_bins": 0, "total_bins": 3, "done_bytes": 0, "total_bytes": 100, "message": "rewriting"}
    ]


def test_ten_thousand_bins_do_not_make_ten_thousand_lines() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = ProgressLines(stream, interval_seconds=1, clock=clock)
    progress.start(10_000, 10_000)
    for number in range(10_000):
        clock.now += 0.001
        progress.bin_done(str(number), 1)
    told = lines(stream)
    assert 10 <= len(told) <= 12
    assert (told[-1]["done_bins"], told[-1]["done_bytes"]) == (10_000, 10_000)


def test_a_bin_counts_once_however_often_it_is_told() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = ProgressLines(stream, interval_seconds=0, clock=clock)
    progress.start(2, 100)
    progress.source_read("a", 30)
    progress.source_read("a", 30)
    progress.bin_done("a", 60)
    progress.bin_done("a", 60)
    progress.source_read("a", 30)  # a second try of a Spark task
    progress.bin_done("b", 40)
    assert [line["done_bytes"] for line in lines(stream)] == [0, 30, 60, 60, 100]
    assert lines(stream)[-1]["done_bins"] == 2


def test_a_new_stage_is_told_at_once() -> None:
    stream = io.StringIO()
    progress = ProgressLines(stream, interval_seconds=1000)
    progress.start(1, 1)
    progress.message("committing")
    assert lines(stream)[-1]["message"] == "committing"


def test_people_are_told_how_long_it_takes() -> None:
    stream, clock = io.StringIO(), Clock()
    progress = HumanProgress(stream, interval_seconds=1, clock=clock)
    progress.message("starting Spark")
    progress.start(4, 4 << 20)
    for number in range(4):
        clock.now += 10
        progress.bin_done(str(number), 1 << 20)
    progress.message("committing 4 bins")
    assert stream.getvalue().splitlines() == [
        "starting Spark",
        "rewriting: 0 of 4 bins, 0 B of 4.0 MiB (0%)",
        "rewriting: 1 of 4 bins, 1.0 MiB of 4.0 MiB (25%)",
        "rewriting: 2 of 4 bins, 2.0 MiB of 4.0 MiB (50%), 102.4 KiB/s, about 20 s to go",
        "rewriting: 3 of 4 bins, 3.0 MiB of 4.0 MiB (75%), 102.4 KiB/s, about 10 s to go",
        "rewriting: 4 of 4 bins, 4.0 MiB of 4.0 MiB (100%), 102.4 KiB/s",
        "committing 4 bins",
    ]


def shown(
    steps: Iterable[tuple[float, JobProgress]], pace: ProgressThrottle | None = None
) -> list[tuple[float, str]]:
    """The lines for people, each with its time."""
    pace, lines = pace or ProgressThrottle(), []
    for now, progress in steps:
        pace, due = pace.told(progress, now)
        lines += [(now, line) for line in due]
    return lines


def test_a_reader_who_looks_now_and_then_reads_each_stage_once() -> None:
    kept, looks = JobProgress(), []
    for step in (
        JobProgress(message="starting Spark"),
        JobProgress(message="chosen"),
        JobProgress(0, 2, 0, 10, REWRITING),
    ):
        kept = step.after(kept)
    looks += [kept, kept]
    kept = JobProgress(2, 2, 10, 10, REWRITING).after(kept)
    looks += [kept, kept]
    kept = JobProgress(2, 2, 10, 10, "committing 2 bins").after(kept)
    looks += [JobProgress.from_dict(json.loads(json.dumps(kept.to_dict())))] * 2
    assert [line for _, line in shown((float(now), look) for now, look in enumerate(looks))] == [
        "starting Spark",
        "chosen",
        "rewriting: 0 of 2 bins, 0 B of 10 B (0%)",
        "rewriting: 2 of 2 bins, 10 B of 10 B (100%)",
        "committing 2 bins",
    ]


def test_a_long_job_makes_a_line_every_ten_seconds_and_later_every_thirty() -> None:
    total = 600
    steps = [(float(n), JobProgress(n, total, n, total, REWRITING)) for n in range(total + 1)]
    times = [now for now, _ in shown(steps)]
    assert times[:4] == [0, 10, 20, 30]
    assert times[-1] == total
    assert all(later - earlier >= 10 for earlier, later in pairwise(times))
    assert len(times) == 1 + 30 + 10


def test_a_stage_is_shown_between_counts_and_does_not_put_them_off() -> None:
    steps = [
        (0.0, JobProgress(0, 2, 0, 10, REWRITING)),
        (1.0, JobProgress(0, 2, 0, 10, "left out bin 7")),
        (2.0, JobProgress(1, 2, 5, 10, REWRITING)),
        (11.0, JobProgress(1, 2, 6, 10, REWRITING)),
    ]
    assert [now for now, _ in shown(steps)] == [0.0, 1.0, 11.0]


def test_steps_of_a_stage_are_shown_now_and_then() -> None:
    steps = [(0.0, JobProgress(message="listing"))]
    steps += [
        (float(second), JobProgress(message=f"listing: {second} files", is_step=True)) for second in range(26)
    ]
    assert shown(steps) == [(0.0, "listing"), (10.0, "listing: 10 files"), (20.0, "listing: 20 files")]
    kept = JobProgress(message="listing: 9 files", is_step=True).after(
        JobProgress(message="a").after(JobProgress())
    )
    assert (kept.stages, kept.message) == (("a",), "listing: 9 files")


def test_a_line_says_that_it_is_a_step() -> None:
    stream = io.StringIO()
    progress = ProgressLines(stream, interval_seconds=0)
    progress.message("listing")
    progress.step("listing: 5 files so far")
    assert [JobProgress.from_dict(line).is_step for line in lines(stream)] == [False, True]
    assert "is_step" not in lines(stream)[0]


def test_an_engine_that_begins_anew_is_measured_anew() -> None:
    steps = [
        (0.0, JobProgress(1, 2, 50, 100, REWRITING)),
        (100.0, JobProgress(0, 2, 0, 100, REWRITING)),
        (110.0, JobProgress(0, 2, 10, 100, REWRITING)),
        (120.0, JobProgress(0, 2, 20, 100, REWRITING)),
    ]
    assert shown(steps)[-1] == (120.0, "rewriting: 0 of 2 bins, 20 B of 100 B (20%), 1 B/s, about 80 s to go")


@pytest.mark.parametrize(
    ("progress", "text"),
    [
        (JobProgress(3, 12, 30, 100, "rewriting"), "rewriting: 3 of 12 bins, 30 B of 100 B (30%)"),
        (JobProgress(1, 4), "rewriting: 1 of 4 bins (25%)"),
        (JobProgress(4, 4, 100, 100, "committing 4 bins"), "committing 4 bins"),
        (JobProgress(message="day=\x1b[2J\nforged"), r"day=\x1b[2J\nforged"),
        (JobProgress(), ""),
    ],
)
def test_progress_reads_well(progress: JobProgress, text: str) -> None:
    assert str(progress) == text


def test_a_progress_that_is_kept_names_the_spark_application_from_then_on() -> None:
    spark: SparkApplication = {"application_id": "app-1", "ui_url": None, "version": "4.2.0"}
    stream = io.StringIO()
    progress = ProgressLines(stream, interval_seconds=0)
    progress.application("Spark is ready", spark)
    progress.start(1, 10)
    first, second = (
        JobProgress.from_dict(json.loads(line.removeprefix(PROGRESS_PREFIX)))
        for line in stream.getvalue().splitlines()
    )
    assert (first.spark, second.spark) == (spark, None), "a reader of all lines is told once"
    kept = second.after(first)
    assert (kept.spark, kept.total_bins, kept.stages) == (spark, 1, ())
