from __future__ import annotations

from typing import Any

from delta_maintenance.log_upkeep.plan.log_cleanup import REASONS as LOG_CLEANUP
from delta_maintenance.optimize.plan.plan import REASONS as CHOSEN
from delta_maintenance.optimize.plan.selection import LEFT_REASONS
from delta_maintenance.text.plan import LOG_CLEANUP_REASONS, VACUUM_REASONS, rewrite_lines, vacuum_lines
from delta_maintenance.text.selection import CHOSEN_WORDS, LEFT_WORDS
from delta_maintenance.vacuum.plan.plan import REASONS as VACUUM

MIB = 1 << 20


def test_every_reason_has_its_words() -> None:
    assert tuple(VACUUM_REASONS) == VACUUM
    assert tuple(LOG_CLEANUP_REASONS) == LOG_CLEANUP
    assert list(CHOSEN_WORDS) == list(CHOSEN.values())
    assert tuple(LEFT_WORDS) == LEFT_REASONS


def partition(day: str, files: int) -> dict[str, Any]:
    return {"partitionValues": {"day": day}, "numFiles": files, "numBytes": files * MIB, "numBins": 1}


def test_a_rewrite_says_what_it_chose_and_why_before_it_begins() -> None:
    summary = {
        "readVersion": 73,
        "numPartitions": 5,
        "partitions": [partition(str(day), 100 - day) for day in range(5)],
        "selection": {
            "files": 5000,
            "bytes": 5000 * MIB,
            "small_below_bytes": 96 * MIB,
            "chosen": {
                "files": 422,
                "bytes": 422 * MIB,
                "bins": 6,
                "partitions": 5,
                "by_reason": {"small": 400, "deleted_rows": 22},
            },
            "left": {
                "large_enough": {"files": 4500, "bytes": 4500 * MIB},
                "alone": {"files": 78, "bytes": 78 * MIB},
            },
        },
    }
    assert rewrite_lines(summary) == [
        (
            "chosen at version 73: 422 of 5,000 files, 422.0 MiB, in 6 bins of 5 partitions: 400 small (below 96.0 MiB), "
            "22 with deleted rows"
        ),
        (
            "partitions, most bytes first: day=0 (100 files, 100.0 MiB), day=1 (99 files, 99.0 MiB), "
            "day=2 (98 files, 98.0 MiB) and 2 more"
        ),
        "left: 4,578 files, 4.5 GiB: 4,500 large enough; 78 small, but no other small file is in their partition",
    ]


def test_a_vacuum_says_what_it_deletes_and_keeps_before_it_begins() -> None:
    plan = {
        "readVersion": 12,
        "numListedFiles": 100,
        "numFilesToDelete": 7,
        "sizeOfDataToDelete": 7 * MIB,
        "cutoffMs": 1_767_225_600_000,
        "retentionMs": 168 * 3_600_000,
        "reasons": {"orphan": {"numFiles": 7, "numBytes": 7 * MIB}},
        "numYoungFiles": 2,
    }
    assert vacuum_lines(plan) == [
        "to delete at version 12: 7 of 100 files, 7.0 MiB: orphan 7 (the newest version neither has them nor remembers their removal)",
        "kept: what was needed since 2026-01-01 00:00Z (retention 168 hours), and 2 younger files that no version names",
    ]
