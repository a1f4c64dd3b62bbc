"""REORG PURGE on copies of corpus tables: rows are kept, no deletion vector is left, and a second run does nothing."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest
from tests.corpus import Corpus, Entry, corpus_cases
from tests.integration.test_optimize_corpus import check_with_delta_rs, optimised
from tests.maintenance_runs import run

from delta_log import Table
from delta_log.actions import decode_actions
from delta_log.log_path import commit_key
from delta_log.snapshot import Snapshot
from delta_maintenance.contract import JobReport


def live_counts(snapshot: Snapshot) -> dict[str, int]:
    """Rows by partition, as the log tells them by statistics and deletion vectors; -1: it does not."""
    counts: dict[str, int] = {}
    for row in snapshot.files().to_pylist():
        partition = json.dumps(sorted(row["partition_values"] or ()))
        known = (json.loads(row["stats"]) if row["stats"] else {}).get("numRecords")
        deleted = (row["deletion_vector"] or {}).get("cardinality", 0)
        if known is None or counts.get(partition) == -1:
            counts[partition] = -1
        else:
            counts[partition] = counts.get(partition, 0) + known - deleted
    return counts


def check_commit(table: Path, report: JobReport) -> None:
    """Nothing but rearranged rows, and statistics that count what is in the files."""
    assert report.version is not None
    actions = decode_actions((table / commit_key(report.version)).read_bytes(), "commit")
    info = actions[0].commitInfo
    assert info is not None
    assert (info["operation"], info["operationParameters"]["applyPurge"]) == ("REORG", "true")
    for action in actions:
        assert action.remove is None or action.remove.dataChange is False
        if action.add is not None:
            assert (action.add.dataChange, action.add.deletionVector) == (False, None)
            stats = json.loads(action.add.stats or "{}")
            key = next(
                row["key"]
                for row in Table(str(table)).snapshot().files(["path", "key"]).to_pylist()
                if row["path"] == action.add.path
            )
            assert stats["numRecords"] == pq.ParquetFile(table / key).metadata.num_rows


@pytest.mark.parametrize("entry", corpus_cases(optimised))
def test_a_purge_keeps_the_rows_and_comes_to_an_end(entry: Entry, corpus: Corpus, tmp_path: Path) -> None:
    table = corpus.copy_of(entry["name"], tmp_path)
    before = Table(str(table)).snapshot()
    counts = live_counts(before)
    report = run(table, "purge", verify="full")
    after = Table(str(table)).snapshot()
    assert report.status in ("committed", "nothing_to_do")
    assert (report.status == "committed") or before.num_deletion_vectors == 0
    assert after.num_deletion_vectors == 0
    assert corpus.digest(after.to_arrow()) == entry["content_digest"]
    for partition, count in live_counts(after).items():
        assert counts[partition] in (count, -1)
    if report.status == "committed":
        check_commit(table, report)
        check_with_delta_rs(table, entry, corpus)
    assert run(table, "purge", run_id="again").status == "nothing_to_do"
    assert Table(str(table)).snapshot().version == after.version
