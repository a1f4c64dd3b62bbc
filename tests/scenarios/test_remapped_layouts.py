"""Deletions that come while a layout moves rows are found where the rows went: by the row map that the rewrite leaves."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.repetition import examples
from tests.support.runs.maintenance_runs import (
    WatchedEngine,
    enable_deletion_vectors,
    keys,
    manifests,
    mark_deleted,
    remove_files,
    run,
)
from tests.support.runs.shared_bins import SharingEngine

from delta_log import Table
from delta_log.errors import ConcurrentDelete
from delta_maintenance.contract import JobReport
from delta_maintenance.engine.local import LocalEngine
from delta_maintenance.layout.layout import KINDS
from delta_maintenance.progress import SilentProgress
from delta_maintenance.rewrite.manifest import row_map
from delta_maintenance.rewrite.task import BinManifest

FILES, ROWS = 4, 60
OPTIONS: dict[str, Any] = {"remap": True, "by": ["a", "text"], "target_size_bytes": 1200}


class OnDisk(WatchedEngine):
    """As :class:`WatchedEngine`, but every row goes through a temporary file."""

    def run(self, tasks: Any, progress: Any, run_key: Any) -> Any:
        for number, task in enumerate(tasks, 1):
            yield from LocalEngine({}, memory_limit_bytes=1).run([task], progress, run_key)
            assert self._after is not None
            self._after(number)


def write(table: Path) -> Path:
    """Files in which no row has its place by any column."""
    chance = random.Random(7)
    for number in range(FILES):
        values = [chance.randrange(1000) for _ in range(ROWS)]
        rows = {
            "id": range(number * ROWS, (number + 1) * ROWS),
            "a": values,
            "text": [f"t{n % 17}" for n in values],
        }
        deltalake.write_deltalake(str(table), pa.table(rows), mode="append")
    enable_deletion_vectors(table)
    return table


def rows_of(table: Path) -> list[tuple[int, int, str]]:
    rows = Table(str(table)).snapshot().to_arrow()
    return sorted(zip(*(rows.column(name).to_pylist() for name in ("id", "a", "text")), strict=True))


def ids(table: Path) -> list[int]:
    return [row[0] for row in rows_of(table)]


def first_ids(table: Path) -> dict[str, int]:
    """The id of the first row of each file, by key."""
    files = Table(str(table)).snapshot().files(["key", "stats"]).to_pylist()
    return {file["key"]: int(file["stats"].split('"id":')[1].split(",")[0].strip("} ")) for file in files}


def disturbed(table: Path, meanwhile: Callable[[], object], **options: Any) -> JobReport:
    engine = options.pop("engine", WatchedEngine)
    return run(table, engine=engine(lambda _: meanwhile()), **{"layout": "kd", **OPTIONS, **options})


deletions = st.dictionaries(st.integers(0, FILES - 1), st.sets(st.integers(0, ROWS - 1), max_size=12))


@pytest.mark.parametrize(
    ("kind", "engine"),
    [*((kind, WatchedEngine) for kind in KINDS), ("hilbert", OnDisk), ("kd", SharingEngine)],
)
@examples(6)
@given(before=deletions, meanwhile=deletions, gone=st.sets(st.integers(0, FILES - 1), max_size=1))
def test_rows_deleted_meanwhile_stay_deleted_wherever_the_layout_put_them(
    kind: str,
    engine: type[WatchedEngine | SharingEngine],
    before: dict[int, set[int]],
    meanwhile: dict[int, set[int]],
    gone: set[int],
) -> None:
    with tempfile.TemporaryDirectory() as directory:
        table = write(Path(directory) / "t")
        files = sorted(first_ids(table).items(), key=lambda file: file[1])
        vectors = {files[number][0]: rows for number, rows in before.items() if rows}
        if vectors:
            mark_deleted(table, vectors)
        expected: list[list[tuple[int, int, str]]] = []
        named: list[BinManifest] = []

        def others() -> None:
            more = {
                files[number][0]: rows | before.get(number, set())
                for number, rows in meanwhile.items()
                if not rows <= before.get(number, set())
            }
            if more:
                mark_deleted(table, more)
            for number in gone:
                remove_files(table, files[number][0])
            expected.append(rows_of(table))
            named.extend(manifests(table))

        report = disturbed(table, others, layout=kind, engine=engine, max_deleted_rows_ratio=0)
        changed = bool(gone) or any(not rows <= before.get(n, set()) for n, rows in meanwhile.items())
        assert (report.status, report.remapped_bins) == ("committed", int(changed))
        assert rows_of(table) == expected[0]
        assert report.metrics["numAddedFiles"] > 2
        (manifest,) = named
        # An older release, which knows no row maps, must not take the rows for ones in order.
        assert (manifest.source_rows, manifest.row_map is None) == ((), False)
        assert not list(table.rglob("*.rows"))


def test_without_the_option_no_row_map_is_written(tmp_path: Path) -> None:
    table = write(tmp_path / "t")
    found: list[BinManifest] = []

    def look() -> None:
        found.extend(manifests(table))
        assert not list(table.rglob("*.rows"))

    assert disturbed(table, look, remap=False).status == "committed"
    assert [manifest.row_map for manifest in found] == [None]


@pytest.mark.parametrize("what", ["gone", "changed", "shorter", "longer"])
def test_a_row_map_that_others_spoilt_is_not_believed(what: str, tmp_path: Path) -> None:
    table = write(tmp_path / "t")
    key = min(keys(table))
    expected: list[list[int]] = []

    def others() -> None:
        mark_deleted(table, {key: [3]})
        expected.append(ids(table))
        (file,) = table.rglob("*.rows")
        content = file.read_bytes()
        assert len(content) == 4 * FILES * ROWS
        file.unlink()
        swapped = content[4:8] + content[:4] + content[8:]
        spoilt = {"changed": swapped, "shorter": content[:-2], "longer": content + b"more"}
        if what in spoilt:
            file.write_bytes(spoilt[what])

    if what == "longer":
        assert disturbed(table, others).remapped_bins == 1
    else:
        with pytest.raises(ConcurrentDelete, match="gone, or was changed"):
            disturbed(table, others)
        assert ids(table) == expected[0]
        # The next try plans anew, and removes what the first one left.
        assert run(table, layout="kd", **OPTIONS).status == "committed"
    assert ids(table) == expected[0]
    assert not (table / "_maintenance").exists()


def test_a_later_try_carries_deletions_over_by_the_row_map_of_an_earlier_one(tmp_path: Path) -> None:
    table = write(tmp_path / "t")
    key = min(keys(table))

    class Killed(Exception):
        pass

    def die() -> None:
        raise Killed

    with pytest.raises(Killed):
        disturbed(table, die)
    assert len(list(table.rglob("*.rows"))) == 1
    expected: list[list[int]] = []

    def others() -> None:
        mark_deleted(table, {key: [0, 59]})
        expected.append(ids(table))

    class Progress(SilentProgress):
        """Others delete rows after the run has looked at the finished bin, and before it commits it."""

        def message(self, text: str) -> None:
            if text.startswith("committing"):
                others()

    engine = WatchedEngine()
    report = run(table, engine=engine, progress=Progress(), layout="kd", **OPTIONS)
    assert engine.given == []
    assert (report.remapped_bins, report.earlier_tries and report.earlier_tries["bins"]) == (1, 1)
    assert ids(table) == expected[0]
    assert not (table / "_maintenance").exists()


def test_a_failed_rewrite_leaves_no_row_map(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = write(tmp_path / "t")
    monkeypatch.setattr(row_map.RowMapWriter, "finish", lambda self: 1 / 0)
    with pytest.raises(Exception, match="division"):
        run(table, layout="kd", **OPTIONS)
    assert not list(table.rglob("*.rows"))
    assert len(list(table.glob("*.parquet"))) == FILES


def test_many_rows_need_longer_numbers_and_are_read_in_blocks(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(row_map, "_SHORT", row_map._LONG)
    monkeypatch.setattr(row_map, "ROW_MAP_BLOCK_BYTES", 24)
    table = write(tmp_path / "t")
    key = min(keys(table))
    deleted = set(range(first_ids(table)[key] + 10, first_ids(table)[key] + 20))
    report = disturbed(table, lambda: mark_deleted(table, {key: range(10, 20)}))
    assert report.remapped_bins == 1
    assert ids(table) == [n for n in range(FILES * ROWS) if n not in deleted]
