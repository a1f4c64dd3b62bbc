"""A sample of the hostile-input campaign; `./dev campaign hostile` runs all of it."""

from __future__ import annotations

import pytest
from tests.campaigns.hostile_input import FORBIDDEN, run_table
from tests.support.environment.corpus import Corpus

pytestmark = pytest.mark.slow

#: Tables, and how many values are replaced in each JSON file; each replaced value costs a run of every command.
SAMPLE = {
    "golden-log-replay-dv-key-cases": 3,
    "kernel-pagination-v2-checkpoint-json": 2,
    "krs-v1-multi-part-partitioned-struct-stats-only": 1,
    "krs-v2-classic-checkpoint-parquet": 3,
    "spark-table-with-dv-small": 3,
}


@pytest.mark.parametrize("name", SAMPLE)
def test_a_damaged_file_gives_the_right_answer_or_a_named_refusal(name: str, corpus: Corpus) -> None:
    events = list(run_table(corpus.table(name), rows=True, seed=7, flips=6, values=SAMPLE[name]))
    assert len(events) > 20
    assert "right" in {event["outcome"] for event in events}
    assert [event for event in events if event["outcome"] in FORBIDDEN] == []
