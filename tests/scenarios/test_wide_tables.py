"""Tables of very many columns: the work grows as the number of columns does, not with its square."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from tests.support.runs.maintenance_runs import run


def _flat(count: int) -> pa.Table:
    return pa.table({f"column {n}": pa.array([n, None], pa.int64()) for n in range(count)})


def _nested(count: int) -> pa.Table:
    return pa.table({"id": [1, 2], "wide": [{f"member {n}": n for n in range(count)}] * 2})


def _calls_of_an_optimize(table: Path, rows: pa.Table, **options: Any) -> int:
    """Count the calls of functions, and the steps of generators, in all threads."""
    for _ in range(3):
        deltalake.write_deltalake(str(table), rows, mode="append")
    calls = 0

    def count(frame: FrameType, event: str, arg: object) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    threading.setprofile(count)
    sys.setprofile(count)
    try:
        report = run(table, **options)
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    assert report.status == "committed"
    return calls


@pytest.mark.parametrize("rewrite", ["auto", "copy"])
@pytest.mark.parametrize("rows", [_flat, _nested])
def test_work_grows_with_the_number_of_columns(
    tmp_path: Path, rows: Callable[[int], pa.Table], rewrite: str
) -> None:
    # What is known of footers from other tests would be missing for more columns.
    few, many = (
        _calls_of_an_optimize(tmp_path / str(count), rows(count), rewrite=rewrite) for count in (300, 1_200)
    )
    assert many < 6 * few
