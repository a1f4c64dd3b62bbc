"""VACUUM on aged copies of every corpus table: rows are kept, by our reading and by delta-rs's.

By delta-spark's they are where something is deleted, in :mod:`tests.integration.test_vacuum_like_delta_spark`.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pytest
from tests.support.environment.corpus import Corpus, Entry, corpus_cases
from tests.support.runs.vacuum_runs import files_below, run_vacuum
from tests.support.tables.vacuumable_tables import age

from delta_log import Table
from delta_log.errors import UnsupportedFeature
from delta_log.table_config.features import Operation, require

CopyTable = Callable[[str], Path]


def has_data(entry: Entry) -> bool:
    return bool(entry["readable"] and entry["data"] == "full")


def rows_by_us(table: Path, corpus: Corpus) -> str | None:
    """``None``: there are columns that we do not read."""
    try:
        return corpus.digest(Table(str(table)).snapshot().to_arrow())
    except UnsupportedFeature:
        return None


def rows_by_delta_rs(table: Path, corpus: Corpus) -> str | None:
    """``None``: delta-rs does not read this table."""
    try:
        rows = deltalake.DeltaTable(str(table)).to_pyarrow_table()
    except Exception:  # it has many kinds
        return None
    return corpus.digest(rows)


@pytest.mark.parametrize("entry", corpus_cases(has_data))
def test_the_rows_of_a_table_outlive_a_vacuum(entry: Entry, corpus: Corpus, corpus_copy: CopyTable) -> None:
    table = corpus_copy(entry["name"])
    age(table)
    snapshot = Table(str(table)).snapshot()
    try:
        require(snapshot.protocol, Operation.VACUUM)
    except UnsupportedFeature:
        assert run_vacuum(table).error.type == "UnsupportedFeature"  # type: ignore[union-attr]
        return
    before, rows, by_delta_rs = files_below(table), rows_by_us(table, corpus), rows_by_delta_rs(table, corpus)
    modes: tuple[dict[str, Any], ...] = ({}, {"retain_hours": 0, "retention_check": False})
    for options in modes:
        planned = run_vacuum(table, dry_run=True, **options)
        assert planned.error is None, planned.error
        assert files_below(table) == before
        report = run_vacuum(table, **options)
        assert report.error is None, report.error.message
        after = files_below(table)
        assert planned.plan is not None
        assert report.metrics["numDeletedFiles"] == planned.plan["numFilesToDelete"] == len(before - after)
        before = after
        assert rows_by_us(table, corpus) == rows
        assert rows_by_delta_rs(table, corpus) == by_delta_rs
    again = run_vacuum(table, retain_hours=0, retention_check=False)
    assert (again.status, again.version) == ("nothing_to_do", None)
