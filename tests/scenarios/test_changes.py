"""The changes of a range of versions: inserted rows less deleted rows are the difference of the two tables."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake
from tests.support.environment.corpus import Corpus, Entry, corpus_cases
from tests.support.repetition import version_ranges
from tests.support.runs.maintenance_runs import run
from tests.support.tables.small_tables import write_days

from delta_log import Snapshot, Table
from delta_log.errors import (
    ChangesGone,
    CorruptLog,
    DeltaLogError,
    InvalidRequest,
    LogCleaned,
    UnsupportedFeature,
    VersionNotFound,
)
from delta_maintenance.cli.main import main

#: Ranges of long histories are taken from their first versions.
_VERSIONS = 12


def _counted(rows: pa.Table) -> Counter[str]:
    return Counter(json.dumps(row, default=str, sort_keys=True) for row in rows.to_pylist())


def _shown_as(snapshot: Snapshot, newest: Snapshot) -> pa.Table:
    """The rows of a version in the columns of a later version, matched by physical name."""
    before = {column.physical_name: column.name for column in snapshot.schema}
    rows = snapshot.to_arrow()
    columns = []
    for column, field in zip(newest.schema, newest.arrow_schema(), strict=True):
        name = before.get(column.physical_name)
        columns.append(pa.nulls(rows.num_rows, field.type) if name is None else rows[name].cast(field.type))
    return pa.table(columns, newest.arrow_schema().names)


def _net(changes: pa.Table, names: list[str]) -> Counter[str]:
    added = pc.is_in(changes["_change_type"], value_set=pa.array(["insert", "update_postimage"]))
    net = _counted(changes.filter(added).select(names))
    net.subtract(_counted(changes.filter(pc.invert(added)).select(names)))
    return net


def _check(table: Table, first: int, last: int) -> None:
    newest = table.snapshot(last)
    expected = _counted(newest.to_arrow())
    if first:
        expected.subtract(_counted(_shown_as(table.snapshot(first - 1), newest)))
    found = _net(table.changes(first, last).read_all(), newest.arrow_schema().names)
    assert {row: n for row, n in found.items() if n} == {row: n for row, n in expected.items() if n}


#: Files are gone, or a deletion vector is no Z85.
_REFUSED = (ChangesGone, CorruptLog, InvalidRequest, LogCleaned, UnsupportedFeature, VersionNotFound)


@pytest.mark.slow
@pytest.mark.parametrize("entry", corpus_cases(lambda entry: entry["readable"] and entry["data"] == "full"))
def test_changes_of_ranges_of_a_corpus_table_are_the_difference_of_its_versions(
    entry: Entry, corpus: Corpus
) -> None:
    table = Table(str(corpus.table(entry["name"])))
    for first, last in version_ranges(min(_VERSIONS, table.snapshot().version + 1)):
        try:
            table.changes(first, last).read_all()
            table.snapshot(max(0, first - 1)).to_arrow()
        except _REFUSED:
            continue
        _check(table, first, last)


@pytest.fixture
def written(tmp_path: Path) -> Path:
    """Four appends, an update, a delete, and an OPTIMIZE."""
    path = tmp_path / "events"
    write_days(path, files=4, rows=5)
    table = DeltaTable(str(path))
    table.update({"text": "'new'"}, predicate="id < 3")
    table.delete("id >= 17")
    assert run(path).status == "committed"
    return path


def test_changes_of_every_range_are_the_difference_of_its_versions(written: Path) -> None:
    table = Table(str(written))
    newest = table.snapshot().version
    for first in range(newest + 1):
        for last in range(first, newest + 1):
            _check(table, first, last)


def test_maintenance_changes_no_row(written: Path) -> None:
    table = Table(str(written))
    assert table.changes(table.snapshot().version).read_all().num_rows == 0


def test_changes_have_the_version_and_the_time_of_their_commit(written: Path) -> None:
    table = Table(str(written))
    times = {commit["version"]: commit["timestamp"] for commit in table.history()}
    rows = table.changes(1, 2).read_all()
    found = zip(rows["_commit_version"].to_pylist(), rows["_commit_timestamp"].cast(pa.int64()), strict=True)
    assert {(version, time.as_py() // 1000) for version, time in found} == {(1, times[1]), (2, times[2])}


def test_rows_are_shown_as_the_last_version_of_the_range_has_them(tmp_path: Path) -> None:
    path = tmp_path / "wider"
    write_deltalake(str(path), pa.table({"id": [1]}))
    write_deltalake(str(path), pa.table({"id": [2], "more": ["x"]}), mode="append", schema_mode="merge")
    assert Table(str(path)).changes(0, 0).schema.names[:2] == ["id", "_change_type"]
    rows = Table(str(path)).changes(0).read_all()
    assert rows.select(["id", "more"]).to_pylist() == [{"id": 1, "more": None}, {"id": 2, "more": "x"}]


def _overwritten(path: Path) -> Table:
    write_deltalake(str(path), pa.table({"id": [1]}))
    write_deltalake(str(path), pa.table({"id": ["one"]}), mode="overwrite", schema_mode="overwrite")
    return Table(str(path))


def test_a_range_with_a_column_of_two_types_is_refused(tmp_path: Path) -> None:
    table = _overwritten(tmp_path / "overwritten")
    with pytest.raises(InvalidRequest, match="column id had another type in version 0"):
        table.changes(0)
    assert table.changes(0, 0).read_all().num_rows == 1


def test_a_table_with_a_column_of_that_name_is_refused(tmp_path: Path) -> None:
    write_deltalake(str(tmp_path / "odd"), pa.table({"_change_type": [1]}))
    with pytest.raises(InvalidRequest, match="a column _change_type of its own"):
        Table(str(tmp_path / "odd")).changes(0)


@pytest.mark.parametrize(
    ("first", "last", "error"),
    [(3, 2, InvalidRequest), (-1, 2, InvalidRequest), (99, None, InvalidRequest), (0, 99, VersionNotFound)],
)
def test_a_range_without_versions_is_refused(
    written: Path, first: int, last: int | None, error: type[DeltaLogError]
) -> None:
    with pytest.raises(error):
        Table(str(written)).changes(first, last)


def test_commits_that_were_cleaned_are_named(written: Path) -> None:
    DeltaTable(str(written)).create_checkpoint()
    for version in range(3):
        (written / "_delta_log" / f"{version:020}.json").unlink()
    with pytest.raises(LogCleaned, match="Go on from version 3"):
        Table(str(written)).changes(1)


def test_a_file_that_vacuum_deleted_is_named(written: Path) -> None:
    table = Table(str(written))
    path = table.snapshot(0).files(["path"])["path"][0].as_py()
    (written / path).unlink()
    with pytest.raises(ChangesGone, match="what version 0 changed cannot be read any more") as caught:
        table.changes(0).read_all()
    assert (caught.value.version, caught.value.path) == (0, path)


def _command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    code = main(["changes", *arguments, "--json"])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.parametrize("name", ["rows.parquet", "rows.arrow"])
def test_the_command_counts_and_writes_the_rows(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    output = tmp_path / name
    code, result = _command(capsys, str(written), "--from-version", "1", "--output", str(output))
    assert code == 0
    assert (result["fromVersion"], result["toVersion"]) == (1, Table(str(written)).snapshot().version)
    assert sum(commit["numInsertedRows"] - commit["numDeletedRows"] for commit in result["commits"]) == 12
    rows = pq.read_table(output) if name.endswith("parquet") else pa.ipc.open_file(output).read_all()
    assert rows.equals(Table(str(written)).changes(1).read_all())
    code, result = _command(capsys, str(written), "--from-version", "1", "--output", str(output))
    assert (code, result["error"]["type"]) == (2, "InvalidRequest")


def test_the_command_writes_no_file_where_it_fails(
    written: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Table(str(written)).snapshot(1).files(["path"])["path"][0].as_py()
    (written / path).unlink()
    directory = tmp_path / "results"
    directory.mkdir()
    for name in ("rows.parquet", "rows.csv"):
        code, _ = _command(capsys, str(written), "--from-version", "0", "--output", str(directory / name))
        assert code == 2
    assert list(directory.iterdir()) == []
