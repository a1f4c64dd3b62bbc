"""A sample of the hostile-input campaign; `./dev campaign hostile` runs all of it."""

from __future__ import annotations

import pytest
from tests.campaigns.hostile_input import FORBIDDEN, run_table
from tests.support.environment.corpus import Corpus

SAMPLE = (
    "golden-log-replay-dv-key-cases",
    "kernel-pagination-v2-checkpoint-json",
    "krs-v1-multi-part-partitioned-struct-stats-only",
    "krs-v2-classic-checkpoint-parquet",
    "spark-table-with-dv-small",
)


@pytest.mark.parametrize("name", SAMPLE)
def test_a_broken_file_gives_the_right_answer_or_a_named_refusal(name: str, corpus: Corpus) -> None:
    events = list(run_table(corpus.table(name), rows=True, seed=7, flips=6, values=3))
    assert len(events) > 20
    assert "right" in {event["outcome"] for event in events}
    assert [event for event in events if event["outcome"] in FORBIDDEN] == []
