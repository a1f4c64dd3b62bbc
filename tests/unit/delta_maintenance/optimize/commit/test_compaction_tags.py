"""A compaction's removes say where each row went, or nothing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples
from tests.support.runs.maintenance_runs import (
    WatchedEngine,
    enable_deletion_vectors,
    keys,
    mark_deleted,
    run,
)
from tests.support.tables.small_tables import write_days

from delta_log import Table
from delta_log.data.deletion_vector import read_deletion_vector
from delta_log.log.actions import Add, DeletionVector, Remove, decode_commit
from delta_log.log.file_names import commit_key
from delta_maintenance.optimize.commit.compaction_tags import compaction_tags
from delta_maintenance.rewrite.task import BinManifest, OutputFile, SourceFile

SOURCES = st.lists(st.lists(st.booleans(), max_size=8), min_size=1, max_size=5)


def _manifest(deleted: list[list[bool]], **more: Any) -> BinManifest:
    sources = tuple(
        SourceFile(
            f"{number}", f"{number}", 1, deletion_vector={"cardinality": sum(rows)} if any(rows) else None
        )
        for number, rows in enumerate(deleted)
    )
    rows, dead = sum(map(len, deleted)), sum(map(sum, deleted))
    facts: dict[str, Any] = {
        "outputs": (OutputFile("a%20b", "a b", 1, 1, rows - dead),),
        "source_rows": tuple(map(len, deleted)),
    }
    return BinManifest("bin", "run", {}, sources, rows_in=rows, rows_deleted=dead, rows_out=rows - dead,
                       elapsed_ms=1, **{**facts, **more})  # fmt: skip


@examples(500)
@given(SOURCES)
def test_each_live_row_is_where_the_tags_say(deleted: list[list[bool]]) -> None:
    written = [
        (source, row) for source, rows in enumerate(deleted) for row, dead in enumerate(rows) if not dead
    ]
    for source, (tags, rows) in enumerate(zip(compaction_tags(_manifest(deleted)), deleted, strict=True)):
        assert json.loads(tags["compactedInto"]) == ["a%20b"]
        (info,) = json.loads(tags["compactionInfo"])
        assert info["sourceNumPhysicalRecords"] == len(rows)
        for row, dead in enumerate(rows):
            if not dead:
                assert written[info["rowOffsetInTarget"] + row - sum(rows[:row])] == (source, row)


@pytest.mark.parametrize(
    "untrue",
    [
        {"source_rows": ()},
        {"outputs": ()},
        {"outputs": (OutputFile("a", "a", 1, 1, 1), OutputFile("b", "b", 1, 1, 2))},
        {"clustering_provider": "liquid"},
    ],
    ids=["a layout", "no live row", "two files", "clustering"],
)
def test_nothing_is_said_where_it_would_not_be_true(untrue: dict[str, Any]) -> None:
    assert compaction_tags(_manifest([[False], [False, False]], **untrue)) == [{}, {}]


def _files(table: Path, version: int | None) -> tuple[list[Add], list[Remove]]:
    assert version is not None
    actions = decode_commit((table / commit_key(version)).read_bytes(), "")
    return [a.add for a in actions if a.add], [a.remove for a in actions if a.remove]


def _ids(table: Path, path: str) -> list[int]:
    found: list[int] = pq.read_table(table / path, columns=["id"])["id"].to_pylist()
    return found


def _hidden(table: Path, vector: DeletionVector | None) -> set[int]:
    if vector is None:
        return set()
    return set(read_deletion_vector(vector, Table(str(table)).storage).rows().tolist())


def _table(path: Path) -> Path:
    write_days(path, files=4, rows=10, days=1)
    enable_deletion_vectors(path)
    first, _, third, _ = sorted(keys(path))
    mark_deleted(path, {first: [0, 4], third: [9]})
    return path


@pytest.mark.parametrize("rewrite", ["auto", "encode"])
def test_rows_of_a_table_are_found_by_the_tags_of_its_commit(tmp_path: Path, rewrite: str) -> None:
    table = _table(tmp_path / "t")
    report = run(table, rewrite=rewrite, max_deleted_rows_ratio=0)
    (add,), removes = _files(table, report.version)
    assert len(removes) == 4
    written = _ids(table, add.path)
    for remove in removes:
        assert json.loads((remove.tags or {})["compactedInto"]) == [add.path]
        (info,) = json.loads((remove.tags or {})["compactionInfo"])
        source, hidden = _ids(table, remove.path), _hidden(table, remove.deletionVector)
        assert info["sourceNumPhysicalRecords"] == len(source)
        live = [row for at, row in enumerate(source) if at not in hidden]
        assert written[info["rowOffsetInTarget"] :][: len(live)] == live


@pytest.mark.parametrize("options", [{"zorder_by": ["id"]}])
def test_a_layout_says_nothing(tmp_path: Path, options: dict[str, Any]) -> None:
    table = _table(tmp_path / "t")
    _, removes = _files(table, run(table, **options).version)
    assert removes
    assert not any(remove.tags for remove in removes)


def test_a_bin_that_took_over_deletions_says_nothing(tmp_path: Path) -> None:
    table = _table(tmp_path / "t")
    last = max(keys(table))
    engine = WatchedEngine(after=lambda _: mark_deleted(table, {last: [3]}))
    report = run(table, engine=engine, remap=True)
    adds, removes = _files(table, report.version)
    assert [add.deletionVector is not None for add in adds] == [True]
    assert len(removes) == 4
    assert not any(remove.tags for remove in removes)
