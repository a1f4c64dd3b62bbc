"""OPTIMIZE twice: the second run finds nothing to do, however much smaller than its sources a new file has become."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples
from tests.support.runs.maintenance_runs import run
from tests.support.tables.written_log import add, write_log

from delta_log import Table


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
