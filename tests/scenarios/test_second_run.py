"""OPTIMIZE twice: the second run finds nothing to do, however much smaller than its sources a new file has become.

And what a run without work leaves alone.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import fsspec
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples
from tests.support.runs.maintenance_runs import run
from tests.support.tables.small_tables import write_days
from tests.support.tables.written_log import add, write_log

from delta_log import Table
from delta_log.errors import InvalidRequest


@examples(12)
@given(
    files=st.lists(st.tuples(st.integers(50, 4_000), st.sampled_from([3, 1 << 40])), min_size=2, max_size=12),
    max_files=st.none() | st.integers(2, 6),
)
def test_a_second_run_finds_nothing_to_do(files: list[tuple[int, int]], max_files: int | None) -> None:
    with tempfile.TemporaryDirectory() as directory:
        table = Path(directory) / "table"
        table.mkdir()
        adds = []
        for number, (rows, kinds) in enumerate(files):
            values = np.random.default_rng(number).integers(0, kinds, rows)
            # With few distinct values, a rewritten file is a tenth as large.
            path = table / f"{number}.parquet"
            pq.write_table(pa.table({"value": values}), path, compression="none", use_dictionary=False)
            adds.append(add(path.name, path.stat().st_size))
        write_log(table, adds)
        before = sorted(Table(str(table)).snapshot().to_arrow().column("value").to_pylist())
        runs = 0
        while run(table, run_id=f"run-{runs}", target_size_bytes=20_000, max_files=max_files).status != (
            "nothing_to_do"
        ):
            runs += 1
            assert runs <= (1 if max_files is None else len(files)), "each run has less to do"
        assert sorted(Table(str(table)).snapshot().to_arrow().column("value").to_pylist()) == before


def test_a_run_without_work_does_not_ask_whether_the_store_can_be_written(tmp_path: Path) -> None:
    write_days(tmp_path / "days", files=3, rows=10, days=3)
    write_days(tmp_path / "small", files=6, rows=10, days=3)
    files = fsspec.filesystem("memory")
    for name in ("days", "small"):
        files.put(f"{tmp_path / name}/", f"/read-only/{name}/", recursive=True)
    assert run(Table("memory://read-only/days")).status == "nothing_to_do"
    with pytest.raises(InvalidRequest, match="can only be read"):
        run(Table("memory://read-only/small"))
    files.rm("/read-only", recursive=True)
