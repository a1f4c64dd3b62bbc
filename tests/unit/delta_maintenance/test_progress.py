from __future__ import annotations

import io
import json
from typing import Any

from delta_maintenance.contract import PROGRESS_PREFIX
from delta_maintenance.progress import HumanProgress, ProgressLines


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
    for number in range(3):
        clock.now += 10
        progress.bin_done(str(number), 1 << 20)
    assert stream.getvalue().splitlines() == [
        "starting Spark",
        "rewriting: 0 of 4 bins, 0 B of 4.0 MiB (0%)",
        "rewriting: 1 of 4 bins, 1.0 MiB of 4.0 MiB (25%)",
        "rewriting: 2 of 4 bins, 2.0 MiB of 4.0 MiB (50%), about 20 s to go",
        "rewriting: 3 of 4 bins, 3.0 MiB of 4.0 MiB (75%), about 10 s to go",
    ]
