"""ANALYZE: files get true statistics, from the footer or from the columns, and no data file is touched."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.environment.corpus import Corpus, Entry, corpus_cases
from tests.support.runs.maintenance_runs import enable_deletion_vectors, keys, mark_deleted
from tests.support.runs.vacuum_runs import contents, done
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_log.testing import FaultyStorage
from delta_maintenance.analyze.plan import are_untrue
from delta_maintenance.contract import JobReport, JobSpec, TransactionId
from delta_maintenance.job import JobSite, run_job, run_on
from delta_maintenance.progress import SilentProgress
from delta_maintenance.text.report import render_report

ROWS = pa.table(
    {
        "id": pa.array([3, 1, None, 2], pa.int64()),
        "small": pa.array([3, 1, 2, 2], pa.int32()),
        "x": [0.5, math.nan, 2.0, None],
        "y": [0.5, 1.5, 2.0, None],
        "text": ["b" * 100, "a", None, "c" * 5000],
        "day": [date(2024, 1, 1), date(2023, 5, 5), None, date(2025, 1, 1)],
        "at": pa.array([datetime(2024, 1, 1, 1, 1, 1, 123456, timezone.utc)] * 4, pa.timestamp("us", "UTC")),
        "amount": [Decimal("1.50"), Decimal("-2.25"), None, Decimal("3.00")],
        "flag": [True, False, None, True],
        "nested": [{"a": 1, "b": "x"}, None, {"a": None, "b": "y"}, {"a": 5, "b": None}],
        "list": [[1], None, [], [2, 3]],
    }
)


def analyze(
    table: Path, *, dry_run: bool = False, transaction: TransactionId | None = None, **options: Any
) -> JobReport:
    spec = JobSpec("analyze", str(table), "analyzing", options, dry_run=dry_run, transaction=transaction)
    return run_job(spec, JobSite(), SilentProgress())


def with_stats(table: Path, stats: str | None) -> None:
    """Give each live file other statistics, by a commit of another writer."""
    snapshot = Table(str(table)).snapshot()
    log = table / "_delta_log"
    lines = []
    for row in snapshot.files().to_pylist():
        vector = row["deletion_vector"]
        add = {
            "path": row["path"],
            "partitionValues": dict(row["partition_values"]),
            "size": row["size"],
            "modificationTime": row["modification_time"],
            "dataChange": False,
            **({} if stats is None else {"stats": stats}),
            **(
                {}
                if vector is None
                else {"deletionVector": {k: v for k, v in vector.items() if v is not None}}
            ),
        }
        lines.append(json.dumps({"add": add}) + "\n")
    (log / f"{snapshot.version + 1:020}.json").write_text("".join(lines))


def stats_of(table: Path) -> list[dict[str, Any]]:
    return [json.loads(text) for text in Table(str(table)).snapshot().files(["stats"])["stats"].to_pylist()]


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "t"
    write_deltalake(str(path), ROWS)
    with_stats(path, None)
    return path


def test_statistics_are_computed_from_footer_and_columns(table: Path) -> None:
    before = {key: data for key, data in contents(table).items() if key.endswith(".parquet")}
    planned = done(analyze(table, dry_run=True))
    report = done(analyze(table))
    assert (report.status, report.version, report.plan) == ("committed", 2, planned.plan)
    assert report.metrics == {"numUpdatedFiles": 1}
    (stats,) = stats_of(table)
    assert stats["numRecords"] == 4
    assert stats["nullCount"] == {
        "id": 1,
        "small": 0,
        "x": 1,
        "y": 1,
        "text": 1,
        "day": 1,
        "at": 0,
        "amount": 1,
        "flag": 1,
        "list": 1,
        "nested": {"a": 2, "b": 2},
    }
    lows, highs = stats["minValues"], stats["maxValues"]
    assert "x" not in lows
    assert "x" not in highs
    assert (lows["id"], highs["id"], lows["y"], highs["y"]) == (1, 3, 0.5, 2.0)
    assert (lows["text"], len(highs["text"])) == ("a", 33)
    assert highs["text"] >= "c" * 32
    assert (lows["day"], highs["day"]) == ("2023-05-05", "2025-01-01")
    assert (lows["at"], highs["at"]) == ("2024-01-01T01:01:01.123Z", "2024-01-01T01:01:01.124Z")
    assert (lows["amount"], highs["amount"]) == (-2.25, 3.0)
    assert (lows["nested"], highs["nested"]) == ({"a": 1, "b": "x"}, {"a": 5, "b": "y"})
    assert {key: data for key, data in contents(table).items() if key.endswith(".parquet")} == before
    (commit,) = Table(str(table)).history(1)
    assert (commit["operation"], commit["operationMetrics"]) == ("COMPUTE STATS", {"numUpdatedFiles": 1})
    assert "Committed version 2 with the statistics of 1 file" in render_report(report.to_dict())
    assert analyze(table).status == "nothing_to_do"
    assert analyze(table, every_file=True).status == "nothing_to_do"
    assert DeltaTable(str(table)).to_pyarrow_table().num_rows == 4


def test_a_footer_is_enough_where_it_tells_all(tmp_path: Path) -> None:
    write_days(tmp_path / "t", files=2)
    with_stats(tmp_path / "t", None)
    report = done(analyze(tmp_path / "t"))
    assert report.plan is not None
    assert (report.plan["numFilesAnalyzed"], report.plan["numFilesWithColumnsRead"]) == (2, 0)
    assert all(stats["numRecords"] == 100 for stats in stats_of(tmp_path / "t"))


def test_the_properties_choose_the_columns(table: Path) -> None:
    DeltaTable(str(table)).alter.set_table_properties({"delta.dataSkippingStatsColumns": "day,nested.a"})
    done(analyze(table))
    (stats,) = stats_of(table)
    assert stats["nullCount"] == {"day": 1, "nested": {"a": 2}}


@pytest.mark.parametrize(
    "wrong",
    [
        {"numRecords": 5},
        {"maxValues": {"id": 2}},
        {"minValues": {"text": "b"}},
        {"nullCount": {"day": 0}},
        {"minValues": {"x": 0.5}, "maxValues": {"x": 2.0}},
        {"maxValues": {"at": "2024-01-01T01:01:01.122Z"}},
        {"maxValues": {"amount": 2.99}},
    ],
)
def test_untrue_statistics_are_corrected_where_every_file_is_asked_for(
    table: Path, wrong: dict[str, Any]
) -> None:
    done(analyze(table))
    (right,) = stats_of(table)
    merged = {
        name: {**value, **wrong.get(name, {})} if isinstance(value, dict) else wrong.get(name, value)
        for name, value in right.items()
    }
    with_stats(table, json.dumps(merged))
    assert analyze(table).status == "nothing_to_do"
    report = done(analyze(table, every_file=True))
    assert report.plan is not None
    assert (report.status, report.plan["numFilesWithUntrueStatistics"]) == ("committed", 1)
    assert stats_of(table) == [right]


def test_true_statistics_of_other_writers_stay(table: Path) -> None:
    """Wider bounds, uncut texts, maxima rounded down to milliseconds, and Spark's NaN."""
    done(analyze(table))
    (right,) = stats_of(table)
    right["minValues"] |= {"id": -5, "x": 0.5}
    right["maxValues"] |= {"text": "c" * 5000, "at": "2024-01-01T01:01:01.123Z", "x": "NaN"}
    with_stats(table, json.dumps(right))
    assert analyze(table, every_file=True).status == "nothing_to_do"


def test_a_file_with_a_vector_has_wide_bounds(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_days(table, files=2, days=1)
    enable_deletion_vectors(table)
    key = keys(table)[0]
    mark_deleted(table, {key: range(10)})
    with_stats(table, '{"numRecords":100}')
    done(analyze(table))
    assert sorted(stats["tightBounds"] for stats in stats_of(table)) == [False, True]
    assert Table(str(table)).snapshot().num_deleted_rows == 10
    assert Table(str(table)).snapshot().to_arrow().num_rows == 190


def test_only_files_in_scope_and_within_the_limit_are_looked_at(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_days(table, files=6, days=2)
    with_stats(table, None)
    report = done(analyze(table, where="day = '2024-01-01'", max_files=2))
    assert report.metrics == {"numUpdatedFiles": 2}
    assert done(analyze(table, where="day = '2024-01-01'")).metrics == {"numUpdatedFiles": 1}
    assert done(analyze(table)).metrics == {"numUpdatedFiles": 3}


def test_a_file_that_cannot_be_read_is_named_and_the_others_go_on(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_days(table, files=3)
    with_stats(table, None)
    missing, broken, _ = keys(table)
    (table / missing).unlink()
    (table / broken).write_bytes(b"no Parquet")
    report = done(analyze(table))
    assert report.plan is not None
    assert (report.metrics, set(report.plan["unreadable"])) == ({"numUpdatedFiles": 1}, {missing, broken})
    assert "2 files could not be read" in render_report(report.to_dict())


def test_a_file_that_lost_a_column_or_a_type_since_is_read(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_deltalake(str(table), pa.table({"id": [1, 2]}))
    write_deltalake(str(table), pa.table({"id": [3], "more": ["x"]}), mode="append", schema_mode="merge")
    with_stats(table, None)
    done(analyze(table))
    assert sorted(stats["nullCount"]["more"] for stats in stats_of(table)) == [0, 2]


def test_a_file_that_changes_meanwhile_is_left_out(tmp_path: Path) -> None:
    table = tmp_path / "t"
    write_days(table, files=4, days=2)
    with_stats(table, None)
    pending = [lambda: DeltaTable(str(table)).delete("day = '2024-01-01'")]
    opened = Table(str(table))

    def before(name: str, key: str) -> None:
        if name == "put_if_absent" and pending:
            pending.pop()()

    opened.storage = FaultyStorage(opened.storage, before)
    report = done(run_on(opened, JobSpec("analyze", str(table), "r", {}), JobSite(), SilentProgress()))
    assert report.metrics == {"numUpdatedFiles": 2}
    assert len(keys(table)) == 2


def test_a_retry_commits_once(table: Path) -> None:
    tries = [done(analyze(table, transaction=TransactionId("task", 1))) for _ in range(2)]
    assert [(report.status, report.version) for report in tries] == [("committed", 2), ("already_done", 2)]
    assert "an earlier try committed version 2" in render_report(tries[1].to_dict())


def test_statistics_that_are_no_json_are_untrue() -> None:
    assert are_untrue("[", '{"numRecords":1}', ())


@pytest.mark.slow
@pytest.mark.parametrize("entry", corpus_cases(lambda entry: entry["readable"] and entry["data"] == "full"))
def test_rows_of_a_corpus_table_stay_and_its_statistics_are_true(
    entry: Entry, corpus: Corpus, tmp_path: Path
) -> None:
    path = corpus.copy_of(entry["name"], tmp_path)
    before = corpus.digest(Table(str(path)).snapshot().to_arrow())
    report = analyze(path, every_file=True)
    if report.error is not None:
        assert report.error.kind == "refused", report.error
        return
    assert corpus.digest(Table(str(path)).snapshot().to_arrow()) == before
    again = done(analyze(path, every_file=True))
    assert again.status == "nothing_to_do", again.plan
