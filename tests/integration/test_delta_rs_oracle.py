"""Random work by delta-rs on a table, and after each step its view of the log and of the rows against ours."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import HealthCheck, given
from hypothesis import strategies as st
from tests.support.repetition import examples

from delta_log import Table

COLUMNS = pa.schema(
    [
        ("id", pa.int64()),
        ("part", pa.string()),
        ("amount", pa.decimal128(12, 2)),
        ("at", pa.timestamp("us", tz="UTC")),
    ]
)
STEPS = ("append", "delete", "update", "overwrite", "evolve", "compact", "checkpoint", "compact log")


def some_rows(start: int, count: int, wide: bool) -> pa.Table:
    ids = list(range(start, start + count))
    rows = pa.table(
        {
            "id": ids,
            "part": [[None, "x", "ä b/c", "%:="][n % 4] for n in ids],
            "amount": pa.array([None if n % 5 == 0 else Decimal(n) for n in ids], pa.decimal128(12, 2)),
            "at": pa.array([n * 1_000_003 - 10**15 for n in ids], pa.timestamp("us", tz="UTC")),
        },
        schema=COLUMNS,
    )
    return rows.append_column("note", pa.array([f"n{n}" for n in ids])) if wide else rows


def do(uri: str, step: str, number: int, wide: bool) -> None:
    if step == "append":
        deltalake.write_deltalake(uri, some_rows(number * 100, 7, wide), mode="append", schema_mode="merge")
        return
    if step == "overwrite":
        deltalake.write_deltalake(
            uri, some_rows(number * 100, 5, wide), mode="overwrite", schema_mode="merge"
        )
        return
    table = deltalake.DeltaTable(uri)
    if step == "delete":
        table.delete(f"id % 3 = {number % 3}")
    elif step == "update":
        table.update(predicate=f"id % 4 = {number % 4}", updates={"amount": "1.5"})
    elif step == "compact":
        table.optimize.compact()
    elif step == "checkpoint":
        table.create_checkpoint()
    elif step == "compact log" and table.version() > 0:
        table.compact_logs(0, table.version())


def seen_by_us(uri: str, version: int | None = None) -> tuple[int, list[str], list[str]]:
    snapshot = Table(uri).snapshot(version=version)
    rows = sorted(json.dumps(row, default=str, sort_keys=True) for row in snapshot.to_arrow().to_pylist())
    return snapshot.version, sorted(snapshot.files(["path"]).column(0).to_pylist()), rows


def seen_by_delta_rs(uri: str, version: int | None = None) -> tuple[int, list[str], list[str]]:
    table = deltalake.DeltaTable(uri, version=version)
    found: Any = deltalake.QueryBuilder().register("t", table).execute("SELECT * FROM t").read_all()
    plain = pa.table(found)
    kinds = {"string_view": pa.string(), "large_string": pa.string()}
    fields = [f.with_type(kinds.get(str(f.type), f.type)) for f in plain.schema]
    rows = plain.cast(pa.schema(fields)).to_pylist()
    paths = pa.table(table.get_add_actions())["path"].to_pylist()
    return (
        table.version(),
        sorted(paths),
        sorted(json.dumps(row, default=str, sort_keys=True) for row in rows),
    )


@pytest.mark.filterwarnings("ignore")
@examples(12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from(STEPS), min_size=2, max_size=8), partitioned=st.booleans())
def test_delta_rs_and_we_see_the_same_table(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], partitioned: bool
) -> None:
    path: Path = tmp_path_factory.mktemp("oracle") / "t"
    uri = str(path)
    partition_by = ["part"] if partitioned else None
    deltalake.write_deltalake(uri, some_rows(0, 11, wide=False), partition_by=partition_by)
    refreshed = Table(uri).snapshot()
    wide = False
    for number, step in enumerate(steps, start=1):
        wide = wide or step == "evolve"
        do(uri, "append" if step == "evolve" else step, number, wide)
        ours = seen_by_us(uri)
        assert ours == seen_by_delta_rs(uri)
        refreshed = Table(uri).snapshot(refresh_from=refreshed)
        assert (refreshed.version, refreshed.num_files) == (ours[0], len(ours[1]))
        assert sorted(refreshed.files(["path"]).column(0).to_pylist()) == ours[1]
    for version in range(ours[0]):
        assert seen_by_us(uri, version) == seen_by_delta_rs(uri, version)
