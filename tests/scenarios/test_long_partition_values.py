"""Partition values that are too long for the name of a directory, or for the key of an object."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from tests.support.runs.maintenance_runs import keys, run
from tests.support.tables.hand_made_tables import column, data_files, write_log

from delta_log import Table
from delta_maintenance.rewrite.output_files import output_key
from delta_maintenance.rewrite.task import RewriteTask

#: Percent signs triple in the name of a directory, and so do other characters.
ADDRESS = "https://example.org/search?q=" + "ä/b&" * 50


@pytest.mark.parametrize("options", [{}, {"zorder_by": ["id"]}], ids=str)
def test_files_of_a_long_value_are_compacted_into_a_directory_that_does_not_show_it(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    adds = data_files(tmp_path, [pa.table({"id": [n]}) for n in range(4)], [f"{n}.parquet" for n in range(4)])
    for number, add in enumerate(adds):
        add["partitionValues"] = {"url": ADDRESS if number % 2 else "short"}
    schema = [column("id", "long"), column("url", "string")]
    write_log(tmp_path, schema, adds, partitionColumns=["url"])
    before = sorted(map(str, Table(str(tmp_path)).snapshot().to_arrow().to_pylist()))
    assert run(tmp_path, verify="full", **options).status == "committed"
    assert sorted(map(str, Table(str(tmp_path)).snapshot().to_arrow().to_pylist())) == before
    by_delta_rs = deltalake.DeltaTable(str(tmp_path)).to_pyarrow_table().select(["id", "url"])
    assert sorted(map(str, by_delta_rs.to_pylist())) == before
    long, short = sorted(keys(tmp_path), key=lambda key: key.startswith("url="))
    assert short.startswith("url=short/")
    assert len(long.partition("/")[0]) == 2


def test_the_whole_key_fits_into_an_object_store() -> None:
    columns = ("a", "b", "c", "d", "e")
    schema = json.dumps({"type": "struct", "fields": [column(name, "string") for name in columns]})
    values = dict.fromkeys(columns, "x" * 200)
    task = RewriteTask("b", "s3://lake/t", "r", schema, columns, "none", {}, (), values, (), 1, "tag")
    assert len(f"t/{output_key(task)}".encode()) < 1_024
    assert "=" not in output_key(task)
