"""Manifests that somebody planted who may write below the table's root: nothing outside of the plan comes of them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.maintenance_runs import WatchedEngine, keys, run
from tests.planted_manifests import FORGED_ID, forged, forged_file, of_gone_sources, planned, plant
from tests.small_tables import write_parts

from delta_log import Table
from delta_maintenance.cli import main

PARTS = "abc"
IDS = [0, 1, 2, 10, 11, 12]
ANY_BIN = "0" * 32


@pytest.fixture
def table(tmp_path: Path) -> Path:
    """Two small files in each of three partitions: three bins."""
    return write_parts(tmp_path / "lake" / "t", PARTS)


def ids(table: Path) -> list[int]:
    found: list[int] = Table(str(table)).snapshot().to_arrow(["id"]).column("id").to_pylist()
    return sorted(found)


def is_done(table: Path) -> bool:
    """Are all rows there, in one file of our own for each partition?"""
    return ids(table) == IDS and len(keys(table)) == len(PARTS) and "forged.parquet" not in keys(table)


def claim(table: Path, number: int) -> Path:
    """A forged manifest of one of the bins, with a file that is there."""
    task = planned(table)[number]
    file = forged_file(table / f"part={task.partition_values['part']}" / "forged.parquet")
    key = file.relative_to(table).as_posix()
    return plant(table, forged(task, path=key, key=key, size_bytes=file.stat().st_size))


def test_a_file_outside_of_the_table_that_a_manifest_names_is_not_deleted(table: Path) -> None:
    victim = table.parent / "victim" / "x"
    victim.parent.mkdir()
    victim.write_text("somebody else's")
    task = planned(table)[0]
    for number, key in enumerate(("../victim/x", "part=a/../../victim/x", str(victim))):
        manifest = {**of_gone_sources(forged(task, path=key, key=key)), "bin_id": f"{number:032x}"}
        plant(table, manifest)
    assert run(table).status == "committed"
    assert victim.read_text() == "somebody else's"
    assert is_done(table)


def test_a_file_outside_of_the_table_that_is_named_as_a_bin_is_not_deleted(table: Path) -> None:
    victim = table.parent / "victim" / "a.json"
    victim.parent.mkdir()
    victim.write_text("somebody else's")
    manifest = {**of_gone_sources(forged(planned(table)[0])), "bin_id": "../../../victim/a"}
    plant(table, manifest, name=ANY_BIN)
    assert run(table).status == "committed"
    assert victim.exists()
    assert is_done(table)


def test_no_commit_that_a_manifest_names_is_deleted(table: Path) -> None:
    log = sorted((table / "_delta_log").glob("*.json"))
    for number, path in enumerate(log):
        key = path.relative_to(table).as_posix()
        manifest = of_gone_sources(forged(planned(table)[0], path=key, key=key))
        plant(table, {**manifest, "bin_id": f"{number:032x}"})
    assert run(table).status == "committed"
    assert all(path.exists() for path in log)
    assert is_done(table)


def test_a_bin_that_is_claimed_done_is_done_all_the_same(table: Path) -> None:
    for number in range(len(PARTS)):
        claim(table, number)
    report = run(table)
    assert (report.status, report.metrics["numRemovedFiles"]) == ("committed", 6)
    assert is_done(table)
    assert FORGED_ID not in ids(table)


def test_a_bin_that_is_claimed_done_while_the_run_is_on_is_done_all_the_same(table: Path) -> None:
    """The run's id is seen in ``_maintenance/``; which bins it has yet to do, anybody can plan."""
    claimed: list[Path] = []

    def watch(number: int) -> None:
        (directory,) = (table / "_maintenance").iterdir()
        assert directory.name == "run"
        if number < len(PARTS):
            claimed.append(claim(table, number))

    report = run(table, engine=WatchedEngine(watch))
    assert (report.status, len(claimed)) == ("committed", 2)
    assert is_done(table)


def test_a_file_of_another_table_is_not_committed(table: Path) -> None:
    other = write_parts(table.parent / "other", "a")
    foreign = other / keys(other)[0]
    plant(
        table,
        forged(
            planned(table)[0],
            path=foreign.as_uri(),
            key=f"../other/{keys(other)[0]}",
            size_bytes=foreign.stat().st_size,
        ),
    )
    assert run(table).status == "committed"
    assert is_done(table)


def test_the_command_line_takes_nothing_over_by_a_run_id_alone(
    table: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    claim(table, 0)
    assert main(["optimize", str(table), "--run-id", "run", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert (report["status"], report["metrics"]["numRemovedFiles"]) == ("committed", 6)
    assert is_done(table)
